      INTERFACE
        SUBROUTINE MPI_ATTR_DELETE(comm, keyval, ierror)
          INTEGER :: comm, keyval, ierror
        END SUBROUTINE
        SUBROUTINE MPI_ATTR_GET(comm, keyval, attribute_val, flag, ierror)
          INTEGER :: comm, keyval, attribute_val, ierror
          LOGICAL :: flag
        END SUBROUTINE
        SUBROUTINE MPI_ATTR_PUT(comm, keyval, attribute_val, ierror)
          INTEGER :: comm, keyval, attribute_val, ierror
        END SUBROUTINE
        SUBROUTINE MPI_KEYVAL_CREATE(copy_fn, delete_fn, keyval, extra_state, ierror)
          EXTERNAL :: copy_fn, delete_fn
          INTEGER :: keyval, extra_state, ierror
        END SUBROUTINE
        SUBROUTINE MPI_KEYVAL_FREE(keyval, ierror)
          INTEGER :: keyval, ierror
        END SUBROUTINE
        SUBROUTINE MPI_F_SYNC_REG(buf)
          !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
          !DIR$ IGNORE_TKR buf
          TYPE(*), DIMENSION(*) :: buf
        END SUBROUTINE
      END INTERFACE
      INTERFACE MPI_SIZEOF
        SUBROUTINE MPI_Sizeof_fts(x, size, ierror) BIND(C,NAME="MPI_Sizeof_fts")
          USE, INTRINSIC :: ISO_C_BINDING, ONLY : C_INT
          IMPLICIT NONE
          TYPE(*), DIMENSION(..) :: x
          INTEGER(C_INT), INTENT(OUT) :: size, ierror
        END SUBROUTINE
      END INTERFACE
