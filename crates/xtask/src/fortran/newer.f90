      INTERFACE MPI_Sizeof
        SUBROUTINE MPI_Sizeof_f08ts(x, size, ierror) BIND(C,NAME="MPI_Sizeof_f08ts")
          IMPORT
          IMPLICIT NONE
          TYPE(*), DIMENSION(..) :: x
          INTEGER(C_INT), INTENT(OUT) :: size
          INTEGER(C_INT), OPTIONAL, INTENT(OUT) :: ierror
        END SUBROUTINE
      END INTERFACE
      INTERFACE MPI_F_sync_reg
        SUBROUTINE MPI_F_sync_reg_f08ts(buf) BIND(C,NAME="MPI_F_sync_reg_f08ts")
          IMPORT
          IMPLICIT NONE
          TYPE(*), DIMENSION(..), ASYNCHRONOUS :: buf
        END SUBROUTINE
      END INTERFACE
