// SPDX-License-Identifier: BSD-3-Clause
//! A table whose keys (tickets) are never used twice. A ticket is the index of an entry of the table, and how
//! often that entry was emptied before (its generation).

/// A table that finds values by their tickets. The ticket of a value that was removed finds nothing, even
/// after another value has its place.
pub(crate) struct Tickets<T> {
    entries: Vec<TicketEntry<T>>,
    free: Vec<u32>,
}

struct TicketEntry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> TicketEntry<T> {
    /// Removes the value from this entry of the table, and counts the entry as emptied once more (its
    /// generation). It skips the last generation, so that u64::MAX is never a ticket.
    #[inline]
    fn vacate(&mut self) {
        self.value = None;
        self.generation = (self.generation + 1) % u32::MAX;
    }
}

impl<T> Tickets<T> {
    pub(crate) fn new() -> Tickets<T> {
        Tickets { entries: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        self.enter(value).0
    }

    /// Stores a value, and returns its ticket and a reference to it.
    #[inline]
    pub(crate) fn enter(&mut self, value: T) -> (u64, &mut T) {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.entries.push(TicketEntry { generation: 0, value: None });
                self.entries.len() as u32 - 1
            }
        };
        let entry = &mut self.entries[index as usize];
        (u64::from(entry.generation) << 32 | u64::from(index), entry.value.insert(value))
    }

    #[inline(always)]
    pub(crate) fn get(&self, ticket: u64) -> Option<&T> {
        let entry = self.entries.get(ticket as u32 as usize)?;
        if entry.generation == (ticket >> 32) as u32 { entry.value.as_ref() } else { None }
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, ticket: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut(ticket as u32 as usize)?;
        if entry.generation == (ticket >> 32) as u32 { entry.value.as_mut() } else { None }
    }

    /// Calls `answer` with the value that has this ticket. If `answer` returns Some, removes the value and
    /// returns the answer; otherwise, or if there is no such value, returns None. The value is not dropped,
    /// so `answer` must move everything out of it that needs a drop.
    #[inline(always)]
    pub(crate) fn remove_if<R>(
        &mut self,
        ticket: u64,
        answer: impl FnOnce(&mut T) -> Option<R>,
    ) -> Option<R> {
        let entry = self.entries.get_mut(ticket as u32 as usize)?;
        if entry.generation != (ticket >> 32) as u32 {
            return None;
        }
        let answer = answer(entry.value.as_mut()?)?;
        std::mem::forget(entry.value.take());
        entry.vacate();
        self.free.push(ticket as u32);
        Some(answer)
    }

    /// Whether this is the ticket of a value that was removed.
    pub(crate) fn existed(&self, ticket: u64) -> bool {
        self.entries
            .get(ticket as u32 as usize)
            .is_some_and(|entry| ((ticket >> 32) as u32) < entry.generation)
    }

    #[inline]
    pub(crate) fn remove(&mut self, ticket: u64) -> Option<T> {
        let entry = self.entries.get_mut(ticket as u32 as usize)?;
        if entry.generation != (ticket >> 32) as u32 {
            return None;
        }
        let value = entry.value.take()?;
        entry.vacate();
        self.free.push(ticket as u32);
        Some(value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_ticket_stays_dead() {
        let mut tickets = Tickets::new();
        let first = tickets.insert('a');
        assert_eq!(tickets.remove(first), Some('a'));
        let second = tickets.insert('b');
        assert_eq!(second as u32, first as u32, "the place is used again");
        assert_eq!(tickets.get(first), None);
        assert_eq!(tickets.remove(first), None);
        assert_eq!(tickets.get_mut(second), Some(&mut 'b'));
        assert_eq!(tickets.get(u64::MAX), None);
        assert!(tickets.existed(first) && !tickets.existed(second) && !tickets.existed(7));
        assert!(tickets.values().eq(&['b']));
    }
}
