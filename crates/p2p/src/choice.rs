// SPDX-License-Identifier: BSD-3-Clause
//! The choice for a long message on this host: the receiver reads it in the sender's memory, or it goes
//! through cells (parts of a ring).
//!
//! The receiver chooses, and answers the sender's offer accordingly, so both sides need not agree beforehand.
//! It chooses by the tuning table. Without a table, a rank's first long messages go both ways, in runs
//! (`tuning::MethodTrial`), and the result of the first rank is stored in the job's header
//! (`tuning::Probes`). What is timed is a *busy period*: from the first message that a receiver fetches until
//! it fetches none. So single messages are told from streams.
//!
//! Some eager messages in pieces are also read in the sender's memory, only to time the read (`pieces.rs`).
//! Where reading is faster, senders offer such messages from then on (`Chooser::eager_bytes_max`).

use crate::config::READ_PIECE_BYTES;
use std::cell::OnceCell;
use std::sync::atomic::Ordering;
use transport::route::Reach;
use transport::shm::{Segment, cma};
use tuning::{
    CLASSES, Distance, EAGER_BYTES_MAX, Fetched, Load, Method, MethodTrial, PATTERNS, Probes, SETTLING,
    Sizes, Tuning, ValueSource, class_of, read_row,
};

/// Chooses how this process fetches each long message: by reading the sender's memory, or through cells.
/// Times messages if no table says which is faster.
pub(crate) struct Chooser {
    tuning: Tuning,
    /// The job's segment (shared memory) on this host, which has what the ranks have measured; None in a
    /// simulated job.
    segment: Option<Segment>,
    rank: u32,
    /// Whether long messages may go both ways (by a read or through cells): each rank has a core of its own,
    /// and no setting forbids reads of another rank's memory.
    may_choose: bool,
    /// Whether messages are timed to find the faster way, because the tuning table does not say it.
    pub(crate) is_learning: bool,
    /// The cpus that share the L2 cache with this rank's cpu, then the cpus that share the L3 cache. It is
    /// filled at first use.
    near: OnceCell<[Vec<usize>; 2]>,
    /// The number of messages that this process is fetching now. When it becomes 0, the busy period ends.
    under_way: u32,
    /// The number of messages whose fetch has started in the current busy period.
    fetched: u32,
    /// Whether several messages were fetched in the previous busy period.
    was_many: bool,
    period: Option<BusyPeriod>,
    /// One trial of both ways for each distance, load and class of lengths; `trial` returns the trial for
    /// these three. Empty unless `is_learning`.
    trials: Vec<MethodTrial>,
}

/// A busy period that is being timed. It lasts from the first message that the process fetches until the
/// process fetches none.
struct BusyPeriod {
    at: (Distance, Load, usize),
    method: Method,
    started: u64,
    bytes: u64,
    /// The number of messages of this period that have been fetched completely.
    ended: u64,
    /// The time, in nanoseconds, at which message number `tuning::SETTLING` of this period was fetched;
    /// before that, the time at which the period started.
    settled: u64,
    /// Whether the period is of no use for a trial: its messages differ in distance or class of lengths, or
    /// some sender's memory cannot be read.
    mixed: bool,
}

impl Chooser {
    pub(crate) fn new(reach: &Reach, tuning: Tuning) -> Chooser {
        let is_forbidden = |segment: &Segment| segment.job().cma_forbidden.load(Ordering::Relaxed) != 0;
        let may_choose = !reach.prefers_read() && !reach.segment().is_some_and(is_forbidden);
        let is_learning = reach.segment().is_some() && may_choose && !tuning.knows_ways();
        Chooser {
            tuning,
            segment: reach.segment().cloned(),
            rank: reach.rank(),
            may_choose,
            is_learning,
            near: OnceCell::new(),
            under_way: 0,
            fetched: 0,
            was_many: false,
            period: None,
            trials: if is_learning { trials(&tuning) } else { Vec::new() },
        }
    }

    /// Returns how far the core of `peer` is from this rank's core: whether they share the L2 cache, the L3
    /// cache, or none.
    #[cold]
    pub(crate) fn distance(&self, peer: u32) -> Distance {
        let Some(segment) = &self.segment else { return Distance::Far };
        let (Some(own), Some(other)) = (segment.local(self.rank), segment.local(peer)) else {
            return Distance::Far;
        };
        let [own, other] = [own, other].map(|rank| segment.rank(rank));
        let cpu = |page: &transport::shm::RankPage| page.cpu.load(Ordering::Relaxed) as usize;
        // A rank that may move counts as far away as its farthest cpu.
        let may_move = [own, other].iter().any(|page| page.cpus.load(Ordering::Relaxed) > 2);
        let cpus = if may_move { sys::cpu::allowed().unwrap_or_default() } else { vec![cpu(other)] };
        let near = self
            .near
            .get_or_init(|| ["L2Cache", "L3Cache"].map(|kind| sys::topology::sharers(kind, cpu(own))));
        match [&near[0], &near[1]].map(|near| cpus.iter().all(|cpu| near.contains(cpu))) {
            [true, _] => Distance::L2,
            [false, true] => Distance::L3,
            [false, false] => Distance::Far,
        }
    }

    fn probes(&self) -> Option<Probes<'_>> {
        self.segment.as_ref().filter(|_| self.is_learning).map(|segment| Probes(&segment.job().probes))
    }

    /// Chooses how to fetch a message of `bytes` bytes from a peer at this distance, and counts the fetch as
    /// started; `end_fetch` counts its end. `sends` says whether this rank also sends now, `readable` whether
    /// the sender's memory may be read.
    pub(crate) fn start_fetch(
        &mut self,
        distance: Distance,
        sends: bool,
        bytes: u64,
        readable: bool,
    ) -> Method {
        self.under_way += 1;
        self.fetched += 1;
        let class = class_of(bytes);
        if let Some(period) = &mut self.period {
            period.mixed |= !readable || (period.at.0, period.at.2) != (distance, class);
            period.bytes += bytes;
            return if readable { period.method } else { Method::Cells };
        }
        if !readable {
            return Method::Cells;
        }
        let is_first = self.under_way == 1;
        let load = match sends {
            true => Load::Exchange,
            false if is_first && !self.was_many => Load::Alone,
            false => Load::Many,
        };
        let Some(probes) = self.probes() else { return self.by_table(distance, load, bytes) };
        let at = (distance, load, class);
        let chosen = probes.choice(at);
        // Senders follow the choice for messages that may be eager, and never measure again.
        let looks_again = bytes > self.tuning.get(EAGER_BYTES_MAX) && self.trial(at).looks_again();
        if !is_first || chosen.is_some() && !looks_again {
            return chosen.unwrap_or(Method::Cells);
        }
        let (method, started) = (self.trial(at).method(), sys::clock::now());
        self.period =
            Some(BusyPeriod { at, method, started, bytes, ended: 0, settled: started, mixed: false });
        method
    }

    fn trial(&mut self, (distance, load, class): (Distance, Load, usize)) -> &mut MethodTrial {
        &mut self.trials[(distance as usize * Load::ALL.len() + load as usize) * CLASSES + class]
    }

    fn by_table(&self, distance: Distance, load: Load, bytes: u64) -> Method {
        let read = |load| self.tuning.read(distance, load);
        let sizes = read(load).or_else(|| read(Load::Alone)).unwrap_or_default();
        if sizes.has(bytes) { Method::Read } else { Method::Cells }
    }

    /// Counts the end of a fetch whose start `start_fetch` has counted. If this process now fetches no other
    /// message, the busy period ends.
    #[inline]
    pub(crate) fn end_fetch(&mut self) {
        if let Some(period) = &mut self.period {
            period.ended += 1;
            if period.ended == SETTLING {
                period.settled = sys::clock::now();
            }
        }
        self.under_way -= 1;
        if self.under_way == 0 {
            self.end_period();
        }
    }

    fn end_period(&mut self) {
        let messages = u64::from(std::mem::take(&mut self.fetched));
        self.was_many = messages > 1;
        let Some(BusyPeriod {
            at: (distance, load, class),
            method,
            started,
            bytes,
            settled,
            mixed: false,
            ..
        }) = self.period.take()
        else {
            return;
        };
        let load = match (load, self.was_many) {
            (Load::Exchange, _) => Load::Exchange,
            (_, true) => Load::Many,
            (_, false) => Load::Alone,
        };
        let at = (distance, load, class);
        let now = sys::clock::now();
        // Pieces of several messages come in turns, so the messages end at the same time.
        let by_turns = method == Method::Cells || bytes > messages * READ_PIECE_BYTES as u64;
        let settled_ns = (!by_turns).then_some(now - settled);
        let fetched = Fetched { method, messages, bytes, ns: now - started, settled_ns };
        let chosen = self.probes().and_then(|probes| probes.choice(at)).unwrap_or(Method::Cells);
        let verdict = self.trial(at).end(fetched, chosen);
        if let (Some(verdict), Some(probes)) = (verdict, self.probes()) {
            probes.decide(at, verdict);
        }
    }

    /// Records that a read of a peer's memory has failed in the current busy period. From now on no rank
    /// reads messages of about this length from peers at this distance.
    pub(crate) fn note_refusal(&mut self) {
        let Some(period) = &mut self.period else { return };
        period.mixed = true;
        let (distance, _, class) = period.at;
        for load in Load::ALL {
            self.probes().iter().for_each(|probes| probes.refuse((distance, load, class), Method::Read));
        }
    }

    /// Returns how to fetch this eager message, which comes in pieces, to find the faster way: by a read or
    /// through cells. Returns None if the way for its distance and length is already chosen.
    pub(crate) fn try_eager(&self, distance: Distance, bytes: u64) -> Option<Method> {
        let (probes, at) = (self.probes()?, (distance, Load::Alone, class_of(bytes)));
        probes.choice(at).is_none().then(|| probes.next(at))
    }

    /// Records how long an eager message of `bytes` bytes has taken if fetched by this method: from
    /// `started`, in nanoseconds, until now.
    pub(crate) fn record_eager(&self, distance: Distance, bytes: u64, method: Method, started: u64) {
        if let Some(probes) = self.probes() {
            probes.record((distance, Load::Alone, class_of(bytes)), method, picoseconds(started, bytes));
        }
    }

    /// Whether the tuning table says for some distance and some length up to `most` that an offered message
    /// is faster than an eager one. Returns false if this rank cannot read the memory of `peer`, because then
    /// the peer can probably not read this rank's memory.
    pub(crate) fn offers_short(&self, peer: u32, most: usize) -> bool {
        !self.is_learning
            && Distance::ALL.iter().any(|at| self.eager_bytes_max(*at, most).0 < most)
            && self
                .segment
                .as_ref()
                .is_some_and(|segment| segment.local(peer).is_some_and(|peer| cma::reaches(segment, peer)))
    }

    /// Returns the length of the longest eager message at this distance, which is not above `most`, and
    /// whether measurements may still change it.
    pub(crate) fn eager_bytes_max(&self, distance: Distance, most: usize) -> (usize, bool) {
        let row = read_row(distance, Load::Alone);
        let is_set = |row| self.tuning.source(row) == ValueSource::Setting;
        if is_set(EAGER_BYTES_MAX) || is_set(row) || !self.may_choose {
            return (most, false);
        }
        let Some(probes) = self.probes() else {
            return (Sizes::of_bits(self.tuning.get(row)).length_below_run(most as u64) as usize, false);
        };
        // Messages in one packet are not timed; the next longer ones stand for them.
        let [short, long] = [1, 2].map(|class| probes.choice((distance, Load::Alone, class)));
        let bit = |method: Option<Method>, bits| if method == Some(Method::Read) { bits } else { 0 };
        let sizes = Sizes::of_bits(bit(short, 0b011) | bit(long, 0b100));
        (sizes.length_below_run(most as u64) as usize, short.is_none() || long.is_none())
    }
}

/// The trials with which a job begins, in the order in which `Chooser::trial` finds them.
fn trials(tuning: &Tuning) -> Vec<MethodTrial> {
    let facts = PATTERNS.map(|(distance, load)| tuning.facts(distance, load));
    let each = facts.iter().flat_map(|facts| (0..CLASSES).map(|class| facts.get(class)));
    each.map(MethodTrial::of).collect()
}

/// Returns how many picoseconds each of `bytes` bytes has taken on average since `started`.
fn picoseconds(started: u64, bytes: u64) -> u64 {
    sys::clock::now().saturating_sub(started).saturating_mul(1000) / bytes.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::route_shm::Port;
    use transport::shm::Shape;

    const HERE: Distance = Distance::L3;

    fn reach(spin: u32) -> Reach {
        let segment = Segment::create(Shape { ranks: 2, proxies: 0, arena_bytes: 1 }).unwrap().0;
        segment.job().spin_allowed.store(spin, Ordering::Relaxed);
        let rank = segment.require(0).unwrap();
        Reach::Shm(Port::new(segment, rank))
    }

    /// The number of messages after which a rank has chosen the faster way in this test.
    const MESSAGES_UNTIL_DECIDED: usize = 64;

    /// Fetches messages one by one, with simulated times: `cells` us through cells, or `read` us by a read.
    /// Returns how the last one was fetched.
    fn fetch(chooser: &mut Chooser, messages: usize, [cells, read]: [u64; 2]) -> Method {
        let mut last = Method::Cells;
        for _ in 0..messages {
            last = chooser.start_fetch(HERE, false, 1 << 20, true);
            if let Some(period) = &mut chooser.period {
                period.started -= 1000 * if last == Method::Read { read } else { cells };
            }
            chooser.end_fetch();
        }
        last
    }

    // Goal: without a table the first messages go both ways, and all ranks use the faster way afterwards; a
    // choice that no longer holds is corrected.
    #[test]
    fn messages_show_the_faster_way() {
        for (times, method) in [([50_000, 10_000], Method::Read), ([10_000, 50_000], Method::Cells)] {
            let reach = reach(1);
            let mut chooser = Chooser::new(&reach, Tuning::default());
            let mut other = Chooser::new(&reach, Tuning::default());
            fetch(&mut chooser, MESSAGES_UNTIL_DECIDED, times);
            for chooser in [&mut chooser, &mut other] {
                assert_eq!(chooser.start_fetch(HERE, false, 1 << 20, true), method);
                assert!(chooser.period.is_none(), "it is known");
                chooser.end_fetch();
            }
            assert!(
                chooser.start_fetch(HERE, true, 1 << 20, true) == Method::Cells && chooser.period.is_some(),
                "an exchange is another matter"
            );
            chooser.end_fetch();
            let opposite = fetch(&mut chooser, 600, [times[1], times[0]]);
            assert_ne!(opposite, method);
        }
    }

    // Goal: a job begins with what earlier ones found, tries it later, and corrects it.
    #[test]
    fn facts_come_first() {
        for (name, fact, opposite, times) in [
            ("read", Method::Read, Method::Cells, [10_000, 50_000]),
            ("cells", Method::Cells, Method::Read, [50_000, 10_000]),
        ] {
            let (reach, mut tuning) = (reach(1), Tuning::default());
            let row = tuning::facts_row(HERE, Load::Alone);
            let value = tuning::read_text(row, &format!("{name}, provisional: 1MiB-1MiB")).unwrap();
            tuning.set(row, value, ValueSource::Table);
            Probes(&reach.segment().unwrap().job().probes).begin_with(&tuning);
            let mut chooser = Chooser::new(&reach, tuning);
            for _ in 0..MESSAGES_UNTIL_DECIDED - 1 {
                assert_eq!(fetch(&mut chooser, 1, times), fact);
            }
            fetch(&mut chooser, MESSAGES_UNTIL_DECIDED, times);
            assert_eq!(fetch(&mut chooser, 1, times), opposite);
            let verdict = chooser.probes().unwrap().verdict((HERE, Load::Alone, 6)).unwrap();
            assert_eq!((verdict.method, verdict.is_clear), (opposite, true));
        }
    }

    // Goal: streams say nothing about single messages; messages of different lengths say nothing at all.
    #[test]
    fn streams_are_told_from_single_messages() {
        let mut chooser = Chooser::new(&reach(1), Tuning::default());
        let burst = |chooser: &mut Chooser, lengths: [u64; 3]| {
            for bytes in lengths {
                chooser.start_fetch(HERE, false, bytes, true);
            }
            (0..3).for_each(|_| chooser.end_fetch());
        };
        for _ in 0..MESSAGES_UNTIL_DECIDED.div_ceil(3) {
            burst(&mut chooser, [1 << 20; 3]);
        }
        let choice = |chooser: &Chooser, load| chooser.probes().unwrap().choice((HERE, load, 6));
        assert!(choice(&chooser, Load::Many).is_some() && choice(&chooser, Load::Alone).is_none());
        let mut chooser = Chooser::new(&reach(1), Tuning::default());
        for _ in 0..MESSAGES_UNTIL_DECIDED {
            burst(&mut chooser, [1 << 20, 1 << 18, 1 << 20]);
        }
        assert!(Load::ALL.iter().all(|load| choice(&chooser, *load).is_none()));
    }

    // Goal: where the kernel refuses to read (EPERM), no later message tries.
    #[test]
    fn what_is_refused_is_chosen_no_more() {
        let mut chooser = Chooser::new(&reach(1), Tuning::default());
        while chooser.start_fetch(HERE, false, 1 << 20, true) == Method::Cells {
            chooser.end_fetch();
        }
        chooser.note_refusal();
        chooser.end_fetch();
        assert_eq!(fetch(&mut chooser, 3, [50_000, 0]), Method::Cells);
        assert!(chooser.period.is_none());
        // A message that cannot be read shows nothing about reading.
        let mut chooser = Chooser::new(&reach(1), Tuning::default());
        for _ in 0..2 * MESSAGES_UNTIL_DECIDED {
            assert_eq!(chooser.start_fetch(HERE, false, 1 << 20, false), Method::Cells);
            chooser.end_fetch();
        }
        assert_eq!(chooser.probes().unwrap().choice((HERE, Load::Alone, 6)), None);
    }

    // Goal: a table decides from the first message on, and nothing is timed.
    #[test]
    fn a_table_decides() {
        let mut tuning = Tuning::default();
        tuning.set(read_row(HERE, Load::Alone), 0b0_0100_0110, ValueSource::Table);
        tuning.set(read_row(HERE, Load::Many), 0b0_0000_1000, ValueSource::Table);
        let mut chooser = Chooser::new(&reach(1), tuning);
        assert_eq!(chooser.eager_bytes_max(HERE, 64 << 10), (16 << 10, false));
        assert_eq!(chooser.start_fetch(HERE, false, 1 << 20, true), Method::Read);
        assert_eq!(chooser.start_fetch(HERE, false, 1 << 20, true), Method::Cells, "there are two by now");
        assert_eq!(chooser.start_fetch(HERE, false, 1 << 17, true), Method::Read);
        assert_eq!(
            chooser.start_fetch(HERE, true, 1 << 20, true),
            Method::Read,
            "as alone: it does not tell"
        );
        assert!(chooser.period.is_none() && !chooser.is_learning);
        assert_eq!(chooser.start_fetch(Distance::Far, false, 1 << 20, true), Method::Cells);
    }

    // Goal: senders offer the messages that receivers have read faster; the user's bound stays.
    #[test]
    fn senders_follow_what_receivers_saw() {
        let reach = reach(1);
        let mut chooser = Chooser::new(&reach, Tuning::default());
        assert_eq!(chooser.eager_bytes_max(HERE, 64 << 10), (64 << 10, true));
        for bytes in [32 << 10, 64 << 10] {
            while let Some(method) = chooser.try_eager(HERE, bytes) {
                let took = if method == Method::Read { 2_000_000 } else { 9_000_000 };
                chooser.record_eager(HERE, bytes, method, sys::clock::now() - took);
            }
        }
        assert_eq!(chooser.eager_bytes_max(HERE, 64 << 10), (8 << 10, false));
        let sender = Chooser::new(&reach, Tuning::default());
        assert_eq!(sender.eager_bytes_max(HERE, 64 << 10), (8 << 10, false));
        chooser.tuning.set(EAGER_BYTES_MAX, 64 << 10, ValueSource::Setting);
        assert_eq!(chooser.eager_bytes_max(HERE, 64 << 10), (64 << 10, false));
    }

    // Goal: where ranks share cores nothing is timed.
    #[test]
    fn nobody_learns_where_cores_are_shared() {
        assert!(!Chooser::new(&reach(0), Tuning::default()).is_learning);
    }
}
