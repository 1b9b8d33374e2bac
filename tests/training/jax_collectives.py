# SPDX-License-Identifier: BSD-3-Clause
"""JAX's own collectives on CPU, by MPI and MPItrampoline: each gives what numpy computes from all ranks' parts. The environment has PORT."""
import os
import sys

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

rank, local = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["MPI_LOCALNRANKS"])
jax.config.update("jax_cpu_collectives_implementation", "mpi")
# XLA wants all communicators in the thread that initialised MPI.
jax.config.update("jax_cpu_enable_async_dispatch", False)
jax.distributed.initialize(f"127.0.0.1:{os.environ['PORT']}", local, rank)
size = len(jax.devices())
mesh = Mesh(np.array(jax.devices()), ("ranks",))
whole = np.arange(size * size * 3, dtype=np.float32).reshape(size, size * 3)
parts = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("ranks")), lambda index: whole[index])


def check(name, function, out, wanted):
    result = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("ranks"), out_specs=out, check_vma=False))(parts)
    got = np.asarray(result.addressable_shards[0].data)
    if not np.array_equal(got, wanted):
        sys.exit(f"rank {rank} of {size}: {name} gives {got}, not {wanted}")


if size != local:
    sys.exit(f"rank {rank}: {size} devices on {local} ranks")
check("psum", lambda v: lax.psum(v, "ranks"), P(), whole.sum(0, keepdims=True))
check("pmax", lambda v: lax.pmax(v, "ranks"), P(), whole.max(0, keepdims=True))
check("pmin", lambda v: lax.pmin(v, "ranks"), P(), whole.min(0, keepdims=True))
check("all_gather", lambda v: lax.all_gather(v, "ranks"), P(), whole[:, None])
check("ppermute", lambda v: lax.ppermute(v, "ranks", [(one, (one + 1) % size) for one in range(size)]), P("ranks"), whole[(rank - 1) % size][None])
check("all_to_all", lambda v: lax.all_to_all(v.reshape(size, 3), "ranks", 0, 0), P("ranks"), whole.reshape(size, size, 3)[:, rank])
check("psum_scatter", lambda v: lax.psum_scatter(v[0], "ranks", tiled=True), P("ranks"), whole.sum(0).reshape(size, 3)[rank])
# The gradient of a sum over all ranks.
gradient = jax.grad(lambda w: jax.shard_map(lambda w, v: lax.psum((w * v).sum(), "ranks"), mesh=mesh, in_specs=(P(), P("ranks")), out_specs=P())(w, parts))(
    np.float32(2))
if float(gradient) != whole.sum():
    sys.exit(f"rank {rank}: the gradient is {gradient}, not {whole.sum()}")
jax.distributed.shutdown()
