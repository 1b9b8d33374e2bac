// SPDX-License-Identifier: BSD-3-Clause
//! Contexts: numbers that separate the messages and collectives of one comm from those of another.
//!
//! Members derive a new comm's context without traffic, as a hash of its parent's context and of the number
//! of comms that the parent has made. The hashes of two comms may be equal, so:
//! - a process refuses a context that it already uses (`Contexts`). Two comms disturb each other only in a
//!   process that is a member of both, so this finds every such pair;
//! - members compare a second hash when they exchange words anyway. If they are making different comms, the
//!   second hashes differ.

use error::{Class, Result, fail};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Two hashes of the calls that made a comm. All members compute the same hashes, and name the comm by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The first hash, below 2^62. The messages and collectives of the comm carry it.
    pub id: u64,
    /// A second hash of the calls that made the comm. It tells apart two comms whose first hashes are equal.
    pub fingerprint: u64,
}

/// The bits of a context id that come from the hash. The two highest bits are marks: bit 63 marks nonblocking
/// collectives (`comm`) and leaders' messages, bit 62 marks schedules for long blocks (`coll::LONG_BLOCKS`)
/// and messages to ports.
pub(crate) const ID_MASK: u64 = (1 << 62) - 1;

/// The context id of the message by which MPI_Comm_connect asks for a connection. The message has the port's
/// tag.
pub const PORT_CONTEXT: u64 = 1 << 62;

/// The context id of messages about windows between hosts. It has both marks, which no other context id has.
pub const WINDOW_CONTEXT: u64 = 3 << 62;

/// The context id of the later messages of MPI_Comm_connect: the answer, and the connecting root's last
/// message. No comm has the id 0, so `leaders_context` never returns this id.
pub const CONNECT_CONTEXT: u64 = 1 << 63;

/// Returns the context id of messages between the leaders of two groups, which they exchange over the comm
/// with the id `context`.
pub fn leaders_context(context: u64) -> u64 {
    1 << 63 | context
}

/// The context that stands for no parent when a context is derived. No comm has this context.
const NOTHING: Context = Context { id: 0, fingerprint: 0 };
/// The context of MPI_COMM_WORLD in the job's first world (its first set of processes), which has the number
/// 0.
const WORLD: Context = Context { id: 1, fingerprint: 1 };

impl Context {
    /// Returns the hash of this context and the words `words`, as a new context.
    pub fn derive(self, words: &[u64]) -> Context {
        Context { id: mixed(self.id, words) & ID_MASK, fingerprint: mixed(!self.fingerprint, words) }
    }

    /// Returns the context of MPI_COMM_WORLD in the world with the number `id`. Each MPI_Comm_spawn makes a
    /// world.
    pub fn of_world(id: u64) -> Context {
        if id == 0 { WORLD } else { NOTHING.derive(&[1, id]) }
    }

    /// Returns the context of MPI_COMM_SELF in world `id` at the process with the number `me` in the job. It
    /// differs between processes, because contexts of intercommunicators derive from it.
    pub fn of_self(id: u64, me: u32) -> Context {
        NOTHING.derive(&[2, id, me.into()])
    }

    /// Returns the context of the intercommunicator between the spawned world `id` and the processes that
    /// spawned it.
    pub fn of_spawn(id: u64) -> Context {
        NOTHING.derive(&[3, id])
    }

    /// Returns the context of the intercommunicator that MPI_Comm_connect and MPI_Comm_accept make in the
    /// connection with the number `id`.
    pub fn of_connection(id: u64) -> Context {
        NOTHING.derive(&[4, id])
    }

    /// Returns the context that stands for the parent of each comm that MPI_Comm_create_from_group makes,
    /// since such a comm has no parent.
    pub fn of_groups() -> Context {
        NOTHING.derive(&[5])
    }

    /// Returns the context of an intercommunicator, for which one group proposes `one` and the other group
    /// `other`. The order of the two does not matter.
    pub fn of_both(one: Context, other: Context) -> Context {
        let (a, b) = if one.id < other.id { (one, other) } else { (other, one) };
        let fingerprint = mixed(a.fingerprint, &[b.fingerprint]);
        Context { fingerprint, ..NOTHING.derive(&[6, a.id, b.id]) }
    }
}

/// Returns a 64-bit hash of `first` and `words`. Mixes each word in by the finaliser of MurmurHash3, in which
/// every output bit depends on every input bit.
pub fn mixed(first: u64, words: &[u64]) -> u64 {
    std::iter::once(&first).chain(words).fold(0x9e37_79b9_7f4a_7c15, |hash, word| {
        let mut x = hash ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ (x >> 33)
    })
}

/// Counts the calls that only some processes make. There is one count for each set of arguments on which the
/// calling processes agree, such as tag and members.
#[derive(Debug, Default)]
pub struct PartialCalls {
    calls: HashMap<(u64, u64), u64>,
}

impl PartialCalls {
    /// Counts one more call with the context `of` and the words `words`. Returns a new context. All processes
    /// that count the same calls compute the same context.
    pub fn context(&mut self, of: Context, words: &[u64]) -> Context {
        let key = of.derive(words);
        let calls = self.calls.entry((key.id, key.fingerprint)).or_insert(0);
        *calls += 1;
        key.derive(&[*calls])
    }
}

/// The context ids that this process uses now, and the ids that it has freed most recently: messages of a
/// freed comm may still be under way.
#[derive(Clone, Debug, Default)]
pub struct Contexts(Arc<Mutex<InUse>>);

#[derive(Debug, Default)]
struct InUse {
    ids: HashSet<u64>,
    retired: VecDeque<u64>,
}

/// How many of the latest freed context ids stay reserved.
const RETIRED_MAX: usize = 4096;

/// Reserves a context id in this process. The id stays reserved after the drop until `RETIRED_MAX` others
/// were dropped.
#[derive(Debug)]
pub struct ContextClaim {
    contexts: Contexts,
    id: u64,
}

impl Contexts {
    /// Reserves the context id `id` until the claim that is returned is dropped. Fails if this process
    /// already uses the id.
    pub fn claim(&self, id: u64) -> Result<ContextClaim> {
        if !self.lock().ids.insert(id) {
            fail!(
                Class::Other,
                "what is made here would get the context {id:#x}, which this process uses for something else: two hashes are equal, which two \
                 of 2^62 pairs are; make another communicator of the same parent, on all its members, before this one"
            );
        }
        Ok(ContextClaim { contexts: self.clone(), id })
    }

    fn lock(&self) -> MutexGuard<'_, InUse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContextClaim {
    /// Reserves the context id `id` for one operation on the comm that has this claim. The id stays reserved
    /// until `RETIRED_MAX` others were dropped. Fails if this process already uses the id.
    pub fn reserve_once(&self, id: u64) -> Result<()> {
        self.contexts.claim(id).map(drop)
    }
}

impl Drop for ContextClaim {
    fn drop(&mut self) {
        let mut in_use = self.contexts.lock();
        in_use.retired.push_back(self.id);
        if in_use.retired.len() > RETIRED_MAX {
            let oldest = in_use.retired.pop_front().expect("it is longer than nothing");
            in_use.ids.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_beginnings_are_alike() {
        let mut seen = HashSet::new();
        for id in 0..20 {
            // These include the first comms of MPI_Comm_split on the world, whose words are as small.
            let split = |color| Context::of_world(id).derive(&[1, color]);
            let made = [Context::of_world(id), Context::of_spawn(id), Context::of_connection(id)];
            let selves = (0..20).map(|me| Context::of_self(id, me));
            for context in made.into_iter().chain(selves).chain((0..20).map(split)) {
                assert!(seen.insert(context.id) && context.id <= ID_MASK, "world {id}: {context:?}");
            }
        }
        let others = [PORT_CONTEXT, CONNECT_CONTEXT, WINDOW_CONTEXT, leaders_context(1)];
        assert!(others.iter().all(|id| *id > ID_MASK && seen.insert(*id)));
    }

    #[test]
    fn the_two_sides_of_an_intercomm_come_to_one_context() {
        let [a, b] = [1, 2].map(|me| Context::of_self(0, me).derive(&[1, 0]));
        assert_eq!(Context::of_both(a, b), Context::of_both(b, a));
        let other = Context { fingerprint: 0, ..b };
        assert_eq!(Context::of_both(a, b).id, Context::of_both(a, other).id);
        assert_ne!(Context::of_both(a, b).fingerprint, Context::of_both(a, other).fingerprint);
    }

    // Goal: two objects of one process never have the same context, not even shortly after each other.
    #[test]
    fn a_context_is_given_once() {
        let contexts = Contexts::default();
        let claim = contexts.claim(5).unwrap();
        let refused = contexts.claim(5).unwrap_err();
        assert!(refused.message.contains("the context 0x5, which this process uses"), "{refused}");
        drop(claim);
        let other = contexts.claim(6).unwrap();
        (0..RETIRED_MAX as u64 - 1).for_each(|at| other.reserve_once(100 + at).unwrap());
        assert!(contexts.claim(5).is_err());
        other.reserve_once(7).unwrap();
        assert!(contexts.claim(5).is_ok());
        assert!(contexts.claim(6).is_err(), "its claim lives");
    }
}
