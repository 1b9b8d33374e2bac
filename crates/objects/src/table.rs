// SPDX-License-Identifier: BSD-3-Clause
//! Tables of MPI objects, one for each kind. A table finds the value of a handle with one bounds check and
//! one comparison.

use crate::handle::{Handle, HandleKind, INDEX_MAX};
use error::{Class, Error, Result, fail};

/// The live objects of one kind, each in an entry of `slots`.
///
/// Invariants: only the entry's current handle finds its value. After `remove` the old handle finds no value
/// until the entry has been used 32 times more.
#[derive(Debug)]
pub struct HandleTable<T> {
    kind: HandleKind,
    first: usize,
    predefined: Vec<Option<T>>,
    slots: Vec<TableSlot<T>>,
    free: Vec<u32>,
    removals: u64,
}

#[derive(Debug)]
struct TableSlot<T> {
    handle: Handle,
    generation: u32,
    value: Option<T>,
}

/// The table entry of a live object that the program made. A caller changes or removes the object through it.
pub struct OccupiedEntry<'a, T> {
    slot: &'a mut TableSlot<T>,
    free: &'a mut Vec<u32>,
    removals: &'a mut u64,
    index: u32,
}

impl<T> OccupiedEntry<'_, T> {
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.slot.value.as_mut().expect("an entry has a value")
    }

    /// Removes the object from the table and returns its value. The object's handle is not valid any more.
    #[inline]
    pub fn remove(mut self) -> T {
        self.leave();
        self.slot.value.take().expect("an entry has a value")
    }

    /// Removes the object from the table and drops its value. The object's handle is not valid any more.
    #[inline]
    pub fn discard(mut self) {
        self.leave();
        self.slot.value = None;
    }

    #[inline]
    fn leave(&mut self) {
        self.free.push(self.index);
        *self.removals += 1;
    }
}

impl<T> HandleTable<T> {
    pub fn new(kind: HandleKind) -> HandleTable<T> {
        HandleTable {
            kind,
            first: kind.predefined().0,
            predefined: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            removals: 0,
        }
    }

    /// Returns how many values were removed or redefined so far. While this number is the same, a handle that
    /// has found a value finds the same value again.
    #[inline(always)]
    pub fn removals(&self) -> u64 {
        self.removals
    }

    /// Gives the predefined handle `handle` the value `value`. From now on `get(handle)` returns this value.
    pub fn predefine(&mut self, handle: Handle, value: T) {
        let at = handle.0.checked_sub(self.first).expect("a predefined handle of this kind");
        if self.predefined.len() <= at {
            self.predefined.resize_with(at + 1, || None);
        }
        self.predefined[at] = Some(value);
        self.removals += 1;
    }

    /// Removes the value of the predefined handle `handle`.
    pub fn undefine(&mut self, handle: Handle) {
        self.predefined[handle.0 - self.first] = None;
        self.removals += 1;
    }

    /// Whether the table has no object that the program made. Predefined objects do not count.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Adds a value, and returns a new handle for it. Returns MPI_ERR_OTHER if the table has two million
    /// values.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> Result<Handle> {
        self.reserve()?;
        Ok(self.put(value))
    }

    /// Adds a value, and returns a new handle for it. The caller has called `reserve` before, so the table
    /// has a free entry.
    #[inline(always)]
    pub fn put(&mut self, value: T) -> Handle {
        let index = self.free.pop().expect("there is room");
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.handle = Handle::new(self.kind, slot.generation, index);
        // A free slot holds no value that must be dropped.
        std::mem::forget(slot.value.replace(value));
        slot.handle
    }

    /// Makes sure that the table has a free entry for one more value. Returns MPI_ERR_OTHER if the table has
    /// two million values.
    #[inline(always)]
    pub fn reserve(&mut self) -> Result<()> {
        if self.free.is_empty() { self.grow() } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self) -> Result<()> {
        let index = self.slots.len() as u32;
        if index >= INDEX_MAX {
            fail!(
                Class::Other,
                "{} more than {INDEX_MAX} live ones of its kind cannot be made",
                self.kind.noun()
            );
        }
        let handle = Handle::new(self.kind, 0, index);
        self.slots.push(TableSlot { handle, generation: u32::MAX, value: None });
        self.free.push(index);
        Ok(())
    }

    /// Returns the value of the object with the handle `handle`. Errors: no such object is alive; the text
    /// says why (null, freed, of another kind).
    #[inline(always)]
    pub fn get(&self, handle: Handle) -> Result<&T> {
        match self.find(handle) {
            Some(value) => Ok(value),
            None => Err(self.explain(handle)),
        }
    }

    #[inline(always)]
    pub fn get_mut(&mut self, handle: Handle) -> Result<&mut T> {
        if self.find(handle).is_none() {
            return Err(self.explain(handle));
        }
        if let Some(index) = handle.slot(self.kind) {
            return Ok(self.slots[index].value.as_mut().expect("found above"));
        }
        Ok(self.predefined[handle.0 - self.first].as_mut().expect("found above"))
    }

    /// Returns the table entry of an object that the program made, to change or remove the object. Fails for
    /// a predefined object.
    #[inline(always)] // Like `get`.
    pub fn entry(&mut self, handle: Handle) -> Result<OccupiedEntry<'_, T>> {
        let alive = |slot: &TableSlot<T>| slot.handle == handle && slot.value.is_some();
        match handle.slot(self.kind) {
            Some(index) if self.slots.get(index).is_some_and(alive) => Ok(OccupiedEntry {
                slot: &mut self.slots[index],
                free: &mut self.free,
                removals: &mut self.removals,
                index: index as u32,
            }),
            _ => Err(self.no_entry(handle)),
        }
    }

    #[cold]
    fn no_entry(&self, handle: Handle) -> Error {
        if self.find(handle).is_none() {
            return self.explain(handle);
        }
        Error::new(self.kind.class(), format!("{handle} is predefined and cannot be freed"))
    }

    /// Removes the object with the handle `handle`, and returns its value. The handle is not valid any more.
    /// Fails for a predefined object.
    pub fn remove(&mut self, handle: Handle) -> Result<T> {
        Ok(self.entry(handle)?.remove())
    }

    /// Whether the handle is a constant of the standard ABI.
    pub fn is_predefined(&self, handle: Handle) -> bool {
        handle.slot(self.kind).is_none()
    }

    /// Lists the live objects that the program made, each with its handle.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref().map(|value| (slot.handle, value)))
    }

    #[inline(always)]
    fn find(&self, handle: Handle) -> Option<&T> {
        if let Some(index) = handle.slot(self.kind) {
            let slot = self.slots.get(index)?;
            return if slot.handle == handle { slot.value.as_ref() } else { None };
        }
        self.predefined.get(handle.0.wrapping_sub(self.first))?.as_ref()
    }

    #[cold]
    fn explain(&self, handle: Handle) -> Error {
        let noun = self.kind.noun();
        let sentence = match handle.kind() {
            _ if handle.0 == self.first => format!("{handle} is given where {noun} is needed"),
            Some(kind) if kind == self.kind => match handle.slot(kind) {
                _ if handle.number(kind).is_some() => {
                    format!("{handle} is {noun} that has been freed, or is not of those that this call takes")
                }
                Some(index) if index < self.slots.len() => format!("{handle} is {noun} that has been freed"),
                _ => format!("{handle} is no handle that this process was given for {noun}"),
            },
            Some(kind) => format!("{handle} is not {noun} (it is {})", kind.noun()),
            None => format!("{handle} is not {noun}, nor any other MPI object of this process"),
        };
        Error::new(self.kind.class(), sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants;

    #[test]
    fn a_wrong_handle_is_named() {
        let mut comms = HandleTable::new(HandleKind::Comm);
        let mut groups = HandleTable::new(HandleKind::Group);
        let comm = comms.insert("c").unwrap();
        let group = groups.insert("g").unwrap();
        assert_eq!(comms.get(comm), Ok(&"c"));
        let error = comms.get(group).unwrap_err();
        assert_eq!(error.class, Class::Comm);
        assert!(error.message.ends_with("is not a communicator (it is a group)"), "{error}");
        comms.remove(comm).unwrap();
        assert!(comms.get(comm).unwrap_err().message.ends_with("has been freed"));
        let next = comms.insert("d").unwrap();
        assert_ne!(next, comm);
        assert!(comms.get(comm).unwrap_err().message.ends_with("has been freed"));
        let null = comms.get(constants::COMM_NULL).unwrap_err();
        assert!(null.message.starts_with("MPI_COMM_NULL"), "{null}");
        assert!(comms.get(Handle(usize::MAX)).is_err());
        let numbered = comms.get(Handle::numbered(HandleKind::Comm, 5)).unwrap_err();
        assert!(
            numbered.message.contains("is a communicator that has been freed, or is not of those"),
            "{numbered}"
        );
        let other = comms.get(Handle::numbered(HandleKind::Request, 5)).unwrap_err();
        assert!(other.message.ends_with("is not a communicator (it is a request)"), "{other}");
        assert!(comms.get(Handle(0)).is_err());
    }

    #[test]
    fn entries_change_and_go() {
        let mut comms = HandleTable::new(HandleKind::Comm);
        comms.predefine(constants::COMM_WORLD, 'w');
        let (first, second) = (comms.insert('a').unwrap(), comms.insert('b').unwrap());
        *comms.entry(first).unwrap().get_mut() = 'c';
        assert_eq!(comms.entry(first).unwrap().remove(), 'c');
        comms.entry(second).unwrap().discard();
        assert!(comms.is_empty() && comms.get(second).is_err());
        assert!(comms.entry(first).is_err_and(|error| error.message.ends_with("has been freed")));
        assert!(comms.entry(constants::COMM_WORLD).is_err_and(|error| error.message.contains("predefined")));
    }

    #[test]
    fn predefined_objects_cannot_be_freed() {
        let mut comms = HandleTable::new(HandleKind::Comm);
        comms.predefine(constants::COMM_WORLD, 1);
        *comms.get_mut(constants::COMM_WORLD).unwrap() = 2;
        assert_eq!(comms.get(constants::COMM_WORLD), Ok(&2));
        assert_eq!(comms.remove(constants::COMM_WORLD).unwrap_err().class, Class::Comm);
    }

    #[test]
    fn handles_are_positive_ints() {
        let mut keyvals = HandleTable::new(HandleKind::Keyval);
        for _ in 0..100 {
            let handle = keyvals.insert(()).unwrap();
            assert!(handle.to_int() > 1024);
            assert_eq!(Handle::from_int(handle.to_int()), handle);
            keyvals.remove(handle).unwrap();
        }
    }
}
