! The same by the module mpi: INTEGER handles, ierror, choice buffers of any type and rank.
! SPDX-License-Identifier: BSD-3-Clause
program module
  use mpi
  implicit none
  integer :: rank, ranks, code, length, status(MPI_STATUS_SIZE), comm, requests(2), index, bytes
  character(len=MPI_MAX_OBJECT_NAME) :: name
  character(len=8) :: text
  real :: matrix(4, 4), row(4)
  logical :: flag
  integer(kind=MPI_ADDRESS_KIND) :: first, second
  type pair
    sequence
    integer :: left
    real :: right
  end type
  type(pair) :: mine

  call MPI_INIT(code)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, code)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, code)
  call MPI_INITIALIZED(flag, code)
  if (.not. flag) error stop "initialized"
  call MPI_COMM_DUP(MPI_COMM_WORLD, comm, code)
  call MPI_COMM_SET_NAME(comm, "  a name  ", code)
  call MPI_COMM_GET_NAME(comm, name, length, code)
  if (name /= "  a name" .or. length /= 8) error stop "name"

  matrix = rank
  call MPI_BCAST(matrix, 16, MPI_REAL, 0, comm, code)
  if (any(abs(matrix) > 0)) error stop "bcast"
  ! A section is copied by the compiler.
  row = rank + 1
  matrix(2, :) = row
  call MPI_ALLREDUCE(matrix(2, :), row, 4, MPI_REAL, MPI_MAX, comm, code)
  if (any(nint(row) /= ranks)) error stop "max"
  mine = pair(rank, 1.5)
  call MPI_BCAST(mine, 8, MPI_BYTE, ranks - 1, comm, code)
  if (mine%left /= ranks - 1) error stop "a derived type"
  text = "rank"
  call MPI_BCAST(text, 8, MPI_CHARACTER, 0, comm, code)

  call MPI_ISEND(rank, 1, MPI_INTEGER, mod(rank + 1, ranks), 3, comm, requests(1), code)
  call MPI_IRECV(length, 1, MPI_INTEGER, MPI_ANY_SOURCE, 3, comm, requests(2), code)
  call MPI_WAITANY(2, requests, index, status, code)
  if (index < 1 .or. index > 2) error stop "an index counts from 1"
  call MPI_WAITALL(2, requests, MPI_STATUSES_IGNORE, code)
  call MPI_WAITANY(2, requests, index, MPI_STATUS_IGNORE, code)
  if (index /= MPI_UNDEFINED) error stop "no index"
  if (length /= mod(rank + ranks - 1, ranks)) error stop "ring"

  call MPI_GET_ADDRESS(row(1), first, code)
  call MPI_GET_ADDRESS(row(3), second, code)
  if (MPI_AINT_DIFF(second, first) /= 8) error stop "addresses"
  call MPI_SIZEOF(matrix, bytes, code)
  if (bytes /= 4) error stop "sizeof"
  call MPI_SIZEOF((1d0, 2d0), bytes, code)
  if (bytes /= 16) error stop "sizeof"
  if (MPI_WTIME() < 0 .or. PMPI_WTICK() <= 0) error stop "time"
  call MPI_COMM_FREE(comm, code)
  if (rank == 0) print '(a)', "ok"
  call MPI_FINALIZE(code)
end program
