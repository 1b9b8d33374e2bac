! Statuses that Fortran passes to C and gets from it, and MPI_STATUS_IGNORE as C sees it.
! SPDX-License-Identifier: BSD-3-Clause
module in_c
  use, intrinsic :: iso_c_binding
  use mpi_f08
  implicit none
  interface
    function c_reads(f, f08, source, count) bind(C) result(wrong)
      import
      integer(c_int), intent(in) :: f(*)
      type(MPI_Status), intent(in) :: f08
      integer(c_int), value :: source, count
      integer(c_int) :: wrong
    end function
    function c_writes(f, f08, count) bind(C) result(wrong)
      import
      integer(c_int), intent(inout) :: f(*)
      type(MPI_Status), intent(inout) :: f08
      integer(c_int), value :: count
      integer(c_int) :: wrong
    end function
    function c_sees_ignored(status, statuses) bind(C) result(wrong)
      import
      type(MPI_Status), intent(inout) :: status, statuses(*)
      integer(c_int) :: wrong
    end function
  end interface
end module

program statuses
  use in_c
  implicit none
  integer :: rank, sent(3) = [1, 2, 3], received(4), count, failed = 0, f(MPI_STATUS_SIZE)
  type(MPI_Status) :: f08
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Sendrecv(sent, 3, MPI_INTEGER, rank, 17, received, 4, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, f08)
  call MPI_Status_f082f(f08, f)
  call expect(c_reads(f, f08, rank, 3), 'c_reads')
  call expect(c_writes(f, f08, 12), 'c_writes')
  call expect(merge(0, 1, f08%MPI_SOURCE == 5 .and. f08%MPI_TAG == 6), 'the status of mpi_f08')
  call MPI_Get_count(f08, MPI_INTEGER, count)
  call expect(merge(0, 1, count == 12), 'its count')
  call expect(merge(0, 1, f(MPI_SOURCE) == 5 .and. f(MPI_TAG) == 6), 'the status of mpif.h')
  call MPI_Status_f2f08(f, f08)
  call MPI_Get_count(f08, MPI_INTEGER, count)
  call expect(merge(0, 1, count == 12), 'its count')
  call expect(c_sees_ignored(MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE), 'c_sees_ignored')
  call MPI_Allreduce(MPI_IN_PLACE, failed, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0 .and. failed == 0) print '(A)', 'ok'
  call MPI_Finalize()
contains
  subroutine expect(wrong, what)
    integer, intent(in) :: wrong
    character(*), intent(in) :: what
    if (wrong /= 0) print '(3A,I0)', 'wrong: ', what, ', in line ', wrong
    failed = failed + merge(1, 0, wrong /= 0)
  end subroutine
end program
