// SPDX-License-Identifier: BSD-3-Clause
//! How a process learns which rank of which job it is.
//!
//! `mpirun` makes the job's segment, and its children inherit the descriptor and the numbers
//! `OUTBOARD_JOB_FD`, `OUTBOARD_RANK` and `OUTBOARD_LAUNCHER_PID`. Other programs may stand between `mpirun`
//! and the rank: a shell script, numactl, a debugger, a Python that closes descriptors. So a process is the
//! rank if it can open the segment and is the first to claim the rank's page. A program that a rank started
//! finds the page claimed, and is a job of its own. A rank that another launcher started finds the others by
//! that launcher's PMI. Without any launcher, a program is a job of one rank.
//!
//! Read next: `member.rs` (join, leave, abort), `claim.rs` (how the segment is found), `site.rs` (a job that
//! another launcher started), `build.rs` (all processes are of one build), `crash.rs` (the report of a
//! crashed rank).

mod build;
mod claim;
mod crash;
mod member;
mod proxies;
mod site;
mod tuning;

pub use build::{BUILD, attach, create, shape};
pub use claim::{ProxyMembership, join_proxy};
pub use member::{Membership, age, join, print_statistics};
pub use site::give_up_entering;
pub use tuning::{overruled, set_tuning};
