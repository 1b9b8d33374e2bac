# SPDX-License-Identifier: BSD-3-Clause
"""The old name of `outboard_training.store`."""
from ._moved import moved

moved("store")
