! ranks: 2 3 4
! Sections with gaps that a request holds: nonblocking and persistent reductions and all-to-alls (MPI 5.0, section 19.1.12).
! SPDX-License-Identifier: BSD-3-Clause
module operators
contains
  subroutine plus(left, into, length, datatype)
    use mpi_f08
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: left, into
    integer :: length
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    if (datatype /= MPI_INTEGER) error stop "the operator got another datatype"
    call c_f_pointer(left, a, [length])
    call c_f_pointer(into, b, [length])
    b = a + b
  end subroutine
end module

program lasting
  use mpi_f08
  use operators
  implicit none
  integer, parameter :: N = 6, BIG = 40000
  integer :: rank, ranks, i, j, round
  integer, allocatable :: from(:, :), to(:, :), counts(:), places(:), bytes(:), all(:, :), mine(:)
  integer :: grid(3, N), sums(3, N), own(N), total
  real, allocatable :: long(:, :), result(:, :)
  type(MPI_Request) :: request, two(2)
  type(MPI_Datatype), allocatable :: types(:)
  type(MPI_Op) :: later
  logical :: done

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  total = ranks * (ranks - 1) / 2
  own = [(i, i = 1, N)]

  ! Reductions: each from a row to another row, which is right when the request is over, and all around it as before.
  call fill()
  call MPI_Iallreduce(grid(2, :), sums(3, N:1:-1), N, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  grid(1, :) = 0 ! Beside the section.
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call expect("Iallreduce", sums(3, N:1:-1), ranks * own + 10 * total, 2)

  call fill()
  sums(1, :) = own * (rank + 1)
  call MPI_Iallreduce(MPI_IN_PLACE, sums(1, :), N, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, request)
  done = .false.
  do while (.not. done)
    call MPI_Test(request, done, MPI_STATUS_IGNORE)
  end do
  call expect("Iallreduce in place", sums(1, :), ranks * own, 2)

  call fill()
  call MPI_Ireduce(grid(2, :), sums(2, :), N, MPI_INTEGER, MPI_SUM, ranks - 1, MPI_COMM_WORLD, two(1))
  call MPI_Waitall(1, two, MPI_STATUSES_IGNORE)
  if (rank == ranks - 1) call expect("Ireduce", sums(2, :), ranks * own + 10 * total, 2)
  if (rank < ranks - 1 .and. any(sums /= -1)) error stop "Ireduce wrote where it is not the root"

  call fill()
  sums(2, :) = own * (rank + 1)
  if (rank == 0) then
    call MPI_Ireduce(MPI_IN_PLACE, sums(2, :), N, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, request)
  else
    call MPI_Ireduce(sums(2, :), grid, N, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, request)
  end if
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (rank == 0) call expect("Ireduce in place", sums(2, :), own * (total + ranks), 2)

  call fill()
  call MPI_Iscan(grid(2, :), sums(1, :), N, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call expect("Iscan", sums(1, :), (rank + 1) * own + 10 * (rank * (rank + 1) / 2), 2)

  call fill()
  call MPI_Iexscan(grid(2, :), sums(1, :), N, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (rank > 0) call expect("Iexscan", sums(1, :), rank * own + 10 * (rank * (rank - 1) / 2), 2)
  if (rank == 0 .and. any(sums /= -1)) error stop "Iexscan wrote on rank 0"

  allocate (from(2, 3 * ranks), to(2, 3 * ranks), all(3, 3 * ranks), mine(3))
  allocate (counts(ranks), places(ranks), bytes(ranks), types(ranks))
  do i = 1, 3 * ranks
    from(:, i) = [rank + 100 * i, -1]
  end do
  to = -1
  call MPI_Ireduce_scatter_block(from(1, :), to(2, 1:5:2), 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  mine = [(total + 100 * ranks * (3 * rank + i), i = 1, 3)]
  if (any(to(2, 1:5:2) /= mine) .or. count(to == -1) /= 6 * ranks - 3) error stop "Ireduce_scatter_block"

  to = -1
  counts = 3
  call MPI_Ireduce_scatter(from(1, :), to(1, :), counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (any(to(1, 1:3) /= mine) .or. count(to == -1) /= 6 * ranks - 3) error stop "Ireduce_scatter"
  to(1, :) = from(1, :)
  call MPI_Ireduce_scatter(MPI_IN_PLACE, to(1, :), counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (any(to(1, 1:3) /= mine) .or. any(to(2, :) /= -1)) error stop "Ireduce_scatter in place"

  ! All-to-alls: element i of the section goes to rank (i - 1) / 3.
  all = -1
  call MPI_Ialltoall(from(1, :), 3, MPI_INTEGER, all(2, :), 3, MPI_INTEGER, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call exchanged("Ialltoall")
  all(2, :) = from(1, :)
  call MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all(2, :), 3, MPI_INTEGER, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call exchanged("Ialltoall in place")
  all = -1
  places = [(3 * (i - 1), i = 1, ranks)]
  call MPI_Ialltoallv(from(1, :), counts, places, MPI_INTEGER, all(2, :), counts, places, MPI_INTEGER, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call exchanged("Ialltoallv")
  all = -1
  bytes = 4 * places
  types = MPI_INTEGER
  call MPI_Ialltoallw(from(1, :), counts, bytes, types, all(2, :), counts, bytes, types, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call exchanged("Ialltoallw")
  all = -1
  call MPI_Iallgatherv(from(1, 1:3), 3, MPI_INTEGER, all(2, :), counts, places, MPI_INTEGER, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  do i = 0, ranks - 1
    if (any(all(2, 3 * i + 1:3 * i + 3) /= [(i + 100 * j, j = 1, 3)])) error stop "Iallgatherv"
  end do
  if (any(all(1::2, :) /= -1)) error stop "Iallgatherv wrote beside the section"

  ! Persistent: each start reads the section as it is then.
  call fill()
  call MPI_Allreduce_init(grid(2, :), sums(2, :), N, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, two(1))
  call MPI_Alltoall_init(from(1, :), 3, MPI_INTEGER, all(2, :), 3, MPI_INTEGER, MPI_COMM_WORLD, MPI_INFO_NULL, two(2))
  do round = 1, 3
    grid(2, :) = own + 10 * rank + round
    sums = -1
    all = -1
    call MPI_Startall(2, two)
    call MPI_Waitall(2, two, MPI_STATUSES_IGNORE)
    call expect("Allreduce_init", sums(2, :), ranks * (own + round) + 10 * total, 2)
    call exchanged("Alltoall_init")
  end do
  call MPI_Request_free(two(1))
  call MPI_Request_free(two(2))
  call MPI_Scan_init(MPI_IN_PLACE, sums(1, :), N, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, request)
  do round = 1, 2
    sums(1, :) = own
    call MPI_Start(request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    if (any(sums(1, :) /= own * (rank + 1))) error stop "Scan_init in place"
  end do
  call MPI_Request_free(request)

  ! The program's operator, which sees vectors without gaps.
  call MPI_Op_create(plus, .true., later)
  call fill()
  call MPI_Iallreduce(grid(2, :), sums(2, :), N, MPI_INTEGER, later, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call expect("with an operator of the program", sums(2, :), ranks * own + 10 * total, 2)
  call MPI_Op_free(later)

  ! Long enough for a schedule, and for a proxy.
  allocate (long(2, BIG), result(3, BIG))
  long(1, :) = [(real(mod(i, 100)), i = 1, BIG)]
  long(2, :) = 0
  result = -1
  call MPI_Iallreduce(long(1, :), result(2, :), BIG, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (any(result(2, :) /= ranks * long(1, :)) .or. any(result(1::2, :) /= -1)) error stop "a long one"

  if (rank == 0) print '(a)', "ok"
  call MPI_Finalize()
contains
  subroutine fill()
    grid = -7
    grid(2, :) = own + 10 * rank
    sums = -1
  end subroutine

  subroutine expect(call, seen, wanted, others)
    character(len=*), intent(in) :: call
    integer, intent(in) :: seen(:), wanted(:), others
    if (any(seen /= wanted)) then
      print *, call, seen, "instead of", wanted
      error stop "wrong"
    end if
    if (count(sums == -1) /= others * N) error stop call // " wrote beside the section"
  end subroutine

  subroutine exchanged(call)
    character(len=*), intent(in) :: call
    integer :: peer
    do peer = 0, ranks - 1
      if (any(all(2, 3 * peer + 1:3 * peer + 3) /= [(peer + 100 * (3 * rank + i), i = 1, 3)])) error stop call
    end do
    if (any(all(1::2, :) /= -1)) error stop call // " wrote beside the section"
  end subroutine
end program
