! Procedures that MPI calls, and what crosses between Fortran and C both ways; the part in C is callbacks_c.c.
! ranks: 2
! SPDX-License-Identifier: BSD-3-Clause
module procedures
  use, intrinsic :: iso_c_binding
  use mpi_f08
  implicit none
  integer :: deleted = 0, handled = 0, queried = 0, freed = 0, cancelled = 0, handled_code = 0
  interface
    ! Each returns 0, or the line of callbacks_c.c that found something wrong.
    integer(c_int) function c_uses_attribute(comm, keyval, value) bind(C)
      import
      integer(c_int), value :: comm, keyval
      integer(c_int64_t), value :: value
    end function
    integer(c_int) function c_makes_keyval(keyval) bind(C)
      import
      integer(c_int) :: keyval
    end function
    integer(c_int) function c_sets_attribute(comm, keyval, address) bind(C)
      import
      integer(c_int), value :: comm, keyval
      type(c_ptr), value :: address
    end function
    integer(c_int) function c_reduces(op, comm) bind(C)
      import
      integer(c_int), value :: op, comm
    end function
    integer(c_int) function c_makes_op(op) bind(C)
      import
      integer(c_int) :: op
    end function
    integer(c_int) function c_uses_type(datatype, bytes, comm) bind(C)
      import
      integer(c_int), value :: datatype, bytes, comm
    end function
    integer(c_int) function c_fails(comm) bind(C)
      import
      integer(c_int), value :: comm
    end function
    integer(c_int) function c_waits(request, count) bind(C)
      import
      integer(c_int), value :: request, count
    end function
  end interface
contains
  subroutine copy(oldcomm, comm_keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    type(MPI_Comm) :: oldcomm
    integer :: comm_keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    if (oldcomm /= MPI_COMM_SELF .or. comm_keyval == MPI_KEYVAL_INVALID) error stop "copy"
    attribute_val_out = attribute_val_in + extra_state
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine

  subroutine delete(comm, comm_keyval, attribute_val, extra_state, ierror)
    type(MPI_Comm) :: comm
    integer :: comm_keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: attribute_val, extra_state
    if (comm == MPI_COMM_NULL .or. comm_keyval == MPI_KEYVAL_INVALID .or. extra_state /= 1000) error stop "delete"
    deleted = deleted + int(attribute_val)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine keep_larger(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: left(:), right(:)
    if (datatype /= MPI_INTEGER) error stop "the operator's datatype"
    call c_f_pointer(invec, left, [len])
    call c_f_pointer(inoutvec, right, [len])
    right = max(left, right)
  end subroutine

  subroutine handler(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code
    if (comm /= MPI_COMM_SELF) error stop "the handler's comm"
    handled = handled + 1
    handled_code = error_code
  end subroutine

  subroutine query(extra_state, status, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
    call MPI_Status_set_elements(status, MPI_INTEGER, int(extra_state))
    call MPI_Status_set_cancelled(status, .false.)
    status%MPI_SOURCE = 3
    queried = queried + 1
    ierror = MPI_SUCCESS
  end subroutine

  subroutine release(extra_state, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    freed = freed + int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine cancel(extra_state, complete, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    if (complete .or. extra_state /= 7) error stop "cancel"
    cancelled = cancelled + 1
    ierror = MPI_SUCCESS
  end subroutine
end module

program callbacks
  use procedures
  implicit none
  integer, target :: object
  integer :: rank, ranks, keyval, code, total, class, f_status(MPI_STATUS_SIZE)
  integer(kind=MPI_ADDRESS_KIND) :: value
  logical :: flag
  type(MPI_Comm) :: comm
  type(MPI_Op) :: op
  type(MPI_Errhandler) :: errhandler
  type(MPI_Request) :: request
  type(MPI_Status) :: status, other
  type(MPI_Datatype) :: datatype

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)

  ! Attributes: predefined, Fortran's read by C, C's read by Fortran, copied, deleted.
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag)
  if (.not. flag .or. value < 32767) error stop "MPI_TAG_UB"
  call MPI_Comm_create_keyval(copy, delete, keyval, 1000_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_SELF, keyval, -5_MPI_ADDRESS_KIND)
  call check(c_uses_attribute(MPI_COMM_SELF%MPI_VAL, keyval, -5_c_int64_t))
  call MPI_Comm_dup(MPI_COMM_SELF, comm)
  call MPI_Comm_get_attr(comm, keyval, value, flag)
  if (.not. flag .or. value /= 995) error stop "a copied attribute"
  call MPI_Comm_free(comm)
  if (deleted /= 995) error stop "a deleted attribute"
  call MPI_Comm_delete_attr(MPI_COMM_SELF, keyval)
  call MPI_Comm_free_keyval(keyval)
  if (deleted /= 990 .or. keyval /= MPI_KEYVAL_INVALID) error stop "delete"
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, 0_MPI_ADDRESS_KIND)
  call check(c_sets_attribute(MPI_COMM_SELF%MPI_VAL, keyval, c_loc(object)))
  call MPI_Comm_dup(MPI_COMM_SELF, comm)
  call MPI_Comm_get_attr(comm, keyval, value, flag)
  if (.not. flag .or. value /= transfer(c_loc(object), value)) error stop "C's attribute"
  call MPI_Comm_free(comm)
  call MPI_Comm_delete_attr(MPI_COMM_SELF, keyval)
  call MPI_Comm_free_keyval(keyval)
  call check(c_makes_keyval(keyval))
  call MPI_Comm_set_attr(MPI_COMM_SELF, keyval, 41_MPI_ADDRESS_KIND)
  call MPI_Comm_dup(MPI_COMM_SELF, comm)
  call MPI_Comm_get_attr(comm, keyval, value, flag)
  if (.not. flag .or. value /= 41) error stop "an attribute with C's key"
  call MPI_Comm_free(comm)
  call MPI_Comm_delete_attr(MPI_COMM_SELF, keyval)

  ! Operators: Fortran's used by both, C's used by Fortran.
  call MPI_Op_create(keep_larger, .true., op)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, op, MPI_COMM_WORLD)
  if (total /= ranks - 1) error stop "Fortran's operator"
  call MPI_Iallreduce(-rank, total, 1, MPI_INTEGER, op, MPI_COMM_WORLD, request)
  call check(c_reduces(op%MPI_VAL, MPI_COMM_WORLD%MPI_VAL))
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (total /= 0) error stop "Fortran's operator, nonblocking"
  call MPI_Op_free(op)
  call check(c_makes_op(op%MPI_VAL))
  call MPI_Allreduce(rank + 1, total, 1, MPI_INTEGER, op, MPI_COMM_WORLD)
  if (total /= ranks * (ranks + 1) / 2) error stop "C's operator"
  call MPI_Op_free(op)

  ! Error handlers.
  call MPI_Comm_create_errhandler(handler, errhandler)
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, errhandler)
  call MPI_Send(rank, -1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, code)
  call MPI_Error_class(code, class)
  if (handled /= 1 .or. handled_code /= code .or. class /= MPI_ERR_COUNT) error stop "the handler"
  call check(c_fails(MPI_COMM_SELF%MPI_VAL))
  if (handled /= 2) error stop "the handler, called from C"
  call MPI_Errhandler_free(errhandler)

  ! Generalized requests, and a status in each form.
  call MPI_Grequest_start(query, release, cancel, 7_MPI_ADDRESS_KIND, request)
  call MPI_Cancel(request)
  call MPI_Grequest_complete(request)
  call MPI_Wait(request, status)
  call MPI_Get_elements(status, MPI_INTEGER, total)
  if (queried /= 1 .or. freed /= 7 .or. cancelled /= 1 .or. total /= 7) error stop "a generalized request"
  call MPI_Status_f082f(status, f_status)
  if (f_status(MPI_SOURCE) /= 3) error stop "a status of INTEGERs"
  call MPI_Status_f2f08(f_status, other)
  call MPI_Get_elements(other, MPI_INTEGER, total)
  if (total /= 7) error stop "a status of TYPE(MPI_Status)"
  call MPI_Grequest_start(query, release, cancel, 9_MPI_ADDRESS_KIND, request)
  call MPI_Grequest_complete(request)
  call check(c_waits(request%MPI_VAL, 9))

  ! Datatypes.
  call MPI_Type_vector(3, 1, 2, MPI_DOUBLE_PRECISION, datatype)
  call MPI_Type_commit(datatype)
  call check(c_uses_type(datatype%MPI_VAL, 24, MPI_COMM_WORLD%MPI_VAL))
  call MPI_Type_free(datatype)
  if (rank == 0) print '(a)', "ok"
  call MPI_Finalize()
contains
  subroutine check(line)
    integer(c_int), intent(in) :: line
    if (line == 0) return
    print *, "callbacks_c.c, line", line
    error stop "the part in C"
  end subroutine
end program
