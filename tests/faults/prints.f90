! Prints two lines, waits for a line of input (not by unit 5, before which unit 6 is flushed), and is killed.
! SPDX-License-Identifier: BSD-3-Clause
program prints
  character(10) :: line
  print '(a)', 'a line', 'a line before the end'
  open (7, file='/dev/stdin')
  read (7, '(a)') line
  call kill(getpid(), 9)
end program
