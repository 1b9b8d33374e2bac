! Sections with gaps, by mpi_f08: blocking, nonblocking, persistent calls, reductions, one-sided, packing.
! SPDX-License-Identifier: BSD-3-Clause
program sections
  use mpi_f08
  implicit none
  integer :: rank, ranks, i, code, next, last, got
  real :: a(7, 5, 3), b(7, 5, 3), expected(7, 5, 3), flat(105), line(3)
  complex :: z(4, 4), w(4)
  character(len=3) :: words(6), other(6)
  integer, allocatable :: blocks(:, :), all(:, :)
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: status
  type(MPI_Win) :: win
  type(MPI_Datatype) :: three, gaps

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  next = mod(rank + 1, ranks)
  last = mod(rank + ranks - 1, ranks)

  flat = [(real(i), i = 1, 105)]
  a = reshape(flat, shape(a)) + 1000 * rank
  expected = reshape(flat, shape(a)) + 1000 * last

  ! Blocking, from a section to a section of another shape.
  b = -1
  call MPI_Sendrecv(a(1:7:2, 2:5:3, :), 24, MPI_REAL, next, 1, b(7:1:-2, 1:4:3, :), 24, MPI_REAL, last, 1, &
    MPI_COMM_WORLD, status)
  if (any(b(7:1:-2, 1:4:3, :) /= expected(1:7:2, 2:5:3, :))) error stop "sendrecv"
  if (count(b == -1) /= 105 - 24) error stop "sendrecv wrote beside the section"
  call MPI_Get_count(status, MPI_REAL, got)
  if (got /= 24) error stop "count"

  ! Only the first elements of a section; the row, then a part of the next plane.
  b = -1
  call MPI_Isend(a(2, :, :), 7, MPI_REAL, next, 2, MPI_COMM_WORLD, requests(1))
  call MPI_Irecv(b(3, :, :), 7_MPI_COUNT_KIND, MPI_REAL, last, 2, MPI_COMM_WORLD, requests(2))
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  if (any(b(3, :, 1) /= expected(2, :, 1)) .or. any(b(3, 1:2, 2) /= expected(2, 1:2, 2))) error stop "first elements"
  if (count(b == -1) /= 105 - 7) error stop "irecv wrote beside the elements"

  ! Persistent, twice; the datatype of the program holds several elements.
  call MPI_Type_contiguous(5, MPI_REAL, three)
  call MPI_Type_commit(three)
  call MPI_Send_init(a(4, :, :), 3, three, next, 3, MPI_COMM_WORLD, requests(1))
  call MPI_Recv_init(b(5, :, :), 3, three, last, 3, MPI_COMM_WORLD, requests(2))
  do i = 1, 2
    a(4, :, :) = a(4, :, :) + 1
    call MPI_Startall(2, requests)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    if (any(b(5, :, :) /= expected(4, :, :) + i)) error stop "persistent"
  end do
  call MPI_Request_free(requests(1))
  call MPI_Request_free(requests(2))
  a(4, :, :) = a(4, :, :) - 2

  ! Elements that are several of the datatype: complex as reals, texts as characters.
  z = cmplx(rank, -rank)
  w = 0
  call MPI_Sendrecv(z(2, :), 8, MPI_REAL, next, 4, w(4:1:-1), 8, MPI_REAL, last, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  if (any(w /= cmplx(last, -last))) error stop "complex"
  words = ["one", "two", "the", "for", "fiv", "six"]
  other = "---"
  call MPI_Sendrecv(words(1:5:2), 9, MPI_CHARACTER, next, 5, other(2:6:2), 9, MPI_CHARACTER, last, 5, &
    MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  if (any(other /= ["---", "one", "---", "the", "---", "fiv"])) error stop "texts"

  ! Collectives: one block as a datatype, several blocks and reductions as a copy.
  b = 0
  if (rank == 0) b(2, :, :) = 7
  call MPI_Bcast(b(2, :, :), 15, MPI_REAL, 0, MPI_COMM_WORLD)
  if (any(b(2, :, :) /= 7)) error stop "bcast"
  b = 0
  call MPI_Allreduce(a(1, 1, :), b(3, 2, :), 3, MPI_REAL, MPI_MAX, MPI_COMM_WORLD)
  if (any(b(3, 2, :) /= a(1, 1, :) + 1000 * (ranks - 1 - rank))) error stop "allreduce"
  if (count(b == 0) /= 102) error stop "allreduce wrote beside the section"
  allocate (blocks(2, ranks), all(2, 2 * ranks))
  blocks(1, :) = rank
  blocks(2, :) = -1
  all = -2
  call MPI_Alltoall(blocks(1, :), 1, MPI_INTEGER, all(2, 1:2 * ranks:2), 1, MPI_INTEGER, MPI_COMM_WORLD)
  if (any(all(2, 1:2 * ranks:2) /= [(i, i = 0, ranks - 1)]) .or. any(all(1, :) /= -2)) error stop "alltoall"
  call MPI_Iallgather(blocks(:, 1), 2, MPI_INTEGER, all, 2, MPI_INTEGER, MPI_COMM_WORLD, requests(1))
  call MPI_Wait(requests(1), status)

  ! One-sided.
  b = 0
  call MPI_Win_create(b, 420_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win)
  call MPI_Win_fence(0, win)
  call MPI_Put(a(3, :, 2), 5, MPI_REAL, next, 10_MPI_ADDRESS_KIND, 5, MPI_REAL, win)
  call MPI_Win_fence(0, win)
  if (any(b(4:7, 2, 1) /= expected(3, 1:4, 2)) .or. b(1, 3, 1) /= expected(3, 5, 2)) error stop "put"
  call MPI_Win_free(win)

  ! A datatype with gaps takes a copy of a section; packing, too.
  call MPI_Type_vector(2, 1, 2, MPI_REAL, gaps)
  call MPI_Type_commit(gaps)
  i = 0
  call MPI_Pack(a(1, 1, :), 3, MPI_REAL, flat(1:100:3), 136, i, MPI_COMM_WORLD)
  if (i /= 12 .or. any(flat(1:7:3) /= a(1, 1, :)) .or. flat(2) /= 2) error stop "pack"
  i = 0
  call MPI_Unpack(flat(1:100:3), 136, i, line(3:1:-1), 3, MPI_REAL, MPI_COMM_WORLD)
  if (any(line(3:1:-1) /= a(1, 1, :))) error stop "unpack"

  ! What cannot be: an error class and a sentence, and nothing else.
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
  call refused(MPI_ERR_BUFFER, "without elements", 1)
  call refused(MPI_ERR_BUFFER, "section with gaps", 2)
  call refused(MPI_ERR_COUNT, "which has 5", 3)
  call refused(MPI_ERR_TYPE, "so is the datatype", 4)
  call refused(MPI_ERR_TYPE, "no whole number", 5)
  call refused(MPI_ERR_COMM, "", 6)
  ! Not looked at, so not refused.
  call MPI_Send(a(2:1, 1, 1), 5, MPI_REAL, MPI_PROC_NULL, 0, MPI_COMM_WORLD, code)
  if (code /= MPI_SUCCESS) error stop "MPI_PROC_NULL"
  call MPI_Type_free(gaps)
  call MPI_Type_free(three)
  if (rank == 0) print '(a)', "ok"
  call MPI_Finalize()
contains
  subroutine refused(class, sentence, which)
    integer, intent(in) :: class, which
    character(len=*), intent(in) :: sentence
    character(len=MPI_MAX_ERROR_STRING) :: text
    integer :: code, found, length
    select case (which)
    case (1)
      call MPI_Send(a(2:1, 1, 1), 5, MPI_REAL, 0, 0, MPI_COMM_WORLD, code)
    case (2)
      call MPI_Psend_init(a(1, :, 1), 1, 5_MPI_COUNT_KIND, MPI_REAL, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1), code)
    case (3)
      call MPI_Send(a(1, :, 1), 6, MPI_REAL, 0, 0, MPI_COMM_WORLD, code)
    case (4)
      call MPI_Isend(a(1, :, 1), 1, gaps, 0, 0, MPI_COMM_WORLD, requests(1), code)
    case (5)
      call MPI_Send(z(1, :), 1, MPI_REAL, 0, 0, MPI_COMM_WORLD, code)
    case default
      call MPI_Send(a(1, :, 1), 1, MPI_REAL, 0, 0, MPI_Comm(12345), code)
    end select
    call MPI_Error_class(code, found)
    call MPI_Error_string(code, text, length)
    if (found /= class .or. index(text, sentence) == 0) then
      print *, which, found, trim(text)
      error stop "not refused as it should be"
    end if
  end subroutine
end program
