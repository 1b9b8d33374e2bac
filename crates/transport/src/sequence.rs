// SPDX-License-Identifier: BSD-3-Clause
//! Numbers on the packets between two processes, so that packets are not lost or doubled and keep their
//! order.
//!
//! Each direction counts its packets. A receiver stores early packets, drops repeated ones, and *answers*: it
//! sends a number, and has all packets with lower numbers. While a connection is *young*, the sender stores
//! copies until they are answered: if two processes connect to each other at once, libfabric's tcp may lose
//! packets that one of the two connections took. `YOUTH_NS` after the first answer the sender trusts the
//! provider (FI_EP_RDM is reliable) and stores no copies; it then reports a loss instead of repairing it. A
//! sender that gets no answer sends a probe; the answer to the probe shows what is missing.
//!
//! Invariants: a number from the peer is used only after its distance is checked; copies, early packets and
//! packets without an answer are bounded. Read next: `net.rs`, `sim.rs`, which use this.

use std::collections::{BTreeMap, VecDeque};

/// The most packets that may lack an answer. A packet is refused if its number differs by more than this from
/// the number that must come next.
pub(crate) const WINDOW: u32 = 4096;
/// The number of packets after which a receiver answers even if no packet asks for an answer.
const ANSWER_PACKETS: u32 = WINDOW / 4;
/// The most bytes of packets that a sender stores as copies. Beyond that, sends are refused until some
/// packets are answered.
pub(crate) const COPIES_BYTES_MAX: usize = 256 << 10;
/// The most bytes of packets that a receiver stores because they came before their turn. Beyond that it drops
/// such packets, and they count as missing.
const EARLY_BYTES_MAX: usize = COPIES_BYTES_MAX;
/// How long after the peer's first answer a connection stays young, in nanoseconds. While it is young,
/// senders store copies.
const YOUTH_NS: u64 = 1_000_000_000;
/// The shortest and the longest pause before a probe, in nanoseconds, while the connection is young and
/// copies are stored. Pauses grow, since a receiver that computes does not answer.
const YOUNG_PAUSES_NS: (u64, u64) = (20_000_000, 1_000_000_000);
/// The shortest and the longest pause before a probe, in nanoseconds, once the connection is not young and no
/// copies are stored.
const PAUSES_NS: (u64, u64) = (1_000_000_000, 8_000_000_000);
/// How long a packet of which no copy is stored may be missing, in nanoseconds, before it counts as lost.
/// Until then the provider may still deliver it.
const LOST_NS: u64 = 10_000_000_000;

/// The numbers of the packets between this process and one peer, in both directions, and the packets stored
/// meanwhile. `T` is the type of a stored packet.
pub(crate) struct Sequence<T> {
    /// The number that the next packet from this process gets.
    next: u32,
    /// The number in the peer's latest answer: the peer has all packets of this process before that number.
    answered: u32,
    /// The copies of packets that the peer has not answered, each with its number, in ascending order.
    copies: VecDeque<(u32, StoredPacket<T>)>,
    copied_bytes: usize,
    /// How many of `copies`, from the front, the provider has taken. A probe's answer that packets are
    /// missing sets it to 0, and the copies are sent again.
    copies_sent: usize,
    is_young: bool,
    /// When the peer's first answer came, in nanoseconds; None before that.
    answered_first: Option<u64>,
    probe_timer: ProbeTimer,
    /// The time in nanoseconds at which this process learnt that the peer lacks a packet of which no copy is
    /// stored here. None if the peer lacks no such packet.
    lost_since: Option<u64>,
    /// The number of the packet that must come next from the peer.
    expected: u32,
    /// The number in this process's latest answer to the peer: this process has all packets of the peer
    /// before that number.
    answered_to_peer: u32,
    /// The packets of the peer that came before their turn, by their numbers.
    early: BTreeMap<u32, StoredPacket<T>>,
    early_bytes: usize,
    /// Whether this process owes the peer an answer.
    owes_answer: bool,
    /// The number in the peer's latest probe, until an answer to the probe has left; None at other times.
    unanswered_probe: Option<u32>,
}

/// A stored packet and its length in bytes.
pub(crate) type StoredPacket<T> = (T, usize);

/// The pause after which a sender without an answer probes the peer.
#[derive(Default)]
struct ProbeTimer {
    /// The value of `Sequence::answered` when the pause started. When `answered` changes, a new pause starts.
    seen: u32,
    /// The length in nanoseconds of the pause before the next probe; 0 if no pause has started.
    pause: u64,
    /// When the pause before the next probe ends, in nanoseconds. Then the probe is due.
    ends: u64,
}

/// The numbers that a packet carries: its own number, and the sender's answer about the packets of the other
/// direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The number of this packet. A probe or an answer has no number of its own, and carries the number of
    /// the sender's next packet.
    pub number: u32,
    /// The number before which the sender of this packet has all packets of the receiver.
    pub answered: u32,
    /// Whether the sender asks for an answer soon, because it stores a copy of the packet, or because many
    /// packets about edges of collectives lack an answer.
    pub wants_answer: bool,
}

/// What the caller must do with a packet that has arrived, by its number.
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

/// What the caller of `Sequence::tick` must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Due {
    /// No action: the peer has answered all packets, so there are no timers to check.
    Settled,
    /// No action yet: the peer has not answered all packets, but no timer has run out.
    Waiting,
    /// The caller sends a probe now: a packet that asks the peer up to which number all packets have come.
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

    /// Whether the connection is young, so that the caller must pass a copy of each packet to `sent`.
    pub fn stores_copies(&self) -> bool {
        self.is_young
    }

    /// Returns how many packets of this process the peer has not answered.
    pub fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.answered)
    }

    /// Whether the bounds allow `packets` more packets, of `bytes` bytes in all, to be sent now.
    pub fn has_room(&self, packets: usize, bytes: usize) -> bool {
        self.in_flight() as usize + packets <= WINDOW as usize
            && (self.copies.is_empty() || self.copied_bytes + bytes <= COPIES_BYTES_MAX)
    }

    /// Returns the numbers that the next packet of this process must carry.
    pub fn stamp(&self) -> Stamp {
        Stamp { number: self.next, answered: self.expected, wants_answer: self.is_young }
    }

    /// Counts the packet with the latest `stamp` as sent. `is_away` says whether the provider has taken it.
    /// If not, `unsent` will return the copy.
    pub fn sent(&mut self, copy: Option<StoredPacket<T>>, is_away: bool) {
        if let Some(copy) = copy {
            self.copied_bytes += copy.1;
            self.copies.push_back((self.next, copy));
            self.copies_sent += usize::from(is_away);
        }
        self.next = self.next.wrapping_add(1);
        self.note_answered();
    }

    /// Returns the stored packet that the caller must send before any other, with its number and length.
    /// Returns None if the provider has taken all stored packets.
    pub fn unsent(&self) -> Option<&(u32, StoredPacket<T>)> {
        self.copies.get(self.copies_sent)
    }

    /// Records that the provider has taken the packet that `unsent` returned.
    pub fn copy_sent(&mut self) {
        self.copies_sent += 1;
    }

    /// Records that a packet to the peer has carried an answer: this process has all packets of the peer
    /// before `expected`.
    fn note_answered(&mut self) {
        (self.answered_to_peer, self.owes_answer) = (self.expected, self.unanswered_probe.is_some());
    }

    /// Handles the peer's answer that it has all packets before number `answered`. Returns false if no honest
    /// peer could send that number.
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

    /// Decides what to do with a packet by the numbers that it carries. Counts the packet if it is the next
    /// in order.
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

    /// Stores an early packet of `bytes` bytes. Drops it if the early packets would take too many bytes.
    pub fn keep_early(&mut self, number: u32, packet: T, bytes: usize) {
        if self.early_bytes + bytes <= EARLY_BYTES_MAX {
            self.early_bytes += bytes;
            self.early.insert(number, (packet, bytes));
        }
    }

    /// Takes the stored early packet that is now the next in order, and counts it. None if the next packet is
    /// not stored.
    pub fn next_early(&mut self) -> Option<T> {
        let (packet, bytes) = self.early.remove(&self.expected)?;
        self.early_bytes -= bytes;
        self.expected = self.expected.wrapping_add(1);
        Some(packet)
    }

    /// Handles the peer's probe: its question whether this process has all packets before `number`. Returns
    /// false if no honest peer could send that number.
    pub fn receive_probe(&mut self, number: u32) -> bool {
        let ahead = number.wrapping_sub(self.expected);
        let may_be = ahead <= WINDOW || ahead.wrapping_neg() <= WINDOW;
        if may_be {
            (self.owes_answer, self.unanswered_probe) = (true, Some(number));
        }
        may_be
    }

    /// Returns None if no answer to the peer is due. Otherwise returns Some with the number of the probe that
    /// the answer is for, or `Some(None)` if no probe asked for it.
    pub fn answer_due(&self) -> Option<Option<u32>> {
        self.owes_answer.then_some(self.unanswered_probe)
    }

    /// Records that the answer which `answer_due` asked for has left.
    pub fn answer_sent(&mut self) {
        self.unanswered_probe = None;
        self.note_answered();
    }

    /// Handles the answer to a probe: of the packets before `asked`, the peer has only those before
    /// `answered`. The caller has called `receive_answer` first. Returns how many stored packets `unsent`
    /// will return again.
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

    /// Checks the timers, and returns what the caller must do. While packets lack an answer, the caller must
    /// call this function from time to time.
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

    /// Counts `packets` packets of `sender` as sent, and returns the stamps that they carry.
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

    /// Goal: packets that were lost while a connection is young are sent again, once the receiver's answer
    /// shows which packets are missing. The pauses between probes grow.
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

    /// Goal: the loss of a packet of which no copy is stored is reported after a bounded time. A packet that
    /// the provider delivers late is not reported as lost.
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

    /// Goal: the packets stored for a peer that does not answer are bounded.
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

    /// Goal: packets and answers with impossible numbers change nothing.
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

    /// Goal: a receiver that sends no packets itself answers now and then, without being asked.
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
