# SPDX-License-Identifier: BSD-3-Clause
"""The old name of `outboard_training.export`."""
import sys

from ._moved import moved

module = moved("export")
if __name__ == "__main__":
    sys.exit(module.main())
