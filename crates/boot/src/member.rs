//! A rank's life in its job: joining, leaving, aborting.

use std::sync::atomic::Ordering;

use error::{Class, Result, fail};
use settings::{Cma, Settings};
use transport::shm::{Segment, Shape, State, cma};

use crate::claim::{self, Claim};

/// This process's place in its job.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// The job's memory, mapped until the process ends.
    pub segment: &'static Segment,
    /// This process's rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Ranks in MPI_COMM_WORLD.
    pub size: u32,
    /// Whether this is a job of one that no `mpirun` started.
    pub alone: bool,
}

/// Enters the job: finds the rank, publishes the process, and sleeps until all ranks have done so. Once per process; a
/// second call is an error where `mpirun` started this process, because its rank is taken.
pub fn join() -> Result<Membership> {
    let settings = settings::load()?;
    let membership = match claim::rank(settings)? {
        Claim::Rank(segment, rank) => Membership { segment, rank, size: segment.shape().ranks, alone: false },
        Claim::Alone => {
            // A descendant of one of our ranks has our variables too, beside those that `mpirun` sets for others' sake.
            if settings.job_fd.is_none()
                && let Some(other) = settings::foreign::launcher()
            {
                fail!(
                    Class::Other,
                    "this program was started by {} ({}), but Outboard's ranks must be started by Outboard's mpirun",
                    other.name,
                    other.evidence
                );
            }
            settings::unknown().iter().for_each(|sentence| eprintln!("outboard: {sentence}"));
            alone(settings)?
        }
    };
    membership.publish(settings);
    let job = membership.segment.job();
    job.born.arrive();
    if !job.born.wait(membership.size, || job.aborted().is_some()) {
        let (rank, code) = job.aborted().unwrap_or((0, 1));
        fail!(Class::ProcAborted, "rank {rank} ended the job with code {code} before all ranks had started");
    }
    Ok(membership)
}

fn alone(settings: &Settings) -> Result<Membership> {
    let sparse = Shape::sparse(1, 0);
    let shape = Shape { arena_bytes: settings.arena_bytes.unwrap_or(sparse.arena_bytes), ..sparse };
    let (segment, _) = Segment::create(shape)?;
    let segment = claim::keep(segment);
    segment.job().spin_allowed.store(1, Ordering::Relaxed);
    segment.job().cma_forbidden.store(u32::from(settings.cma == Cma::Off), Ordering::Relaxed);
    segment.rank(0).pid.store(sys::process::id(), Ordering::Release);
    Ok(Membership { segment, rank: 0, size: 1, alone: true })
}

impl Membership {
    fn publish(&self, settings: &Settings) {
        let page = self.segment.rank(self.rank);
        let cpus = sys::cpu::allowed().unwrap_or_default();
        page.cpus.store(cpus.len() as u32, Ordering::Relaxed);
        page.cpu.store(cpus.first().map_or(0, |cpu| *cpu as u32), Ordering::Relaxed);
        telemetry::attach(&page.counters);
        if let Some(file) = &settings.trace {
            let who = telemetry::event::Who::Rank(self.rank);
            let file = if self.alone { file.clone() } else { telemetry::event::part(file, who) };
            telemetry::event::trace(who, &file, settings.trace_events_max as usize);
        }
        cma::publish(self.segment, self.rank);
        page.set_state(State::Running);
    }

    /// Says that this rank has reached MPI_Finalize with all its operations done. Its caller keeps making progress for
    /// others until [`Membership::may_leave`], then calls [`Membership::leave`].
    pub fn arrive(&self) {
        self.segment.job().leaving.arrive();
    }

    /// Whether all ranks have arrived at MPI_Finalize, so that nobody needs this process's memory any more. True too when
    /// the job is being ended: nobody will arrive then.
    pub fn may_leave(&self) -> bool {
        self.segment.job().leaving.count() >= self.size || self.segment.job().aborted().is_some()
    }

    /// Ends membership after [`Membership::may_leave`] (waiting for it, asleep, if need be): rank 0 prints the counters if
    /// OUTBOARD_STATS is set, the trace is written, and the rank is marked as finalized. From then on the process may exit.
    pub fn leave(&self) {
        let job = self.segment.job();
        job.leaving.wait(self.size, || job.aborted().is_some());
        if self.rank == 0 && settings::get().stats {
            eprint!("{}", self.statistics());
        }
        if let Err(error) = telemetry::event::write() {
            eprintln!("outboard: rank {}: cannot write the trace: {error}", self.rank);
        }
        self.segment.rank(self.rank).set_state(State::Finalized);
    }

    /// The counters of all ranks and proxies as a table.
    pub fn statistics(&self) -> String {
        let shape = self.segment.shape();
        let ranks: Vec<_> = (0..shape.ranks).map(|rank| &*self.segment.rank(rank).counters).collect();
        let proxies: Vec<_> = (0..shape.proxies).map(|proxy| &*self.segment.proxy(proxy).counters).collect();
        telemetry::summary::table(&ranks, &proxies)
    }

    /// Ends the whole job (MPI 5.0, section 9.9, MPI_Abort): publishes the code, wakes everybody, and exits. `mpirun` prints
    /// the line and ends the other ranks; alone, this prints it.
    pub fn abort(&self, code: i32) -> ! {
        self.segment.abort(self.rank, code);
        if self.alone {
            eprintln!("outboard: process {} called MPI_Abort with code {code}", sys::process::id());
        }
        exit(code)
    }

    /// Ends the whole job because of an error, which the caller has printed.
    pub fn fail(&self, code: i32) -> ! {
        self.segment.fail(self.rank, code);
        exit(code)
    }
}

/// Exits without running the program's exit handlers, which could wait for other ranks, but with its output written.
fn exit(code: i32) -> ! {
    // SAFETY: a null stream means all streams; none is a Rust object.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // Only the low 8 bits reach the parent, and an abort must never look like success.
    let code = if code & 0xff == 0 { 1 } else { code & 0xff };
    // SAFETY: ends the process; nothing runs after it.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::Counter;

    // The environment of the tests has no mpirun, so every join makes a job of one.
    #[test]
    fn a_program_by_itself_is_a_job_of_one() {
        let job = join().unwrap();
        assert_eq!((job.rank, job.size, job.alone), (0, 1, true));
        let page = job.segment.rank(0);
        assert_eq!(page.state(), State::Running);
        assert_eq!(page.pid.load(Ordering::Relaxed), sys::process::id());
        assert!(cma::reaches(job.segment, 0));
        telemetry::count(Counter::BarrierCalls, 1);
        assert!(job.statistics().contains("barrier_calls"));
        assert!(!job.may_leave());
        job.arrive();
        assert!(job.may_leave());
        job.leave();
        assert_eq!(page.state(), State::Finalized);
    }
}
