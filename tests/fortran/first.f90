! The calls that every program makes, by mpi_f08.
! SPDX-License-Identifier: BSD-3-Clause
program first
  use mpi_f08
  implicit none
  integer :: rank, ranks, code, length, received
  character(len=MPI_MAX_PROCESSOR_NAME) :: host
  double precision :: mine, total
  integer :: ring(3)
  type(MPI_Status) :: status
  type(MPI_Comm) :: comm
  type(MPI_Request) :: requests(2)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
  if (code /= MPI_SUCCESS) error stop "MPI_Comm_size"
  if (.not. MPI_SUBARRAYS_SUPPORTED) error stop "no sections"
  host = repeat("x", len(host))
  call MPI_Get_processor_name(host, length)
  if (len_trim(host) /= length .or. length == 0) error stop "the host's name"

  mine = rank + 1
  call MPI_Allreduce(mine, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  if (nint(total) /= ranks * (ranks + 1) / 2) error stop "sum"
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  if (comm == MPI_COMM_WORLD .or. .not. comm /= MPI_COMM_WORLD) error stop "a copy is another comm"
  call MPI_Allreduce(MPI_IN_PLACE, mine, 1, MPI_DOUBLE_PRECISION, MPI_SUM, comm)
  if (nint(mine) /= nint(total)) error stop "sum in place"

  ring = rank
  call MPI_Sendrecv_replace(ring, 3, MPI_INTEGER, mod(rank + 1, ranks), 5, mod(rank + ranks - 1, ranks), 5, comm, status)
  if (any(ring /= mod(rank + ranks - 1, ranks))) error stop "ring"
  if (status%MPI_SOURCE /= ring(1) .or. status%MPI_TAG /= 5) error stop "status"
  call MPI_Get_count(status, MPI_INTEGER, received)
  if (received /= 3) error stop "count"

  ! Large counts are the same name.
  call MPI_Isend(rank, 1_MPI_COUNT_KIND, MPI_INTEGER, mod(rank + 1, ranks), 6, comm, requests(1))
  call MPI_Irecv(ring, 1, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, requests(2))
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  if (requests(1) /= MPI_REQUEST_NULL .or. requests(2) /= MPI_REQUEST_NULL) error stop "requests"
  call MPI_Comm_free(comm)
  if (comm /= MPI_COMM_NULL) error stop "free"
  if (rank == 0) print '(a)', "ok"
  call MPI_Finalize(code)
end program
