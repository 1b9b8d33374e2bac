// SPDX-License-Identifier: BSD-3-Clause
//! A rank's life in its job: it joins, leaves or aborts the job.

use std::ops::Range;
use std::sync::atomic::Ordering;

use error::{Class, Result, fail};
use settings::agree::{LAUNCHER, RANKS, difference, text_of_settings};
use settings::{Cma, Offload, Settings};
use transport::shm::{EndCause, LocalRank, Segment, State, World, cma};
use tuning::Tuning;

use crate::claim::{self, Claim};
use crate::crash;
use crate::site::Site;

/// What a rank knows after it has joined its job.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// The job's segment on this host, mapped until the process ends.
    pub segment: &'static Segment,
    /// This rank's process number in the segment. Its rank in MPI_COMM_WORLD is this number minus `first`.
    pub rank: LocalRank,
    /// The process number of rank 0 of this rank's MPI_COMM_WORLD. It is 0 except in a spawned world.
    pub first: u32,
    /// How many ranks MPI_COMM_WORLD has.
    pub size: u32,
    /// The tuning of this process: the values of the job's table, except where a setting overrides a value.
    pub tuning: &'static Tuning,
    /// Whether this process was started without any launcher, and is a job of one rank.
    pub alone: bool,
    /// The connection to a launcher other than `mpirun`. None if `mpirun` or no launcher has started the
    /// process.
    site: Option<&'static Site>,
}

/// Joins the job: finds out which rank this process is, and publishes its state in the rank's page. Waits for
/// no other process. A second call in a process that `mpirun` started fails, because the rank is taken.
pub fn join() -> Result<Membership> {
    let settings = settings::load()?;
    claim::simulate(settings);
    let membership = match claim::rank(settings)? {
        Claim::Rank(segment, rank) => {
            let first = segment.rank(rank).first.load(Ordering::Relaxed);
            let size = segment.world(first).size.load(Ordering::Relaxed);
            let tuning = crate::tuning::of_process(segment, settings);
            Membership { segment, rank, first, size, tuning, alone: false, site: None }
        }
        Claim::Alone => {
            // A program that one of our ranks starts has our variables.
            let site = if settings.job_fd.is_none() { Site::find(settings)? } else { None };
            if site.is_none_or(|site| site.rank.peer() == 0) {
                settings::unknown().iter().for_each(|sentence| eprintln!("outboard: {sentence}"));
            }
            match site {
                Some(site) => of_site(site, settings),
                None => alone(settings)?,
            }
        }
    };
    membership.agree()?;
    membership.publish(settings);
    if settings.offload == Offload::On
        && membership.rank.peer() == membership.first
        && !membership.has_proxies()
    {
        eprintln!(
            "outboard: OUTBOARD_OFFLOAD=on, but this job has no proxy to carry anything out: start one with mpirun --proxies 1, or OUTBOARD_PROXIES=1"
        );
    }
    Ok(membership)
}

fn of_site(site: &'static Site, settings: &Settings) -> Membership {
    let segment = site.segment;
    let size = segment.world(0).size.load(Ordering::Relaxed);
    let tuning = crate::tuning::of_process(segment, settings);
    Membership { segment, rank: site.rank, first: 0, size, tuning, alone: false, site: Some(site) }
}

fn alone(settings: &Settings) -> Result<Membership> {
    let shape = crate::shape(settings, 1, settings.spawn_ranks_max as u32, 0);
    let (segment, _) = crate::create(shape, &text_of_settings(LAUNCHER))?;
    let segment = claim::keep(segment);
    segment.world(0).size.store(1, Ordering::Relaxed);
    segment.job().spin_allowed.store(1, Ordering::Relaxed);
    segment.job().cma_forbidden.store(u32::from(settings.cma == Cma::Off), Ordering::Relaxed);
    let rank = segment.require(0)?;
    segment.rank(rank).pid.store(sys::process::id(), Ordering::Release);
    let tuning = crate::tuning::of_process(segment, settings);
    Ok(Membership { segment, rank, first: 0, size: 1, tuning, alone: true, site: None })
}

impl Membership {
    /// Whether the calling process is the rank itself. False in a child that the rank has forked.
    pub fn is_here(&self) -> bool {
        self.segment.rank(self.rank).pid.load(Ordering::Relaxed) == sys::process::id()
    }

    /// Returns the record in the segment about this rank's MPI_COMM_WORLD.
    pub fn world(&self) -> &'static World {
        self.segment.world(self.first)
    }

    /// Returns the process numbers of all ranks of MPI_COMM_WORLD, on all hosts.
    pub fn members(&self) -> Range<u32> {
        self.first..self.first + self.size
    }

    /// Fails if a setting on which all ranks must agree has another value here than in the first rank, or if
    /// a setting that only `mpirun` reads has another value here than in `mpirun`.
    fn agree(&self) -> Result<()> {
        let (job, ours) = (self.segment.job(), text_of_settings(RANKS));
        let own = self.segment.name(self.rank.peer());
        let world = self.world();
        let first_different = job.agreed.publish_first(self.rank.peer(), &ours, || world.aborted().is_some());
        if let Some((first, theirs)) = first_different
            && let Some(found) = difference(&theirs, &ours, RANKS)
        {
            fail!(
                Class::Other,
                "{} is {} at {own} and {} at {}, but must be the same at all ranks: set it for all of them, as `mpirun -genv` does",
                found.setting.variable,
                found.ours,
                found.theirs,
                self.segment.name(first)
            );
        }
        if let Some(found) = difference(&job.launched.text(), &text_of_settings(LAUNCHER), LAUNCHER) {
            fail!(
                Class::Other,
                "{} is {} at {own} and {} at mpirun, where it is read: set it before mpirun starts, or by `mpirun -genv`",
                found.setting.variable,
                found.ours,
                found.theirs
            );
        }
        Ok(())
    }

    fn has_proxies(&self) -> bool {
        self.segment.shape().proxies > 0
    }

    fn publish(&self, settings: &Settings) {
        let page = self.segment.rank(self.rank);
        let cpus = sys::cpu::allowed().unwrap_or_default();
        page.cpus.store(cpus.len() as u32, Ordering::Relaxed);
        page.cpu.store(cpus.first().map_or(0, |cpu| *cpu as u32), Ordering::Relaxed);
        telemetry::attach(&page.counters);
        telemetry::sum_up_in(&page.operations);
        if self.segment.members(self.first).next() == Some(self.rank) {
            self.world().statistics.store(u32::from(settings.stats), Ordering::Relaxed);
        }
        crash::watch(settings.crash, &self.segment.name(self.rank.peer()));
        claim::time(settings, telemetry::ProcessName::Rank(self.rank.peer()), self.alone);
        cma::publish(self.segment, self.rank);
        page.set_state(State::Running);
        // The process that spawned this one waits for that.
        self.nudge_launcher(self.first != 0);
    }

    /// Makes the hosts of the job learn each other's endpoints if the launcher is not `mpirun`, which does
    /// that itself. The first MPI_Init or MPI_Session_init calls it, once the process has its endpoint. Waits
    /// for no other process.
    pub fn wire_up(&self) -> Result<()> {
        self.site.map_or(Ok(()), Site::wire_up)
    }

    /// Counts this rank as arrived at MPI_Init, which all ranks of its world call. The last one wakes the
    /// others on this host.
    pub fn arrive_at_init(&self) {
        self.world().born.arrive();
        self.nudge_launcher(false);
        if self.all_have_arrived() {
            self.segment.members(self.first).for_each(|rank| self.segment.rank(rank).bell.ring());
        }
    }

    /// Makes `mpirun`, or its agent on this host, look at once for changes in the segment, and report them to
    /// the other hosts. In a job on one host it does this only if `always` is set.
    pub fn nudge_launcher(&self, always: bool) {
        let launcher = self.segment.job().launcher.load(Ordering::Relaxed);
        if launcher != 0 && (always || self.segment.has_nodes()) {
            // A launcher looks a few times a second anyway.
            let _ = sys::process::nudge(launcher);
        }
    }

    /// Whether all ranks of this rank's world have arrived at MPI_Init.
    pub fn all_have_arrived(&self) -> bool {
        self.world().born.count() >= self.size
    }

    /// Sleeps until all ranks of this rank's world have arrived at MPI_Init. Fails if the job ends before.
    pub fn wait_for_all(&self) -> Result<()> {
        let world = self.world();
        if !world.born.wait(self.size, || world.aborted().is_some()) {
            let (rank, code) = world.aborted().unwrap_or((0, 1));
            let name = self.segment.name(rank);
            fail!(Class::ProcAborted, "{name} ended the job with code {code} before all ranks had started");
        }
        Ok(())
    }

    /// Counts this rank as arrived at MPI_Finalize. The rank's own operations must be over before. The caller
    /// then makes progress for other ranks until [`Membership::may_leave`] returns true, and calls
    /// [`Membership::leave`].
    pub fn arrive_at_finalize(&self) {
        self.world().leaving.arrive();
        self.nudge_launcher(false);
        if let Some(site) = self.site
            && let Err(error) = site.arrive()
        {
            eprintln!("outboard: {}: {}", self.segment.name(self.rank.peer()), error.message);
            self.fail(1);
        }
        // Processes of other worlds may wait for this one in their MPI_Finalize.
        for first in self.segment.connected(self.first).into_iter().filter(|first| *first != self.first) {
            self.segment.members(first).for_each(|rank| self.segment.rank(rank).bell.ring());
        }
    }

    /// Whether all connected processes have arrived at MPI_Finalize (MPI 5.0, section 11.2.2), so that no
    /// process needs this rank's memory any more. Also true if the job is being ended, because then no more
    /// processes arrive.
    pub fn may_leave(&self) -> bool {
        let arrived = |first: u32| self.segment.world(first).has_arrived();
        arrived(self.first) && self.segment.connected(self.first).into_iter().all(arrived)
            || self.world().aborted().is_some()
    }

    /// Leaves the job. First sleeps until all ranks of the world have arrived at MPI_Finalize. Then prints
    /// the counters if OUTBOARD_STATS is set (rank 0 only), writes the trace, and marks the rank as
    /// finalized. After that the process may exit.
    pub fn leave(&self) {
        let world = self.world();
        // A process that has only sessions need not wait for a rank that has not called MPI, and perhaps
        // never will. Under another launcher all ranks have called it, and the fence comes before this rank's
        // farewell.
        let is_here =
            |rank: &LocalRank| matches!(self.segment.rank(*rank).state(), State::Running | State::Finalized);
        let joined = || self.segment.members(self.first).filter(is_here).count();
        let have_come = || self.site.is_none() && world.leaving.count() as usize >= joined();
        let gone = || world.aborted().is_some() || have_come();
        world.leaving.wait(self.size, gone);
        // The statistics of several hosts are printed by `mpirun`, once all are there.
        if self.rank.peer() == self.first && (self.site.is_some() || !self.segment.has_nodes()) {
            print_statistics(self.segment, self.first);
        }
        self.write_trace();
        self.segment.rank(self.rank).set_state(State::Finalized);
        self.site.into_iter().for_each(Site::leave);
    }

    fn write_trace(&self) {
        if let Err(error) = telemetry::write_trace() {
            eprintln!("outboard: rank {}: cannot write the trace: {error}", self.rank);
        }
    }

    /// Prints the counters and writes the trace of a program without any launcher.
    fn finish_alone(&self) {
        if self.alone {
            print_statistics(self.segment, self.first);
            self.write_trace();
        }
    }

    /// Ends the whole job (MPI 5.0, section 9.9, MPI_Abort): publishes `code`, wakes all processes, and
    /// exits. `mpirun` prints a line and ends the other ranks. Under another launcher this function prints
    /// the line and asks the launcher to end them.
    pub fn abort(&self, code: i32) -> ! {
        let pid = sys::process::id();
        if self.alone {
            eprintln!("outboard: process {pid} called MPI_Abort with code {code}");
        } else if let Some(site) = self.site {
            let (name, host) = (self.segment.name(self.rank.peer()), sys::host::name());
            eprintln!(
                "outboard: {name} (pid {pid} on {host}) called MPI_Abort with code {code}; ending the job"
            );
            // This comes before others here learn of it: the launcher takes the code of the process that ends
            // first.
            site.abort(code);
        }
        self.end(code, EndCause::Abort)
    }

    /// Ends the whole job because of an error, which the caller has already printed.
    pub fn fail(&self, code: i32) -> ! {
        self.site.into_iter().for_each(|site| site.abort(code));
        self.end(code, EndCause::Error)
    }

    /// Ends the whole job with an exit code, which may mean success: OpenSHMEM's shmem_global_exit.
    pub fn exit(&self, code: i32) -> ! {
        // This comes before the launcher learns of it and ends this process, too.
        flush();
        self.site.into_iter().for_each(|site| site.abort(code & 0xff));
        self.end(code, EndCause::Exit)
    }

    fn end(&self, code: i32, cause: EndCause) -> ! {
        self.segment.end(self.rank, code, cause);
        self.finish_alone();
        exit(self.world().exit_code().unwrap_or(1))
    }
}

/// Prints the counters of the world whose first process number is `first`, if OUTBOARD_STATS is set. A second
/// call prints nothing.
pub fn print_statistics(segment: &Segment, first: u32) {
    if segment.world(first).statistics.swap(0, Ordering::Relaxed) != 0 {
        // The table is printed in one piece, since others may be printing.
        eprint!("{}", statistics(segment, first));
    }
}

/// Returns a table of the counters of a world's ranks and of the proxies, and a sentence for each function
/// and comm.
fn statistics(segment: &Segment, first: u32) -> String {
    let members = || segment.members(first).map(|rank| segment.rank(rank));
    let ranks: Vec<_> = members().map(|page| &*page.counters).collect();
    let operations: Vec<_> = members().map(|page| &*page.operations).collect();
    let proxies: Vec<_> = (0..segment.shape().proxies).map(|proxy| &*segment.proxy(proxy).counters).collect();
    telemetry::summary::all(age(segment), &ranks, &operations, &proxies)
}

/// Returns for how many ns a job has run.
pub fn age(segment: &Segment) -> u64 {
    sys::clock::now().saturating_sub(segment.job().start.load(Ordering::Relaxed))
}

/// Writes what the program has in its output buffers (C streams).
fn flush() {
    // SAFETY: a null stream means all streams; none is a Rust object.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Writes what the program has in its output buffers, and exits. Exit handlers do not run, because they could
/// wait for other ranks.
fn exit(code: u8) -> ! {
    flush();
    // SAFETY: ends the process; nothing runs after it.
    unsafe { libc::_exit(code.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::Counter;

    // The environment of the tests has no mpirun, so every join makes a job of one.
    #[test]
    fn a_program_by_itself_is_a_job_of_one() {
        let job = join().unwrap();
        assert_eq!((job.rank.peer(), job.size, job.alone), (0, 1, true));
        let page = job.segment.rank(job.rank);
        assert_eq!(page.state(), State::Running);
        assert_eq!(page.pid.load(Ordering::Relaxed), sys::process::id());
        assert!(cma::reaches(job.segment, job.rank));
        telemetry::count(Counter::BarrierCalls, 1);
        assert!(statistics(job.segment, 0).contains("barrier_calls"));
        assert!(!job.may_leave());
        job.arrive_at_finalize();
        assert!(job.may_leave());
        job.leave();
        assert_eq!(page.state(), State::Finalized);
    }
}
