// SPDX-License-Identifier: BSD-3-Clause
//! What a host reports of itself: links, CPU, memory, energy, Lustre, and the ranks of its jobs. The monitor
//! makes such reports of its own host. On other hosts `outboard monitor agent` makes them and sends them to
//! the monitor's collector.
//!
//! Each source of figures has a thread. If one source hangs (a dead adapter, a file system that does not
//! answer), the report names it and contains the others. Counters only grow, so the report after a lost one
//! still has the full sums.

mod energy;
mod links;
mod local;
mod lustre;
mod machine;
mod report;
mod send;
mod watch;

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

pub use report::{Figures, Report};
pub use send::{Agent, BEGIN, HOST, SIGNATURE, begin, host_key, print, signature};

use crate::time::now_ms;

/// The longest time for which a report waits until all its sources (links, energy, ...) have answered.
const WAIT: Duration = Duration::from_secs(5);

type SourceAnswer = Result<Figures, String>;

/// One source of figures, such as links or energy, and the thread that reads it.
struct SourceThread {
    name: &'static str,
    ask: SyncSender<()>,
    answers: Receiver<SourceAnswer>,
    /// When the thread was asked for figures that it has not sent yet. None if it has answered.
    silent: Option<Instant>,
}

impl SourceThread {
    fn start(name: &'static str, mut read: impl FnMut() -> SourceAnswer + Send + 'static) -> SourceThread {
        let (ask, asked) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        std::thread::spawn(move || {
            while asked.recv().is_ok() {
                if answer.send(read()).is_err() {
                    return;
                }
            }
        });
        SourceThread { name, ask, answers, silent: None }
    }

    /// Asks the thread for new figures, unless its answer to an earlier request is still due. That answer
    /// then serves for both requests.
    fn ask(&mut self) {
        if self.silent.is_none() {
            self.silent = Some(Instant::now());
            // The thread has taken the question before, so there is room for this one.
            let _ = self.ask.try_send(());
        }
    }

    fn answer(&mut self, end: Instant) -> SourceAnswer {
        let answer = self.answers.recv_timeout(end.saturating_duration_since(Instant::now()));
        match (answer, self.silent) {
            (Ok(answer), _) => {
                self.silent = None;
                answer
            }
            (Err(_), since) => {
                Err(format!("no answer for {} s", since.map_or(0, |since| since.elapsed().as_secs())))
            }
        }
    }
}

/// The sources of figures (such as links or energy) that this host reads for its reports.
pub struct Sources(Vec<SourceThread>);

impl Sources {
    /// Starts the threads of all sources except those that `skip` names. `skip` may also name links (`eth0`,
    /// `mlx5_0/1`).
    pub fn start(skip: &[String]) -> Sources {
        let root = Path::new("/");
        let links_skipped = skip.to_vec();
        let mut energy = energy::Energy::default();
        let mut watched = watch::Watched::default();
        let all = vec![
            SourceThread::start("machine", move || machine::read(root)),
            SourceThread::start("links", move || links::read(root, &links_skipped)),
            SourceThread::start("energy", move || energy.read(root)),
            SourceThread::start("gpu", machine::gpus),
            SourceThread::start("lustre", lustre::read),
            SourceThread::start("mpirun", || local::jobs().map(Figures::of_jobs)),
            SourceThread::start("watch", move || watched.jobs().map(Figures::of_jobs)),
        ];
        Sources(all.into_iter().filter(|source| !skip.iter().any(|name| name == source.name)).collect())
    }

    /// Makes a report of what this host is doing now. `interval_s` tells the collector in how many seconds to
    /// expect the next report.
    pub fn report(&mut self, host: &str, interval_s: u64) -> Report {
        let end = Instant::now() + WAIT.min(Duration::from_secs(interval_s));
        self.0.iter_mut().for_each(SourceThread::ask);
        let mut report = Report {
            host: host.into(),
            at: now_ms(),
            interval_s,
            part: Figures::default(),
            ..Report::default()
        };
        for source in &mut self.0 {
            match source.answer(end) {
                Ok(part) => report.part.add(part),
                Err(why) => {
                    report.errors.insert(source.name.into(), why);
                }
            }
        }
        report
    }
}

/// Returns this host's name, in the form in which the ranks of its jobs report it.
pub fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_hangs_is_named_and_asked_again_once_it_answers() {
        let (go, wait) = sync_channel::<()>(0);
        let gauge = |name: &str| {
            let mut part = Figures::default();
            part.gauges.insert(name.into(), 1.0);
            Ok(part)
        };
        let mut is_first = true;
        let slow = move || {
            if std::mem::take(&mut is_first) {
                wait.recv().unwrap();
            }
            gauge("slow")
        };
        let mut sources = Sources(vec![
            SourceThread::start("slow", slow),
            SourceThread::start("quick", move || gauge("quick")),
        ]);
        let report = sources.report("h", 1);
        assert!(report.errors["slow"].starts_with("no answer for "), "{:?}", report.errors);
        assert_eq!(report.part.gauges.keys().collect::<Vec<_>>(), ["quick"]);
        go.send(()).unwrap();
        assert!((0..60).any(|_| sources.report("h", 1).errors.is_empty()), "its late answer counts");
        assert!((0..60).any(|_| sources.report("h", 1).part.gauges.len() == 2), "and it is asked again");
    }
}
