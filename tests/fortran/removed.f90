! The procedures that MPI-3.0 removed and MPICH's library has kept; and MPI_ADDRESS, whose INTEGER is too short today.
! only: mpich    ranks: 1 2
! SPDX-License-Identifier: BSD-3-Clause
program main
  include 'mpif.h'
  integer code, rank, ranks, kind, extent, low, high, i, class
  integer lengths(2), places(2), kinds(2), handler, old, address
  integer sent(12), got(12)
  external complain
  integer complaints
  common /heard/ complaints
  call MPI_INIT(code)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, code)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, code)
  do i = 1, 12
    sent(i) = i
    got(i) = 0
  end do

  ! Of the integers 1 .. 12: 1, 2; 5, 6; 9, 10.
  call MPI_TYPE_HVECTOR(3, 2, 16, MPI_INTEGER, kind, code)
  call MPI_TYPE_EXTENT(kind, extent, code)
  call MPI_TYPE_LB(kind, low, code)
  call MPI_TYPE_UB(kind, high, code)
  if (extent .ne. 40 .or. low .ne. 0 .or. high .ne. 40) print *, 'bounds', extent, low, high
  call check(kind, 2, 5, 10, 33, sent, got)

  ! 3; 7, 8.
  lengths(1) = 1
  lengths(2) = 2
  places(1) = 8
  places(2) = 24
  call MPI_TYPE_HINDEXED(2, lengths, places, MPI_INTEGER, kind, code)
  call MPI_TYPE_LB(kind, low, code)
  call MPI_TYPE_UB(kind, high, code)
  if (low .ne. 8 .or. high .ne. 32) print *, 'bounds', low, high
  call check(kind, 3, 7, 8, 18, sent, got)
  kinds(1) = MPI_INTEGER
  kinds(2) = MPI_REAL
  call MPI_TYPE_STRUCT(2, lengths, places, kinds, kind, code)
  call check(kind, 3, 7, 8, 18, sent, got)

  ! The address of a variable on the stack or in a program that is loaded anywhere.
  complaints = 0
  call MPI_ERRHANDLER_CREATE(complain, handler, code)
  call MPI_ERRHANDLER_GET(MPI_COMM_SELF, old, code)
  if (old .ne. MPI_ERRORS_ARE_FATAL) print *, 'the first handler'
  call MPI_ERRHANDLER_SET(MPI_COMM_SELF, handler, code)
  address = 0
  call MPI_ADDRESS(sent, address, code)
  if (code .eq. MPI_SUCCESS) then
    if (address .eq. 0) print *, 'no address'
  else
    call MPI_ERROR_CLASS(code, class, code)
    if (class .ne. MPI_ERR_ARG) print *, 'class', class
    if (complaints .ne. 1) print *, complaints, ' complaints'
  end if
  call MPI_BARRIER(MPI_COMM_WORLD, code)
  if (rank .eq. 0) print '(a)', 'ok'
  call MPI_FINALIZE(code)
end

! Sends the datatype to this rank, and looks at three elements and at the sum of all.
subroutine check(kind, a, b, c, total, sent, got)
  include 'mpif.h'
  integer kind, a, b, c, total, sent(12), got(12), code, i, sum
  call MPI_TYPE_COMMIT(kind, code)
  do i = 1, 12
    got(i) = 0
  end do
  call MPI_SENDRECV(sent, 1, kind, 0, 1, got, 1, kind, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE, code)
  sum = 0
  do i = 1, 12
    sum = sum + got(i)
  end do
  if (got(a) .ne. a .or. got(b) .ne. b .or. got(c) .ne. c .or. sum .ne. total) print *, 'received', got
  call MPI_TYPE_FREE(kind, code)
end

subroutine complain(comm, code)
  integer comm, code, complaints
  common /heard/ complaints
  complaints = complaints + 1
end
