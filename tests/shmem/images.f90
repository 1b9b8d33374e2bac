! SPDX-License-Identifier: BSD-3-Clause
! Coarrays: a ring of puts and gets, reductions, a broadcast, events, locks and atomics, each against its definition.
program images
    use, intrinsic :: iso_fortran_env
    implicit none
    integer :: mine[*], me, n, next, total, before, i
    integer(atomic_int_kind) :: counter[*]
    type(event_type) :: arrived[*]
    type(lock_type) :: guard[*]
    real(real64) :: field(100)[*], sum_of
    integer :: guarded[*]
    me = this_image(); n = num_images(); next = merge(1, me + 1, me == n); before = merge(n, me - 1, me == 1)
    mine = 10 * me; counter = 0; guarded = 0
    field = [(real(1000 * me + i, real64), i = 1, 100)]
    sync all
    mine[next] = 100 * me
    sync all
    if (mine /= 100 * before) error stop 1
    if (any(field(:)[next] /= [(real(1000 * next + i, real64), i = 1, 100)])) error stop 2
    if (any(field(1:99:7)[next] /= [(real(1000 * next + i, real64), i = 1, 99, 7)])) error stop 3
    total = me
    call co_sum(total)
    if (total /= n * (n + 1) / 2) error stop 4
    sum_of = real(me, real64)
    call co_max(sum_of)
    if (sum_of /= n) error stop 5
    total = merge(42, 0, me == 1)
    call co_broadcast(total, 1)
    if (total /= 42) error stop 6
    do i = 1, 100
        call atomic_add(counter[1], 1)
    end do
    do i = 1, 20
        lock(guard[1])
        guarded[1] = guarded[1] + 1
        unlock(guard[1])
    end do
    event post(arrived[next])
    event wait(arrived)
    sync all
    call atomic_ref(i, counter[1])
    if (i /= 100 * n) error stop 7
    if (guarded[1] /= 20 * n) error stop 8
    sync images(*)
    if (me == 1) print *, 'coarrays: equal on', n, 'images'
end program
