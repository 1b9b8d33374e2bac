// SPDX-License-Identifier: BSD-3-Clause
//! The notes (fixed-size messages) about edges that processes of different hosts exchange, in the form of
//! packets. `remote_edges.rs` says which process sends them when.
//!
//! The tables at `Note` and `NoteKind` give the format: the fields, and who sends and answers each kind.

use std::any::Any;
use std::sync::Arc;
use sys::Span;
use transport::route::{Header, Pull, RemoteRange, Sent};
use transport::route_fabric::Exposed;

/// What notes need of the network: packets, which keep their order between two processes, and reads by RDMA
/// of memory that another process has exposed. This is a trait because tests simulate it.
pub trait EdgePort {
    /// Sends a packet with `bytes` bytes of payload, which `fill` writes, to the endpoint `to`. Returns
    /// whether the packet was sent.
    fn send(&mut self, to: u32, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent;
    /// Whether `send` would now take a packet with `bytes` bytes of payload to the endpoint `to`, as far as
    /// is known.
    fn has_room(&mut self, to: u32, bytes: usize) -> bool;
    /// Takes the next packet that has come, and calls `each` with the source's endpoint, the header and the
    /// payload. Returns false if no packet has come.
    fn take(&mut self, each: impl FnOnce(u32, &Header, Span)) -> bool;
    /// Returns the most bytes of payload that a packet can have.
    fn payload_bytes_max(&self) -> usize;
    /// Exposes memory to peers until the lease is dropped. The caller keeps the memory mapped until then.
    /// Returns the memory's key, the name of this endpoint, and the lease. None if the provider refuses.
    fn expose(&mut self, span: Span) -> Option<(RemoteRange, Box<[u8]>, Lease)>;
    /// Registers memory into which `pull` reads, until the lease is dropped. Returns None if the provider
    /// refuses.
    fn register(&mut self, span: Span) -> Option<Lease>;
    /// Starts to read into `to` from memory that the endpoint `from` has exposed (`far`: its key, and the
    /// offset in it). Until `pulled` has returned `token`, the caller does not use `to`, and keeps `own`, the
    /// lease with which `to` is registered.
    fn pull(
        &mut self,
        from: (u32, &[u8]),
        far: (RemoteRange, u64),
        to: Span,
        own: &Lease,
        token: u32,
    ) -> Pull;
    /// Returns the token of a pull that has ended, and whether its bytes are there; if not, `to` may hold
    /// anything. None if no pull has ended since the last call.
    fn pulled(&mut self) -> Option<(u32, bool)>;
    /// Tells an endpoint (`from`: its number, and the name under which it has exposed memory) that no read
    /// from this memory is under way any more.
    fn acknowledge(&mut self, from: (u32, &[u8]));
    /// Returns why some process that still lives can never be reached again. None while all can be reached.
    fn broken(&self) -> Option<String>;
}

/// Keeps memory registered with the network until it is dropped.
pub struct Lease(pub Box<dyn Any + Send>);

impl EdgePort for transport::route_fabric::Port {
    fn send(&mut self, to: u32, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent {
        self.send_edge(to, header, bytes, fill)
    }

    fn has_room(&mut self, to: u32, bytes: usize) -> bool {
        self.has_room_for_edge(to, bytes)
    }

    fn take(&mut self, each: impl FnOnce(u32, &Header, Span)) -> bool {
        self.take_edge(each)
    }

    fn payload_bytes_max(&self) -> usize {
        transport::route_fabric::Port::payload_bytes_max(self)
    }

    fn expose(&mut self, span: Span) -> Option<(RemoteRange, Box<[u8]>, Lease)> {
        let (exposed, name) = transport::route_fabric::Port::expose(self, span)?;
        Some((exposed.remote_range(), name, Lease(Box::new(exposed))))
    }

    fn register(&mut self, span: Span) -> Option<Lease> {
        transport::route_fabric::Port::register(self, span).map(|exposed| Lease(Box::new(exposed)))
    }

    fn pull(
        &mut self,
        from: (u32, &[u8]),
        far: (RemoteRange, u64),
        to: Span,
        own: &Lease,
        token: u32,
    ) -> Pull {
        match own.0.downcast_ref::<Exposed>() {
            Some(own) => self.pull_edge(from, far, to, own, token),
            None => Pull::Never,
        }
    }

    fn pulled(&mut self) -> Option<(u32, bool)> {
        self.pulled_edge()
    }

    fn acknowledge(&mut self, from: (u32, &[u8])) {
        transport::route_fabric::Port::acknowledge(self, from);
    }

    fn broken(&self) -> Option<String> {
        transport::route_fabric::Port::broken(self)
    }
}

/// What a note means. R is the driver of an edge's receiving instance. S is the edge's server: the sending
/// rank's proxy, or that rank. P is a proxy on another computer than its ranks (`imported.rs`), and K is one
/// of these ranks. The answer `announce` is P's call of `Import::announce`.
///
/// | kind | from, to | meaning | data behind it | answer |
/// |---|---|---|---|---|
/// | `Fetch` | R, S | send the bytes from `offset` on, unless already sent unasked | | those of S below |
/// | `Again` | R, S | send the bytes from `offset` on, whatever was sent before | | those of S below |
/// | `Data` | S, R | bytes from `offset` on | the bytes | `Done` after the last |
/// | `Copied` | S, R | as `Data`, but the sender's operation does not wait for R | the bytes | `Done` |
/// | `Exposed` | S, R | R can read all bytes below `offset` | an `ExposedSend` | `Done` after the last |
/// | `Failed` | S, R | the send fails | a `Fault` | |
/// | `Elsewhere` | S, R | the sending rank drives the instance, and answers for it | | R asks the rank |
/// | `Done` | R, S | R has all bytes | | `Known` or `Elsewhere` |
/// | `Known` | S, R | the sender knows what R reported, or S has forgotten R's question | | |
/// | `Leave` | R, S | the receive was withdrawn, and asks no more | | `Known` |
/// | `Refused` | R, S | R had no room for what came unasked | | as `Fetch`, once R asks |
/// | `Join` | K, P | K joins its proxy | `join_words` | `Welcome` |
/// | `Submit` | K, P | drive the instance whose record is at `offset` | `Submission` | `announce` |
/// | `Own` | K, P | K drives an instance itself | | |
/// | `OwnEnded` | K, P | an instance of `Own` has ended | | |
/// | `Step` | K, P | `step` has ended with `done` = `total`; failed if `edge` is 1 | scratch or `Fault` | |
/// | `Withdraw` | K, P | K does not want a message: its receive, unless started, or its send | | `announce` |
/// | `Welcome` | P, K | K has joined | | |
/// | `Part` | K, P | K is about to end its process | | `Parted` |
/// | `Parted` | P, K | P uses the memory of K no more | | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NoteKind {
    Fetch = transport::route::EDGE,
    Again,
    Data,
    Copied,
    Exposed,
    Failed,
    Done,
    Known,
    Leave,
    Elsewhere,
    Refused,
    Join,
    Submit,
    Own,
    OwnEnded,
    Step,
    Withdraw,
    Welcome,
    Part,
    Parted,
}

const _: () = assert!((NoteKind::Parted as u8) < transport::route::EDGE + transport::route::EDGES);

/// A note about one edge, or about an instance as a whole. All numbers are in the host's byte order.
///
/// | field | bytes in the packet | unit | meaning |
/// |---|---|---|---|
/// | `kind` | kind of the header | | what the note means |
/// | `attempt` | tag of the header | number | how often the receiver's driver has asked; 0: unasked |
/// | `context` | context of the header | number | the instance, with `sequence` |
/// | `sequence` | 0..4 | number | the operation's number in the context |
/// | `sender`, `receiver` | 4..8, 8..12 | peer of the job | the two ranks of the edge |
/// | `receiver_rank` | 12..16 | rank of the schedule | the receiver; with `edge` the sender knows the step |
/// | `edge` | 16..20 | number | the edge |
/// | `step` | 20..24 | step, or rank of the schedule | the receiver's step; unasked: the sender |
/// | `offset` | 24..32 | bytes | offset in the edge, or of a record in the rank's arena |
/// | `total` | 32..40 | bytes | the edge's length, as the sender of the note knows it |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub kind: NoteKind,
    /// The context of the instance that the note is about.
    pub context: u64,
    /// The number, in its context, of the operation that the note is about.
    pub sequence: u32,
    /// The number in the job of the rank that sends the bytes.
    pub sender: u32,
    /// The number in the job of the rank that receives the bytes.
    pub receiver: u32,
    /// The receiver's rank in the schedule. By this and `edge` the sender finds its step.
    pub receiver_rank: u32,
    /// The number of the edge, which tells messages between the two ranks apart.
    pub edge: u32,
    /// The receiver's step: an answer repeats the number from the question. In an unasked note, the sender's
    /// rank in the schedule.
    pub step: u32,
    /// How often the receiver's driver has asked: an answer repeats the number from the question. In an
    /// unasked note, 0.
    pub attempt: u32,
    pub offset: u64,
    /// The length of the whole send in bytes, as the sender of the note knows it.
    pub total: u64,
}

/// What the driver of an instance did with a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoteOutcome {
    Accepted,
    /// The instance does not need what the note says.
    Ignored,
    /// The step that the note is about has not started. The note may be kept for it.
    Early,
}

/// What the driver of an operation has to report to another host, or to this process's own server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outgoing {
    /// A note for the endpoint `to`, and whether the process there waits for it.
    Note { to: u32, note: Note, is_awaited: bool },
    /// For this process's own server: a send has published its first bytes. The server may send them before
    /// the receiver asks, and takes this note in place of the receiver's question.
    Published(Note),
}

/// The memory of a server from which a receiver can read the bytes of a send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExposedSend {
    /// The key, address and length of the memory that the server has exposed.
    pub far: RemoteRange,
    /// The offset, in the bytes of the send, at which this memory begins.
    pub start: u64,
    /// The name of the server's endpoint, under which peers read the memory.
    pub name: Arc<[u8]>,
}

impl ExposedSend {
    /// Encodes the place as words: four numbers, the length of the name, and the name, padded.
    pub fn words(&self) -> Vec<u64> {
        let RemoteRange { key, base, bytes } = self.far;
        let head = [key, base, bytes, self.start, self.name.len() as u64];
        head.into_iter().chain(to_words(&self.name)).collect()
    }

    /// Decodes what `words` has made, or returns None for other words.
    pub fn from_words(words: &[u64]) -> Option<ExposedSend> {
        let (&[key, base, bytes, start, length], name) = words.split_first_chunk()?;
        let length = usize::try_from(length).ok().filter(|length| length.div_ceil(8) <= name.len())?;
        let name = to_bytes(name, length).into();
        Some(ExposedSend { far: RemoteRange { base, key, bytes }, start, name })
    }
}

/// The length in bytes of a note in a packet. The packet's header comes before the note, and the data after
/// it.
pub(crate) const NOTE_BYTES: usize = 40;

impl Note {
    pub fn header(&self) -> Header {
        Header { kind: self.kind as u8, tag: self.attempt as i32, context: self.context }
    }

    pub fn write(&self, to: Span) {
        let mut bytes = [0; NOTE_BYTES];
        let short = [self.sequence, self.sender, self.receiver, self.receiver_rank, self.edge, self.step];
        for (place, word) in bytes.chunks_exact_mut(4).zip(short) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[24..32].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.total.to_ne_bytes());
        to.write(&bytes);
    }

    /// Decodes a packet: returns the note, and the data after the note. None if the packet is no note.
    pub fn read(header: &Header, payload: Span) -> Option<(Note, Span)> {
        use NoteKind::*;
        let kinds = [
            Fetch, Again, Data, Copied, Exposed, Failed, Done, Known, Leave, Elsewhere, Refused, Join,
            Submit, Own, OwnEnded, Step, Withdraw, Welcome, Part, Parted,
        ];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == header.kind)?;
        if payload.bytes() < NOTE_BYTES {
            return None;
        }
        let mut bytes = [0; NOTE_BYTES];
        payload.slice(0, NOTE_BYTES).read(&mut bytes);
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[4 * at + i]));
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let note = Note {
            kind,
            context: header.context,
            sequence: word(0),
            sender: word(1),
            receiver: word(2),
            receiver_rank: word(3),
            edge: word(4),
            step: word(5),
            attempt: header.tag as u32,
            offset: long(24),
            total: long(32),
        };
        Some((note, payload.slice(NOTE_BYTES, payload.bytes() - NOTE_BYTES)))
    }

    /// Makes a note about an instance as a whole, from the rank `rank` or to it.
    pub fn of_instance(kind: NoteKind, rank: u32, context: u64, sequence: u32, offset: u64) -> Note {
        Note {
            kind,
            context,
            sequence,
            sender: rank,
            receiver: rank,
            receiver_rank: 0,
            edge: 0,
            step: 0,
            attempt: 0,
            offset,
            total: 0,
        }
    }

    /// Whether both notes are about the same send and its receive, in the same instance.
    pub fn is_edge_of(&self, other: &Note) -> bool {
        let key = |note: &Note| (note.context, note.sequence, note.sender, note.receiver_rank, note.edge);
        key(self) == key(other)
    }
}

/// Sends a note, followed by `words`, to the endpoint `to`. Returns whether the packet was sent.
pub(crate) fn send_words(port: &mut impl EdgePort, to: u32, note: &Note, words: &[u64]) -> Sent {
    port.send(to, &note.header(), NOTE_BYTES + 8 * words.len(), |span| {
        note.write(span.slice(0, NOTE_BYTES));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        span.slice(NOTE_BYTES, bytes.len()).write(&bytes);
    })
}

/// Packs bytes into words, of which the last is padded with zeros.
pub(crate) fn to_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_ne_bytes(word)
    })
}

/// Turns words back into bytes, and returns the first `bytes` of these.
pub(crate) fn to_bytes(words: &[u64], bytes: usize) -> Vec<u8> {
    let mut all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    all.truncate(bytes);
    all
}

/// Reads the data after a note as 64-bit words. Ignores bytes at the end that are no whole word.
pub(crate) fn words(data: Span) -> Vec<u64> {
    let mut bytes = vec![0; data.bytes()];
    data.read(&mut bytes);
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::Block;

    #[test]
    fn notes_come_back_and_nonsense_is_none() {
        let kind = NoteKind::Data;
        let note = Note {
            kind,
            context: 1 << 60,
            sequence: 2,
            sender: 3,
            receiver: 4,
            receiver_rank: 5,
            edge: 6,
            step: 7,
            attempt: u32::MAX,
            offset: 1 << 33,
            total: 1 << 34,
        };
        let packet = Block::new(NOTE_BYTES + 3);
        note.write(packet.span().slice(0, NOTE_BYTES));
        let (read, data) = Note::read(&note.header(), packet.span()).expect("it is one");
        assert_eq!((read, data.bytes()), (note, 3));
        assert!(Note::read(&note.header(), packet.span().slice(0, NOTE_BYTES - 1)).is_none());
        let far = RemoteRange { key: u64::MAX, base: 5, bytes: 6 };
        for bytes in [0, 1, 8, 28] {
            let name = (0..bytes).collect();
            let place = ExposedSend { far, start: 7, name };
            let words = place.words();
            assert_eq!(ExposedSend::from_words(&words), Some(place));
            assert_eq!(ExposedSend::from_words(&words[..words.len() - 1]), None);
        }
        assert_eq!(ExposedSend::from_words(&[1, 2, 3, 4, u64::MAX, 0]), None);
        for kind in [0, transport::route::EDGE - 1, NoteKind::Parted as u8 + 1, u8::MAX] {
            assert!(Note::read(&Header { kind, ..note.header() }, packet.span()).is_none());
        }
    }
}
