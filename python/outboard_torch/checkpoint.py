# SPDX-License-Identifier: BSD-3-Clause
"""The old name of `outboard_training.checkpoint`."""
from ._moved import moved

moved("checkpoint")
