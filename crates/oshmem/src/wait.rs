// SPDX-License-Identifier: BSD-3-Clause
//! Functions that test objects of this PE, or wait until other PEs have changed them.

use crate::fault::{fail, mpi};
use crate::memory::{load, store};
use crate::process::get;
use crate::seen::Call;
use crate::{bell, numbers as n, order};
use std::ffi::{c_int, c_long};
use std::time::{Duration, Instant};

/// How often a wait looks at its object before it makes rounds of MPI's progress.
const SPINS: u32 = 64;
/// How long a wait looks at its object without pauses before it sleeps between looks.
const AWAKE: Duration = Duration::from_millis(2);
/// The longest that a round of MPI's progress takes if no other program ran on the core meanwhile. After a
/// longer round the wait sleeps at once.
const CROWDED: Duration = Duration::from_micros(100);
/// The longest sleep of a wait if all PEs are on this host, where a change rings the bell.
const NAP: Duration = Duration::from_millis(1);
/// The longest sleep of a wait if some PEs are on other hosts, since a change by such a PE rings no bell.
const NAP_BETWEEN_HOSTS: Duration = Duration::from_micros(50);

/// Waits until `is_so` returns true. Meanwhile MPI_Iprobe answers other hosts' requests, and yields a core
/// that is shared. The statistics count the wait as a call of the kind `what`.
pub fn while_not(what: Call, mut is_so: impl FnMut() -> bool) {
    for _ in 0..SPINS {
        if is_so() {
            return order::acquire();
        }
        std::hint::spin_loop();
    }
    let process = get();
    let nap = if process.progress.is_some() { NAP_BETWEEN_HOSTS } else { NAP };
    let mut wait = process.seen.wait(what);
    while !is_so() {
        let looked = Instant::now();
        progress();
        if looked.elapsed() > CROWDED || looked.duration_since(wait.from) > AWAKE {
            wait.show();
            bell::sleep(process, nap, &mut is_so);
        }
    }
    order::acquire();
}

/// Makes one round of MPI's progress.
fn progress() {
    let mut flag = 0;
    mpi!(MPI_Iprobe(n::ANY_SOURCE, n::ANY_TAG, get().comm, &raw mut flag, std::ptr::null_mut()));
}

fn compare<T: PartialOrd>(value: T, cmp: c_int, other: T) -> bool {
    match cmp {
        0 => value == other,
        1 => value != other,
        2 => value > other,
        3 => value <= other,
        4 => value < other,
        5 => value >= other,
        _ => fail(&format!("cmp is {cmp}, which is none of SHMEM_CMP_EQ, NE, GT, LE, LT, GE")),
    }
}

/// Waits until the object at `ivar` compares with `value` as `cmp` says. Returns the object's value that
/// ended the wait.
pub fn first<T: Copy + PartialOrd>(ivar: usize, cmp: c_int, value: T) -> T {
    let mut found = load(ivar);
    while_not(Call::WaitUntil, || {
        found = load(ivar);
        compare(found, cmp, value)
    });
    found
}

pub fn until<T: Copy + PartialOrd>(ivar: usize, cmp: c_int, value: T) {
    first(ivar, cmp, value);
}

pub fn differs<T: Copy + PartialOrd>(ivar: usize, value: T) {
    first(ivar, 1, value);
}

pub fn long_differs(ivar: usize, value: c_long) {
    differs(ivar, value);
}

pub fn test<T: Copy + PartialOrd>(ivar: usize, cmp: c_int, value: T) -> c_int {
    let is_so = compare(load(ivar), cmp, value);
    if is_so {
        order::acquire()
    } else {
        progress()
    }
    c_int::from(is_so)
}

/// A set of objects to wait for or test: `count` objects at `ivars`, each to be compared with a value as
/// `cmp` says. An object whose status is not 0 does not count.
#[derive(Clone, Copy)]
struct Set {
    ivars: usize,
    count: usize,
    status: usize,
    cmp: c_int,
}

fn nth<T: Copy>(array: usize, index: usize) -> T {
    load(array + index * size_of::<T>())
}

impl Set {
    /// Returns the indices of the objects that count, according to the array at `status`.
    fn chosen(self) -> impl Iterator<Item = usize> {
        (0..self.count).filter(move |&index| self.status == 0 || nth::<c_int>(self.status, index) == 0)
    }

    /// Returns the indices of the objects that count and for which the comparison with `value(index)` holds.
    fn met<T: Copy + PartialOrd>(self, value: impl Fn(usize) -> T) -> impl Iterator<Item = usize> {
        self.chosen().filter(move |&index| compare(nth(self.ivars, index), self.cmp, value(index)))
    }

    fn test_all<T: Copy + PartialOrd>(self, value: impl Fn(usize) -> T) -> c_int {
        let is_so = self.chosen().all(|index| compare(nth(self.ivars, index), self.cmp, value(index)));
        self.done(is_so);
        c_int::from(is_so)
    }

    /// Returns the lowest index for which the object counts and its comparison with `value(index)` holds.
    /// Returns SIZE_MAX if there is none.
    fn test_any<T: Copy + PartialOrd>(self, value: impl Fn(usize) -> T) -> usize {
        let found = self.met(value).next();
        self.done(found.is_some());
        found.unwrap_or(usize::MAX)
    }

    /// Stores at `indices` the indices that `met` returns, in ascending order. Returns how many these are.
    fn list<T: Copy + PartialOrd>(self, indices: usize, value: impl Fn(usize) -> T) -> usize {
        let mut found = 0;
        for index in self.met(value) {
            store(indices + found * size_of::<usize>(), index);
            found += 1;
        }
        found
    }

    fn test_some<T: Copy + PartialOrd>(self, indices: usize, value: impl Fn(usize) -> T) -> usize {
        let found = self.list(indices, value);
        self.done(found > 0);
        found
    }

    fn done(self, is_so: bool) {
        if is_so { order::acquire() } else { progress() }
    }

    fn until_all<T: Copy + PartialOrd>(self, value: impl Fn(usize) -> T) {
        for index in self.chosen() {
            until(self.ivars + index * size_of::<T>(), self.cmp, value(index));
        }
    }

    fn until_any<T: Copy + PartialOrd>(self, value: impl Fn(usize) -> T) -> usize {
        let mut found = None;
        if self.chosen().next().is_some() {
            while_not(Call::WaitUntil, || {
                found = self.met(&value).next();
                found.is_some()
            });
        }
        found.unwrap_or(usize::MAX)
    }

    fn until_some<T: Copy + PartialOrd>(self, indices: usize, value: impl Fn(usize) -> T) -> usize {
        let mut found = 0;
        if self.chosen().next().is_some() {
            while_not(Call::WaitUntil, || {
                found = self.list(indices, &value);
                found > 0
            });
        }
        found
    }
}

/// Defines two functions on sets of objects for each kind of wait or test. In one, all objects have the same
/// value to compare with; in the other, each object has its own.
macro_rules! families {
    ($($name:ident $vector:ident $does:ident ($($indices:ident)?) -> $returns:ty;)*) => { $(
        pub fn $name<T: Copy + PartialOrd>(
            ivars: usize, count: usize, $($indices: usize,)? status: usize, cmp: c_int, value: T,
        ) -> $returns {
            Set { ivars, count, status, cmp }.$does($($indices,)? |_| value)
        }

        pub fn $vector<T: Copy + PartialOrd>(
            ivars: usize, count: usize, $($indices: usize,)? status: usize, cmp: c_int, values: usize,
        ) -> $returns {
            Set { ivars, count, status, cmp }.$does($($indices,)? |index| nth::<T>(values, index))
        }
    )* };
}

families! {
    until_all until_all_vector until_all() -> ();
    until_any until_any_vector until_any() -> usize;
    until_some until_some_vector until_some(indices) -> usize;
    test_all test_all_vector test_all() -> c_int;
    test_any test_any_vector test_any() -> usize;
    test_some test_some_vector test_some(indices) -> usize;
}
