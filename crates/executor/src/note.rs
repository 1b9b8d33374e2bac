// SPDX-License-Identifier: BSD-3-Clause
//! What executors on different hosts say to each other about edges (`far.rs`), as packets.

use std::any::Any;
use std::sync::Arc;
use sys::Span;
use transport::route::{Header, Pull, RemoteRange, Sent};
use transport::route_fabric::Exposed;

/// How notes travel, as packets that keep their order between two processes, and how bytes that a process
/// has exposed are read. A trait, because tests simulate it.
pub trait EdgePort {
    /// Sends a packet to an endpoint of the job, whose `bytes` bytes of payload `fill` writes.
    fn send(&mut self, to: u32, header: &Header, bytes: usize, fill: impl FnOnce(Span)) -> Sent;
    /// Whether `send` has room for such a packet, as far as is known.
    fn has_room(&mut self, to: u32, bytes: usize) -> bool;
    /// Calls `each` with the next packet that has come and its source; false if there is none.
    fn take(&mut self, each: impl FnOnce(u32, &Header, Span)) -> bool;
    /// The longest payload.
    fn payload_bytes_max(&self) -> usize;
    /// Exposes memory to peers, which stays mapped as long, until the lease is dropped, and under which name;
    /// nothing if that is refused.
    fn expose(&mut self, span: Span) -> Option<(RemoteRange, Box<[u8]>, Lease)>;
    /// Registers memory into which `pull` reads, until the lease is dropped; nothing if that is refused.
    fn register(&mut self, span: Span) -> Option<Lease>;
    /// Reads what an endpoint has exposed under a name, from `at` of it on. Nobody uses `to`, which `own`
    /// registers, and `own` stays, until `pulled` has told of `token`.
    fn pull(
        &mut self,
        from: (u32, &[u8]),
        far: (RemoteRange, u64),
        to: Span,
        own: &Lease,
        token: u32,
    ) -> Pull;
    /// A pull that has ended, and whether its bytes are there. If they are not, `to` may hold anything.
    fn pulled(&mut self) -> Option<(u32, bool)>;
    /// Pulls from what an endpoint has exposed under a name have ended, and no other is under way.
    fn acknowledge(&mut self, from: (u32, &[u8]));
    /// Why a living process is out of reach for good.
    fn broken(&self) -> Option<String>;
}

/// What keeps memory registered.
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

/// What a note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// To the server: send the bytes from `offset` on, unless that has begun unasked.
    Fetch = transport::route::EDGE,
    /// To the server: send them, whatever it has sent before.
    Again,
    /// From the server: bytes from `offset` on.
    Data,
    /// The same of a copy: the sender's operation does not wait until the receiver has it.
    Copied,
    /// From the server: all bytes below `offset` may be read. The words of a `Place` follow.
    Place,
    /// From the server: the send fails. The words of a `Fault` follow.
    Failed,
    /// To the server: all has been received.
    Done,
    /// From the server: the sender knows, or the server has forgotten the question.
    Known,
    /// To the server: the receiver was withdrawn, and asks no more.
    Leave,
    /// From the server: the sending rank drives the instance, and answers for it.
    Elsewhere,
    /// To the server: what it has sent unasked had no room.
    Refused,
    /// To a proxy on another computer (`imported.rs`): a rank joins it, ...
    Join,
    /// ... has the instance driven whose record lies at `offset` of its arena, ...
    Submit,
    /// ... drives an instance itself, ...
    Keep,
    /// ... which has ended, ...
    End,
    /// ... has ended the step `step` of an instance that both drive, whose `done` is `total`. If it has
    /// failed (`edge` is 1), the words of a `Fault` follow, else what it wrote to scratch, if that is short.
    Step,
    /// ... wants a message no more: its receive, unless that has begun, or its send.
    Withdraw,
    /// From such a proxy: the rank has joined.
    Welcome,
    /// From such a proxy: an instance is complete, or has come further. Only wakes the rank; the record's
    /// words say so, too.
    Over,
}

const _: () = assert!((Kind::Over as u8) < transport::route::EDGE + transport::route::EDGES);

/// A note about one edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub kind: Kind,
    /// The instance.
    pub context: u64,
    /// See `context`.
    pub sequence: u32,
    /// The two ranks, as peers of the job.
    pub sender: u32,
    pub receiver: u32,
    /// The edge, and the receiver's rank in the schedule: by these the sender knows the step.
    pub to: u32,
    pub edge: u32,
    /// The receiver's step, and how often its driver has asked: answers repeat these. In what a server sends
    /// unasked: the sender's rank in the schedule, and 0.
    pub step: u32,
    pub attempt: u32,
    pub offset: u64,
    /// The edge's bytes, as who writes the note knows them.
    pub total: u64,
}

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// It says nothing that is wanted.
    No,
    /// Its step has not begun.
    Early,
}

/// What the driver of an instance has to say.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    /// A note to an endpoint, and whether somebody waits for it.
    Note { to: u32, note: Note, is_awaited: bool },
    /// A send has begun to be published. The note is as its receiver's question.
    Published(Note),
}

/// Where the bytes of a send can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The exposed memory of its server.
    pub far: RemoteRange,
    /// The byte of the edge that lies at its beginning.
    pub start: u64,
    /// The name of the endpoint that lets peers read it.
    pub name: Arc<[u8]>,
}

impl Place {
    /// Four numbers, the length of the name, and the name, filled up.
    pub fn words(&self) -> Vec<u64> {
        let RemoteRange { key, base, bytes } = self.far;
        let head = [key, base, bytes, self.start, self.name.len() as u64];
        head.into_iter().chain(to_words(&self.name)).collect()
    }

    /// The place that words say, if they do.
    pub fn from_words(words: &[u64]) -> Option<Place> {
        let (&[key, base, bytes, start, length], name) = words.split_first_chunk()?;
        let length = usize::try_from(length).ok().filter(|length| length.div_ceil(8) <= name.len())?;
        let name = to_bytes(name, length).into();
        Some(Place { far: RemoteRange { base, key, bytes }, start, name })
    }
}

/// Bytes of a note in a packet.
pub(crate) const NOTE_BYTES: usize = 40;

impl Note {
    pub fn header(&self) -> Header {
        Header { kind: self.kind as u8, tag: self.attempt as i32, context: self.context }
    }

    pub fn write(&self, to: Span) {
        let mut bytes = [0; NOTE_BYTES];
        let short = [self.sequence, self.sender, self.receiver, self.to, self.edge, self.step];
        for (place, word) in bytes.chunks_exact_mut(4).zip(short) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[24..32].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.total.to_ne_bytes());
        to.write(&bytes);
    }

    /// A note, and what follows it; nothing if it is none.
    pub fn read(header: &Header, payload: Span) -> Option<(Note, Span)> {
        use Kind::*;
        let kinds = [
            Fetch, Again, Data, Copied, Place, Failed, Done, Known, Leave, Elsewhere, Refused, Join, Submit,
            Keep, End, Step, Withdraw, Welcome, Over,
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
            to: word(3),
            edge: word(4),
            step: word(5),
            attempt: header.tag as u32,
            offset: long(24),
            total: long(32),
        };
        Some((note, payload.slice(NOTE_BYTES, payload.bytes() - NOTE_BYTES)))
    }

    /// A note of or to a rank about an instance as a whole.
    pub fn order(kind: Kind, rank: u32, context: u64, sequence: u32, offset: u64) -> Note {
        Note {
            kind,
            context,
            sequence,
            sender: rank,
            receiver: rank,
            to: 0,
            edge: 0,
            step: 0,
            attempt: 0,
            offset,
            total: 0,
        }
    }

    /// Whether both are about the same edge of the same instance.
    pub fn is_edge_of(&self, other: &Note) -> bool {
        let key = |note: &Note| (note.context, note.sequence, note.sender, note.to, note.edge);
        key(self) == key(other)
    }
}

/// Sends a note and words that follow it.
pub(crate) fn send_words(port: &mut impl EdgePort, to: u32, note: &Note, words: &[u64]) -> Sent {
    port.send(to, &note.header(), NOTE_BYTES + 8 * words.len(), |span| {
        note.write(span.slice(0, NOTE_BYTES));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        span.slice(NOTE_BYTES, bytes.len()).write(&bytes);
    })
}

/// Bytes as words, the last one filled up.
pub(crate) fn to_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_ne_bytes(word)
    })
}

/// The first bytes of words.
pub(crate) fn to_bytes(words: &[u64], bytes: usize) -> Vec<u8> {
    let mut all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    all.truncate(bytes);
    all
}

/// The words that follow a note.
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
        let kind = Kind::Data;
        let note = Note {
            kind,
            context: 1 << 60,
            sequence: 2,
            sender: 3,
            receiver: 4,
            to: 5,
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
            let place = Place { far, start: 7, name };
            let words = place.words();
            assert_eq!(Place::from_words(&words), Some(place));
            assert_eq!(Place::from_words(&words[..words.len() - 1]), None);
        }
        assert_eq!(Place::from_words(&[1, 2, 3, 4, u64::MAX, 0]), None);
        for kind in [0, transport::route::EDGE - 1, Kind::Over as u8 + 1, u8::MAX] {
            assert!(Note::read(&Header { kind, ..note.header() }, packet.span()).is_none());
        }
    }
}
