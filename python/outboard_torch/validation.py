# SPDX-License-Identifier: BSD-3-Clause
"""Validation has become an example, to be copied beside one's program."""
raise ModuleNotFoundError("outboard_torch.validation is an example now: copy examples/training/validation.py of Outboard's source beside your program",
                          name=__name__)
