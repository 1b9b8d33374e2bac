! SPDX-License-Identifier: BSD-3-Clause
C     The same by mpif.h, in fixed form.
      program older
      implicit none
      include 'mpif.h'
      integer rank, ranks, code, total, status(MPI_STATUS_SIZE), box
      logical flag
      external operate
      integer op
      call MPI_INIT(code)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, code)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, code)
      call MPI_OP_CREATE(operate, .true., op, code)
      call MPI_ALLREDUCE(rank, total, 1, MPI_INTEGER, op,
     &     MPI_COMM_WORLD, code)
      if (total .ne. ranks * (ranks - 1) / 2) stop 2
      call MPI_OP_FREE(op, code)
      if (op .ne. MPI_OP_NULL) stop 3
      total = rank
      call MPI_ALLREDUCE(MPI_IN_PLACE, total, 1, MPI_INTEGER,
     &     MPI_SUM, MPI_COMM_WORLD, code)
      if (total .ne. ranks * (ranks - 1) / 2) stop 4
      call MPI_SENDRECV(rank, 1, MPI_INTEGER, rank, 9, box, 1,
     &     MPI_INTEGER, rank, 9, MPI_COMM_WORLD, status, code)
      if (box .ne. rank .or. status(MPI_SOURCE) .ne. rank) stop 5
      if (status(MPI_TAG) .ne. 9) stop 6
      call MPI_IPROBE(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
     &     flag, MPI_STATUS_IGNORE, code)
      if (flag) stop 7
      if (MPI_WTIME() .lt. 0) stop 8
      if (rank .eq. 0) print '(a)', 'ok'
      call MPI_FINALIZE(code)
      end

      subroutine operate(left, right, length, datatype)
      implicit none
      include 'mpif.h'
      integer length, left(length), right(length), datatype, i
      if (datatype .ne. MPI_INTEGER) stop 9
      do i = 1, length
        right(i) = right(i) + left(i)
      end do
      end
