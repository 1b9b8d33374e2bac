//! Messages between the nodes of a simulated job: any number under way, each delivered at a random time.

use crate::{Edge, EdgeOutcome, Executor};
use rand::Rng;
use rand::rngs::SmallRng;

/// A message, known by sender, receiver, context and tag.
type Key = (u32, u32, u64, i32);

#[derive(Default)]
pub struct Network {
    /// What executors want: the rank, and its message.
    wanted: Vec<(u32, Edge)>,
    under_way: Vec<(Key, Vec<u8>)>,
    /// Messages that have come.
    pub carried: u64,
}

fn key(rank: u32, edge: &Edge) -> Key {
    let (from, to) = if edge.is_send { (rank, edge.peer) } else { (edge.peer, rank) };
    (from, to, edge.context, edge.tag)
}

impl Network {
    /// Takes what a rank wants.
    pub fn take(&mut self, rank: u32, executor: &mut Executor) {
        self.wanted.extend(std::iter::from_fn(|| executor.next_edge()).map(|edge| (rank, edge)));
    }

    /// Nothing is wanted, nothing under way.
    pub fn is_idle(&self) -> bool {
        self.wanted.is_empty() && self.under_way.is_empty()
    }

    /// A message leaves, or one comes, if the one that is chosen can.
    pub fn step<'a>(&mut self, rng: &mut SmallRng, executor: impl FnOnce(u32) -> &'a mut Executor) {
        if self.wanted.is_empty() {
            return;
        }
        let at = rng.random_range(0..self.wanted.len());
        let (rank, edge) = self.wanted[at];
        let mut bytes = vec![0; edge.span.bytes()];
        let outcome = if edge.is_send {
            edge.span.read(&mut bytes);
            self.under_way.push((key(rank, &edge), bytes));
            EdgeOutcome::Moved(edge.span.bytes() as u64)
        } else {
            let Some(found) = self.under_way.iter().position(|(one, _)| *one == key(rank, &edge)) else {
                return;
            };
            let (_, bytes) = self.under_way.swap_remove(found);
            self.carried += 1;
            if bytes.len() > edge.span.bytes() {
                EdgeOutcome::Longer
            } else {
                edge.span.slice(0, bytes.len()).write(&bytes);
                EdgeOutcome::Moved(bytes.len() as u64)
            }
        };
        self.wanted.swap_remove(at);
        executor(rank).edge_ended(&edge, outcome);
    }
}
