! The heat equation on a square, explicit in time, on a grid of ranks by mpi_f08.
!
!     heat [POINTS [STEPS]]
!
! The field has one row and one column of neighbours' points around it. A halo column is contiguous; a halo row is a
! section with gaps, which the calls take as it is: no packing, no datatype. Each rank starts its halo exchange, computes
! what needs no neighbour, waits, and computes the rest. The result is compared with the exact solution
! exp(-2 pi^2 t) sin(pi x) sin(pi y).
! SPDX-License-Identifier: BSD-3-Clause
program heat
  use mpi_f08
  implicit none
  integer, parameter :: dp = kind(0d0)
  real(dp), parameter :: pi = acos(-1d0)
  integer :: points = 128, steps = 500
  integer :: rank, ranks, grid(2), at(2), n(2), first(2), up, down, left, right, step, i, j
  real(dp), allocatable :: u(:, :), next(:, :)
  real(dp) :: h, dt, error, largest, start
  type(MPI_Comm) :: comm
  type(MPI_Request) :: halo(8)

  call MPI_Init()
  call read_arguments()
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  grid = 0
  call MPI_Dims_create(ranks, 2, grid)
  call MPI_Cart_create(MPI_COMM_WORLD, 2, grid, [.false., .false.], .true., comm)
  call MPI_Comm_rank(comm, rank)
  call MPI_Cart_coords(comm, rank, 2, at)
  call MPI_Cart_shift(comm, 0, 1, up, down)
  call MPI_Cart_shift(comm, 1, 1, left, right)
  ! Points first+1 .. first+n of 1 .. points in each direction; points 0 and points+1 are the cold border.
  first = at * points / grid
  n = (at + 1) * points / grid - first
  if (any(n < 2)) call give_up("too few points for so many ranks")

  allocate (u(0:n(1) + 1, 0:n(2) + 1), next(0:n(1) + 1, 0:n(2) + 1))
  h = 1d0 / (points + 1)
  dt = h**2 / 5
  do j = 0, n(2) + 1
    do i = 0, n(1) + 1
      u(i, j) = exact(i, j, 0d0)
    end do
  end do
  next = u
  start = MPI_Wtime()
  do step = 1, steps
    call start_halo()
    call advance(2, n(1) - 1, 2, n(2) - 1)
    call MPI_Waitall(8, halo, MPI_STATUSES_IGNORE)
    call advance(1, n(1), 1, 1)
    call advance(1, n(1), n(2), n(2))
    call advance(1, 1, 2, n(2) - 1)
    call advance(n(1), n(1), 2, n(2) - 1)
    u(1:n(1), 1:n(2)) = next(1:n(1), 1:n(2))
  end do

  error = 0
  do j = 1, n(2)
    do i = 1, n(1)
      error = max(error, abs(u(i, j) - exact(i, j, steps * dt)))
    end do
  end do
  call MPI_Allreduce(error, largest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, comm)
  if (rank == 0) print '(i0,a,i0,a,i0,a,i0,a,es9.2,a,f6.2,a)', points, " points, ", steps, " steps on ", grid(1), " x ", &
    grid(2), " ranks: error", largest, ", ", MPI_Wtime() - start, " s"
  if (largest > h**2) call give_up("the error is larger than the method's")
  call MPI_Finalize()

contains

  ! Rows lie 8 * (n(1) + 2) bytes apart: sections with gaps, in nonblocking calls.
  subroutine start_halo()
    call MPI_Irecv(u(0, 1:n(2)), n(2), MPI_DOUBLE_PRECISION, up, 1, comm, halo(1))
    call MPI_Irecv(u(n(1) + 1, 1:n(2)), n(2), MPI_DOUBLE_PRECISION, down, 2, comm, halo(2))
    call MPI_Irecv(u(1:n(1), 0), n(1), MPI_DOUBLE_PRECISION, left, 3, comm, halo(3))
    call MPI_Irecv(u(1:n(1), n(2) + 1), n(1), MPI_DOUBLE_PRECISION, right, 4, comm, halo(4))
    call MPI_Isend(u(n(1), 1:n(2)), n(2), MPI_DOUBLE_PRECISION, down, 1, comm, halo(5))
    call MPI_Isend(u(1, 1:n(2)), n(2), MPI_DOUBLE_PRECISION, up, 2, comm, halo(6))
    call MPI_Isend(u(1:n(1), n(2)), n(1), MPI_DOUBLE_PRECISION, right, 3, comm, halo(7))
    call MPI_Isend(u(1:n(1), 1), n(1), MPI_DOUBLE_PRECISION, left, 4, comm, halo(8))
  end subroutine

  subroutine advance(from_i, to_i, from_j, to_j)
    integer, intent(in) :: from_i, to_i, from_j, to_j
    integer :: i, j
    do j = from_j, to_j
      do i = from_i, to_i
        next(i, j) = u(i, j) + dt / h**2 * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4 * u(i, j))
      end do
    end do
  end subroutine

  real(dp) function exact(i, j, time)
    integer, intent(in) :: i, j
    real(dp), intent(in) :: time
    exact = exp(-2 * pi**2 * time) * sin(pi * (first(1) + i) * h) * sin(pi * (first(2) + j) * h)
  end function

  subroutine read_arguments()
    character(len=20) :: word
    integer :: code
    code = 0
    if (command_argument_count() >= 1) then
      call get_command_argument(1, word)
      read (word, *, iostat=code) points
    end if
    if (command_argument_count() >= 2 .and. code == 0) then
      call get_command_argument(2, word)
      read (word, *, iostat=code) steps
    end if
    if (code /= 0 .or. points < 2 .or. steps < 0) call give_up("heat [POINTS [STEPS]]")
  end subroutine

  subroutine give_up(sentence)
    character(len=*), intent(in) :: sentence
    print '(2a)', "heat: ", sentence
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine
end program
