! Procedures that no other program here calls: datatypes by precision and by size, MPI_Alltoallw, spawning with arguments, a data
! representation of the program, and a profiling procedure.
! ranks: 2
! SPDX-License-Identifier: BSD-3-Clause
module counted
  implicit none
  integer :: barriers = 0
end module

! What a tool writes in Fortran: it takes the place of the library's procedure (MPI-5.0, sections 15.2 and 19.1.5).
subroutine MPI_Barrier_f08(comm, ierror)
  use mpi_f08, only: MPI_Comm, PMPI_Barrier
  use counted
  implicit none
  type(MPI_Comm), intent(in) :: comm
  integer, optional, intent(out) :: ierror
  barriers = barriers + 1
  call PMPI_Barrier(comm, ierror)
end subroutine

module represent
  use mpi_f08
  implicit none
  integer :: extents = 0
contains
  subroutine extent_of(datatype, extent, extra_state, ierror)
    type(MPI_Datatype) :: datatype
    integer(MPI_ADDRESS_KIND) :: extent, extra_state
    integer :: ierror
    integer(MPI_ADDRESS_KIND) :: lb
    extents = extents + 1
    if (extra_state /= 77) extents = -1000
    call MPI_Type_get_extent(datatype, lb, extent, ierror)
  end subroutine
end module

program procedures
  use mpi_f08
  use counted
  use represent
  implicit none
  integer, parameter :: long = selected_real_kind(15, 307), wide = selected_int_kind(12)
  type(MPI_Comm) :: parent, children
  integer :: rank, ranks, failed = 0
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call MPI_Comm_get_parent(parent)
  if (parent /= MPI_COMM_NULL) then
    call child()
  else
    call datatypes()
    call all_to_all()
    call representation()
    call MPI_Barrier(MPI_COMM_WORLD)
    call expect(barriers == 1, 'the calls that MPI_Barrier of the program saw')
    call spawned()
    call MPI_Allreduce(MPI_IN_PLACE, failed, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    if (rank == 0 .and. failed == 0) print '(A)', 'ok'
  end if
  call MPI_Finalize()
contains
  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    if (.not. holds) print '(2A)', 'wrong: ', what
    failed = failed + merge(0, 1, holds)
  end subroutine

  subroutine datatypes()
    type(MPI_Datatype) :: real_type, complex_type, integer_type, sized
    real(long) :: sent(2), received(2)
    complex(long) :: z(1)
    integer(wide) :: n(1)
    integer :: bytes, combiner, counts(3)
    call MPI_Type_create_f90_real(15, 307, real_type)
    call MPI_Type_create_f90_complex(15, 307, complex_type)
    call MPI_Type_create_f90_integer(12, integer_type)
    sent = [1.25_long, real(rank, long)]
    call MPI_Sendrecv(sent, 2, real_type, mod(rank + 1, ranks), 1, received, 2, real_type, mod(rank + ranks - 1, ranks), 1, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call expect(received(1) == 1.25_long .and. nint(received(2)) == mod(rank + ranks - 1, ranks), 'MPI_Type_create_f90_real')
    z = cmplx(1, rank, long)
    call MPI_Allreduce(MPI_IN_PLACE, z, 1, complex_type, MPI_SUM, MPI_COMM_WORLD)
    call expect(nint(real(z(1))) == ranks, 'MPI_Type_create_f90_complex')
    n = 2_wide ** 36
    call MPI_Allreduce(MPI_IN_PLACE, n, 1, integer_type, MPI_SUM, MPI_COMM_WORLD)
    call expect(n(1) == ranks * 2_wide ** 36, 'MPI_Type_create_f90_integer')
    call MPI_Type_get_envelope(real_type, counts(1), counts(2), counts(3), combiner)
    call expect(combiner == MPI_COMBINER_F90_REAL .and. counts(1) == 2, 'the envelope of MPI_Type_create_f90_real')
    call MPI_Type_match_size(MPI_TYPECLASS_REAL, storage_size(sent) / 8, sized)
    call MPI_Type_size(sized, bytes)
    call expect(bytes == storage_size(sent) / 8, 'MPI_Type_match_size of a real')
    call MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 4, sized)
    call MPI_Type_size(sized, bytes)
    call expect(bytes == 4, 'MPI_Type_match_size of an integer')
  end subroutine

  subroutine all_to_all()
    ! Rank i sends to rank j one element: an INTEGER if i + j is even, else a DOUBLE PRECISION.
    integer :: i, ones(0:ranks - 1), places(0:ranks - 1)
    type(MPI_Datatype) :: types(0:ranks - 1)
    integer, target :: whole(2, 0:ranks - 1), got(2, 0:ranks - 1)
    double precision :: fraction
    ones = 1
    places = [(8 * i, i = 0, ranks - 1)]
    do i = 0, ranks - 1
      if (mod(i + rank, 2) == 0) then
        types(i) = MPI_INTEGER
        whole(:, i) = [100 * rank + i, 0]
      else
        types(i) = MPI_DOUBLE_PRECISION
        whole(:, i) = transfer(100 * rank + i + 0.5d0, whole(:, i))
      end if
    end do
    call MPI_Alltoallw(whole, ones, places, types, got, ones, places, types, MPI_COMM_WORLD)
    do i = 0, ranks - 1
      if (mod(i + rank, 2) == 0) then
        call expect(got(1, i) == 100 * i + rank, 'an integer of MPI_Alltoallw')
      else
        fraction = transfer(got(:, i), fraction)
        call expect(nint(2 * fraction) == 200 * i + 2 * rank + 1, 'a double of MPI_Alltoallw')
      end if
    end do
  end subroutine

  subroutine representation()
    integer :: code, class
    integer(MPI_ADDRESS_KIND) :: bytes
    type(MPI_File) :: file
    call MPI_Register_datarep('procedures', MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_of, 77_MPI_ADDRESS_KIND)
    call MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN)
    call MPI_Register_datarep('procedures', MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_of, 77_MPI_ADDRESS_KIND, code)
    call MPI_Error_class(code, class)
    call expect(class == MPI_ERR_DUP_DATAREP, 'the second MPI_Register_datarep of one name')
    call MPI_File_open(MPI_COMM_WORLD, 'procedures.data', MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, &
                       MPI_INFO_NULL, file)
    call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, 'procedures', MPI_INFO_NULL)
    call MPI_File_get_type_extent(file, MPI_DOUBLE_PRECISION, bytes)
    call expect(bytes == 8 .and. extents > 0, 'the extent that the program tells')
    call MPI_File_close(file)
  end subroutine

  subroutine spawned()
    character(200) :: command
    character(20) :: arguments(3)
    integer :: codes(2), sum
    call get_command_argument(0, command)
    arguments = [character(20) :: 'one', 'two words', '']
    call MPI_Comm_spawn(command, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, children, codes)
    if (rank == 0) call expect(all(codes == MPI_SUCCESS), 'the codes of MPI_Comm_spawn')
    call MPI_Allreduce(rank, sum, 1, MPI_INTEGER, MPI_SUM, children)
    call expect(sum == 20, 'the sum of the children')
    call MPI_Comm_disconnect(children)
  end subroutine

  subroutine child()
    character(20) :: first, second
    integer :: sum, mine
    call get_command_argument(1, first)
    call get_command_argument(2, second)
    mine = merge(10, 0, first == 'one' .and. second == 'two words' .and. command_argument_count() == 2)
    call MPI_Allreduce(mine, sum, 1, MPI_INTEGER, MPI_SUM, parent)
    call MPI_Comm_disconnect(parent)
  end subroutine
end program
