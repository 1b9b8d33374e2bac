! A wrong handle ends the program, and the sentence names call and handle.
! ranks: 1
! fails: MPI_Comm_size
! SPDX-License-Identifier: BSD-3-Clause
program fatal
  use mpi_f08
  implicit none
  integer :: ranks
  call MPI_Init()
  call MPI_Comm_size(MPI_Comm(77), ranks)
  call MPI_Finalize()
end program
