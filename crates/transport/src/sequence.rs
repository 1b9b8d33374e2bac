// SPDX-License-Identifier: BSD-3-Clause
//! Numbers on the packets between two processes, so that packets are not lost or doubled and keep their
//! order.
//!
//! Each direction counts its packets. The receiver stores early packets, drops repeated ones, and answers up
//! to which number it has all. While a connection is *young*, the sender stores copies until they are
//! answered: if two processes connect to each other at once, libfabric's tcp may lose packets that one of the
//! two connections took. `YOUTH_NS` after the first answer the provider is trusted (FI_EP_RDM is reliable),
//! and copies would only cost time; a loss is then found and reported, not repaired. A sender without an
//! answer sends a probe; the answer to it shows what is missing.
//!
//! Invariants: a number from the peer is used only after its distance is checked; copies, early packets and
//! packets without an answer are bounded. Read next: `net.rs`, `sim.rs`, which use this.

use std::collections::{BTreeMap, VecDeque};

/// The most packets without an answer. A number further than this from the expected one is impossible.
pub(crate) const WINDOW: u32 = 4096;
/// A receiver answers after so many packets even if no packet asks for an answer.
const ANSWER_PACKETS: u32 = WINDOW / 4;
/// The most bytes of copies that a sender stores: beyond that, sends are refused until some are answered.
pub(crate) const COPIES_BYTES_MAX: usize = 256 << 10;
/// The most bytes of early packets that a receiver stores. It drops further ones, which then count as
/// missing.
const EARLY_BYTES_MAX: usize = COPIES_BYTES_MAX;
/// How long a connection stays young after its first answer.
const YOUTH_NS: u64 = 1_000_000_000;
/// The shortest and the longest pause before a probe, in nanoseconds, on a young connection. Pauses grow,
/// since a receiver that computes does not answer.
const YOUNG_PAUSES_NS: (u64, u64) = (20_000_000, 1_000_000_000);
/// The shortest and the longest pause before a probe, in nanoseconds, on a connection that is not young.
const PAUSES_NS: (u64, u64) = (1_000_000_000, 8_000_000_000);
/// How long a packet without a copy may be missing, in nanoseconds, before it counts as lost: until then the
/// provider may still deliver it.
const LOST_NS: u64 = 10_000_000_000;

/// The numbers of the packets between this process and one peer, in both directions, and the packets that are
/// stored. `T` is the type of a stored packet.
pub(crate) struct Sequence<T> {
    /// The number that this process's next packet gets.
    next: u32,
    /// The number before which the peer has all packets, by its latest answer.
    answered: u32,
    /// The copies of packets that the peer has not answered, each with its number.
    copies: VecDeque<(u32, StoredPacket<T>)>,
    copied_bytes: usize,
    /// How many of `copies`, from the front, the provider has taken since they were last due.
    copies_sent: usize,
    is_young: bool,
    /// When the peer's first answer came; None before.
    answered_first: Option<u64>,
    probe_timer: ProbeTimer,
    /// Since when it is known that the peer misses a packet of which there is no copy; None if it misses no
    /// such packet.
    lost_since: Option<u64>,
    /// The number that the peer's next packet in order has.
    expected: u32,
    /// The number before which the peer knows that this process has all packets: `expected`, when the last
    /// packet to the peer left.
    answered_to_peer: u32,
    /// The peer's packets that came before their turn, by their numbers.
    early: BTreeMap<u32, StoredPacket<T>>,
    early_bytes: usize,
    /// Whether the peer waits for an answer.
    owes_answer: bool,
    /// The number in the peer's latest probe, until an answer to it has left; None otherwise.
    unanswered_probe: Option<u32>,
}

/// A stored packet and its length in bytes.
pub(crate) type StoredPacket<T> = (T, usize);

/// The pause after which an unanswered sender probes the peer.
#[derive(Default)]
struct ProbeTimer {
    /// The value of `Sequence::answered` when the pause started. An answer since then starts a new pause.
    seen: u32,
    /// The length of the pause in nanoseconds; 0 if no pause has started.
    pause: u64,
    /// When the pause ends and the probe is due, in nanoseconds.
    ends: u64,
}

/// The numbers that a packet carries: its own, and the sender's answer for the other direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The number of this packet. A probe or an answer carries the number of the sender's next packet.
    pub number: u32,
    /// The number before which the sender of this packet has all packets of the other direction.
    pub answered: u32,
    /// Whether the sender asks for an answer soon: it stores a copy, or its window for edges is half full.
    pub wants_answer: bool,
}

/// What to do with a packet that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Arrival {
    /// The packet is the next: the caller takes it, then the packets that `next_early` returns.
    Next,
    /// Other packets must come first: the caller stores the packet by `keep_early`.
    Early,
    /// The packet has come before: the caller drops it.
    Repeated,
    /// The packet's number is impossible: the caller counts the packet and drops it.
    Refused,
}

/// What `Sequence::tick` finds that the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Due {
    /// The peer has all packets, so there are no timers to check.
    Settled,
    /// The peer lacks packets or their answer, but no timer has run out.
    Waiting,
    /// The caller should send a probe.
    Probe,
    /// The packet with this number is lost for good.
    Lost(u32),
}

impl<T> Default for Sequence<T> {
    fn default() -> Sequence<T> {
        Sequence {
            next: 0,
            answered: 0,
            copies: VecDeque::new(),
            copied_bytes: 0,
            copies_sent: 0,
            is_young: true,
            answered_first: None,
            probe_timer: ProbeTimer::default(),
            lost_since: None,
            expected: 0,
            answered_to_peer: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            owes_answer: false,
            unanswered_probe: None,
        }
    }
}

impl<T> Sequence<T> {
    /// Whether the peer has answered any packet of this process.
    pub fn is_answered(&self) -> bool {
        self.answered_first.is_some()
    }

    /// Whether the caller must pass a copy of each packet to `sent`: the connection is young.
    pub fn stores_copies(&self) -> bool {
        self.is_young
    }

    /// The number of packets without an answer.
    pub fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.answered)
    }

    /// Whether `packets` more packets, of `bytes` bytes in all, may be sent now.
    pub fn has_room(&self, packets: usize, bytes: usize) -> bool {
        self.in_flight() as usize + packets <= WINDOW as usize
            && (self.copies.is_empty() || self.copied_bytes + bytes <= COPIES_BYTES_MAX)
    }

    /// The numbers that this process's next packet must carry.
    pub fn stamp(&self) -> Stamp {
        Stamp { number: self.next, answered: self.expected, wants_answer: self.is_young }
    }

    /// Counts the packet with the latest stamp as sent. `is_away`: the provider has taken it; otherwise
    /// `unsent` will return the copy.
    pub fn sent(&mut self, copy: Option<StoredPacket<T>>, is_away: bool) {
        if let Some(copy) = copy {
            self.copied_bytes += copy.1;
            self.copies.push_back((self.next, copy));
            self.copies_sent += usize::from(is_away);
        }
        self.next = self.next.wrapping_add(1);
        self.note_answered();
    }

    /// The stored packet that the caller must send before any other: its number, the packet and its length.
    /// None if the provider has taken all.
    pub fn unsent(&self) -> Option<&(u32, StoredPacket<T>)> {
        self.copies.get(self.copies_sent)
    }

    /// Notes that the provider has taken the packet of `unsent`.
    pub fn copy_sent(&mut self) {
        self.copies_sent += 1;
    }

    /// Notes that a packet has left that carries the current `expected`, and so answers the peer.
    fn note_answered(&mut self) {
        (self.answered_to_peer, self.owes_answer) = (self.expected, self.unanswered_probe.is_some());
    }

    /// Takes the peer's answer that it has all packets before `answered`. Returns false if that number is
    /// impossible.
    pub fn receive_answer(&mut self, answered: u32, now: u64) -> bool {
        let more = answered.wrapping_sub(self.answered);
        if more > self.next.wrapping_sub(self.answered) {
            // The number in an old packet is smaller than the known one.
            return self.answered.wrapping_sub(answered) <= WINDOW;
        }
        if more == 0 {
            return true;
        }
        let is_there =
            |(number, _): &(u32, StoredPacket<T>)| answered.wrapping_sub(*number).wrapping_sub(1) < WINDOW;
        while self.copies.front().is_some_and(is_there)
            && let Some((_, (_, bytes))) = self.copies.pop_front()
        {
            self.copied_bytes -= bytes;
            self.copies_sent = self.copies_sent.saturating_sub(1);
        }
        self.answered = answered;
        self.answered_first.get_or_insert(now);
        self.lost_since = None;
        true
    }

    /// Decides by a packet's numbers what to do with it, and counts it if it is the next.
    pub fn receive(&mut self, stamp: Stamp) -> Arrival {
        let ahead = stamp.number.wrapping_sub(self.expected);
        let arrival = match ahead {
            0 => Arrival::Next,
            1..=WINDOW if self.early.contains_key(&stamp.number) => Arrival::Repeated,
            1..=WINDOW => Arrival::Early,
            _ if ahead.wrapping_neg() <= WINDOW => Arrival::Repeated,
            _ => Arrival::Refused,
        };
        if arrival == Arrival::Next {
            self.expected = self.expected.wrapping_add(1);
        }
        self.owes_answer |= stamp.wants_answer && arrival != Arrival::Refused
            || self.expected.wrapping_sub(self.answered_to_peer) >= ANSWER_PACKETS;
        arrival
    }

    /// Stores an early packet of `bytes` bytes, if there is room.
    pub fn keep_early(&mut self, number: u32, packet: T, bytes: usize) {
        if self.early_bytes + bytes <= EARLY_BYTES_MAX {
            self.early_bytes += bytes;
            self.early.insert(number, (packet, bytes));
        }
    }

    /// Takes the stored early packet that is the next now, if there is one, and counts it.
    pub fn next_early(&mut self) -> Option<T> {
        let (packet, bytes) = self.early.remove(&self.expected)?;
        self.early_bytes -= bytes;
        self.expected = self.expected.wrapping_add(1);
        Some(packet)
    }

    /// Takes the peer's question whether this process has all packets before `number`. Returns false if that
    /// number is impossible.
    pub fn receive_probe(&mut self, number: u32) -> bool {
        let ahead = number.wrapping_sub(self.expected);
        let may_be = ahead <= WINDOW || ahead.wrapping_neg() <= WINDOW;
        if may_be {
            (self.owes_answer, self.unanswered_probe) = (true, Some(number));
        }
        may_be
    }

    /// Returns Some if an answer to the peer is due. Inside is the number of the probe that it answers, or
    /// None if no probe asked for it.
    pub fn answer_due(&self) -> Option<Option<u32>> {
        self.owes_answer.then_some(self.unanswered_probe)
    }

    /// Notes that the answer has left.
    pub fn answer_sent(&mut self) {
        self.unanswered_probe = None;
        self.note_answered();
    }

    /// Takes the peer's answer to a probe, after `receive_answer`: of the packets before `asked` the peer has
    /// those before `answered`. Returns how many packets `unsent` will return again.
    pub fn receive_probe_answer(&mut self, answered: u32, asked: u32, now: u64) -> usize {
        let missing = asked.wrapping_sub(answered);
        if answered != self.answered || missing == 0 || missing > self.next.wrapping_sub(answered) {
            return 0;
        }
        if self.copies.front().is_some_and(|(number, _)| *number == answered) {
            // The peer answers now: if the packets are lost again, the next probe must come soon.
            self.probe_timer = ProbeTimer::default();
            return std::mem::take(&mut self.copies_sent);
        }
        self.lost_since.get_or_insert(now);
        0
    }

    /// Checks the timers, and returns what is due. The caller calls it now and then while the peer may lack
    /// packets.
    pub fn tick(&mut self, now: u64) -> Due {
        if self.is_young && self.answered_first.is_some_and(|first| now.saturating_sub(first) >= YOUTH_NS) {
            self.is_young = false;
        }
        if self.answered == self.next {
            self.probe_timer = ProbeTimer::default();
            return Due::Settled;
        }
        if self.lost_since.is_some_and(|since| now.saturating_sub(since) >= LOST_NS) {
            return Due::Lost(self.answered);
        }
        let (first, most) = if self.is_young { YOUNG_PAUSES_NS } else { PAUSES_NS };
        let ProbeTimer { seen, pause, ends } = &mut self.probe_timer;
        if *pause == 0 || *seen != self.answered {
            (*seen, *pause, *ends) = (self.answered, first, now + first);
            return Due::Waiting;
        }
        if now < *ends {
            return Due::Waiting;
        }
        *pause = (*pause * 2).min(most);
        *ends = now + *pause;
        // While copies have not left, the peer cannot answer for them: no probe.
        if self.copies_sent < self.copies.len() { Due::Waiting } else { Due::Probe }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Sends `packets` packets and returns their stamps.
    fn send(sender: &mut Sequence<u32>, packets: u32) -> Vec<Stamp> {
        (0..packets)
            .map(|_| {
                let stamp = sender.stamp();
                let copy = sender.stores_copies().then_some((stamp.number, 100));
                sender.sent(copy, true);
                stamp
            })
            .collect()
    }

    fn take(receiver: &mut Sequence<u32>, stamp: Stamp) -> (Arrival, Vec<u32>) {
        let arrival = receiver.receive(stamp);
        if arrival == Arrival::Early {
            receiver.keep_early(stamp.number, stamp.number, 100);
        }
        let first = (arrival == Arrival::Next).then_some(stamp.number);
        (arrival, first.into_iter().chain(std::iter::from_fn(|| receiver.next_early())).collect())
    }

    /// Makes a sender and a receiver whose connection is not young any more, so that the sender stores no
    /// copies.
    fn grown() -> (Sequence<u32>, Sequence<u32>) {
        let (mut sender, mut receiver) = (Sequence::default(), Sequence::default());
        let stamp = send(&mut sender, 1)[0];
        assert_eq!(take(&mut receiver, stamp).0, Arrival::Next);
        assert!(sender.receive_answer(receiver.stamp().answered, 1));
        assert_eq!(sender.tick(1), Due::Settled);
        assert!(sender.stores_copies());
        assert_eq!(sender.tick(1 + YOUTH_NS), Due::Settled);
        assert!(!sender.stores_copies());
        (sender, receiver)
    }

    /// Goal: early packets wait for the packets before them, and repeated packets are dropped.
    #[test]
    fn early_packets_wait_and_repeated_ones_go() {
        let (mut sender, mut receiver) = (Sequence::default(), Sequence::default());
        let stamps = send(&mut sender, 4);
        assert_eq!(take(&mut receiver, stamps[2]), (Arrival::Early, vec![]));
        assert_eq!(take(&mut receiver, stamps[2]), (Arrival::Repeated, vec![]));
        assert_eq!(take(&mut receiver, stamps[1]), (Arrival::Early, vec![]));
        assert_eq!(take(&mut receiver, stamps[0]), (Arrival::Next, vec![0, 1, 2]));
        assert_eq!(take(&mut receiver, stamps[1]), (Arrival::Repeated, vec![]));
        assert_eq!(take(&mut receiver, stamps[3]), (Arrival::Next, vec![3]));
        assert_eq!(receiver.answer_due(), Some(None), "a young sender wants answers");
    }

    /// Goal: packets that a young connection loses leave again once the receiver has answered what is
    /// missing, and the pauses between probes grow.
    #[test]
    fn a_lost_packet_leaves_again() {
        let (mut sender, mut receiver) = (Sequence::<u32>::default(), Sequence::default());
        let stamps = send(&mut sender, 3);
        assert_eq!(take(&mut receiver, stamps[2]).0, Arrival::Early);
        assert_eq!(sender.tick(SECOND), Due::Waiting);
        assert_eq!(sender.tick(SECOND + YOUNG_PAUSES_NS.0 - 1), Due::Waiting);
        assert_eq!(sender.tick(SECOND + YOUNG_PAUSES_NS.0), Due::Probe);
        assert_eq!(sender.tick(SECOND + 2 * YOUNG_PAUSES_NS.0), Due::Waiting, "the second pause is longer");
        assert!(receiver.receive_probe(sender.stamp().number));
        assert_eq!(receiver.answer_due(), Some(Some(3)));
        receiver.answer_sent();
        assert_eq!(receiver.answer_due(), None);
        assert!(sender.receive_answer(0, SECOND));
        assert_eq!(sender.receive_probe_answer(0, 3, SECOND), 3);
        let mut taken = Vec::new();
        while let Some(&(number, (packet, _))) = sender.unsent() {
            assert_eq!(packet, number);
            taken.extend(take(&mut receiver, Stamp { number, ..sender.stamp() }).1);
            sender.copy_sent();
        }
        assert_eq!(taken, [0, 1, 2]);
        assert!(sender.receive_answer(3, SECOND));
        assert_eq!(sender.tick(2 * SECOND), Due::Settled);
        assert_eq!((sender.copies.len(), sender.copied_bytes, sender.copies_sent), (0, 0, 0));
    }

    /// Goal: the loss of a packet without a copy is reported after a bounded time, but not if the provider
    /// was only late.
    #[test]
    fn a_loss_that_nobody_can_mend_is_told() {
        for is_late in [false, true] {
            let (mut sender, mut receiver) = grown();
            let stamps = send(&mut sender, 2);
            assert_eq!(take(&mut receiver, stamps[1]).0, Arrival::Early);
            let begin = 3 * SECOND;
            assert_eq!(sender.tick(begin), Due::Waiting);
            assert_eq!(sender.tick(begin + PAUSES_NS.0), Due::Probe);
            assert!(receiver.receive_probe(3));
            assert!(sender.receive_answer(1, begin) && sender.receive_probe_answer(1, 3, begin) == 0);
            if is_late {
                assert_eq!(take(&mut receiver, stamps[0]), (Arrival::Next, vec![1, 2]));
                assert!(sender.receive_answer(receiver.stamp().answered, begin + SECOND));
                send(&mut sender, 1);
            }
            let due = if is_late { Due::Waiting } else { Due::Lost(1) };
            assert_eq!(sender.tick(begin + LOST_NS), due);
        }
    }

    /// Goal: the packets that are stored for a peer that does not answer are bounded.
    #[test]
    fn what_waits_for_answers_is_bounded() {
        let mut young = Sequence::<u32>::default();
        assert!(young.has_room(1, 10 * COPIES_BYTES_MAX), "one packet of any length");
        while young.has_room(1, 100) {
            send(&mut young, 1);
        }
        assert_eq!(young.copied_bytes, COPIES_BYTES_MAX / 100 * 100);
        let (mut grown, _) = grown();
        assert!(grown.has_room(WINDOW as usize, usize::MAX / 2));
        send(&mut grown, WINDOW);
        assert!(!grown.has_room(1, 1));
        let mut receiver = Sequence::default();
        (1..WINDOW).for_each(|number| receiver.keep_early(number, number, 100));
        assert_eq!(receiver.early.len(), EARLY_BYTES_MAX / 100);
    }

    /// Goal: impossible numbers change nothing.
    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let (mut sender, mut receiver) = grown();
        let stamp = sender.stamp();
        for number in
            [stamp.number + WINDOW + 1, stamp.number + (1 << 31), stamp.number.wrapping_sub(WINDOW + 1)]
        {
            assert_eq!(receiver.receive(Stamp { number, ..stamp }), Arrival::Refused, "{number}");
            assert!(!receiver.receive_probe(number), "{number}");
        }
        assert!(!sender.receive_answer(2, 9), "only one was sent");
        assert!(sender.receive_answer(0, 9), "an old answer");
        assert_eq!((receiver.expected, receiver.answer_due(), sender.answered), (1, Some(None), 1));
        assert_eq!(sender.receive_probe_answer(1, 9, 9), 0);
        assert_eq!(sender.lost_since, None, "nobody asked about so many");
    }

    /// Goal: a receiver that sends no packets itself answers now and then.
    #[test]
    fn many_packets_are_answered_unasked() {
        let (mut sender, mut receiver) = grown();
        receiver.answer_sent();
        let mut answers = 0;
        for _ in 0..4 * ANSWER_PACKETS {
            let stamp = send(&mut sender, 1)[0];
            assert_eq!(take(&mut receiver, stamp).0, Arrival::Next);
            if receiver.answer_due().is_some() {
                answers += 1;
                receiver.answer_sent();
                assert!(sender.receive_answer(receiver.stamp().answered, 9));
            }
        }
        assert_eq!(answers, 4);
    }

    /// Goal: nothing depends on the first number. Method: the numbers pass from the largest to 0.
    #[test]
    fn numbers_wrap() {
        let (mut sender, mut receiver) = (Sequence::<u32>::default(), Sequence::default());
        let first = u32::MAX - 1;
        (sender.next, sender.answered, receiver.expected, receiver.answered_to_peer) =
            (first, first, first, first);
        let stamps = send(&mut sender, 4);
        for at in [3, 1, 2, 0] {
            let _ = take(&mut receiver, stamps[at]);
        }
        assert_eq!(receiver.stamp().answered, 2);
        assert!(sender.receive_answer(0, 1) && sender.copies.len() == 2);
        assert!(
            sender.receive_answer(u32::MAX, 1) && sender.receive_answer(2, 1) && sender.copies.is_empty()
        );
    }
}
