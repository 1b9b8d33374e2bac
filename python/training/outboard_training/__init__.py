# SPDX-License-Identifier: BSD-3-Clause
"""Work beside a training with PyTorch, in processes of its own: `checkpoint` writes checkpoints, `data` loads batches through a
ring in shared memory, `export` makes one file of a checkpoint, `store` knows the files of a checkpoint. None of them needs MPI,
and `store` does not need torch."""
