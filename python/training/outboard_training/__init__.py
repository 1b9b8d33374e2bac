# SPDX-License-Identifier: BSD-3-Clause
"""What stands beside a training with PyTorch, each in processes of its own: `checkpoint` writes checkpoints, `data` loads batches through a ring
in shared memory, `export` makes a file of a checkpoint, `store` is how checkpoints lie on disk. Nothing here needs MPI, and `store` not even torch."""
