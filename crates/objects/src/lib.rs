// SPDX-License-Identifier: BSD-3-Clause
//! The MPI objects as data: comms, groups, infos, operators, error handlers, attributes, datatypes by handle.
//!
//! Invariants: numbers are those of the MPI-5.0 standard ABI (`constants`, which is generated). No function
//! here communicates, blocks, or calls a function of the program.
//!
//! Read next: `handle.rs`, `table.rs`, `comm.rs`.
#![forbid(unsafe_code)]

pub mod arrange;
pub mod attribute;
pub mod comm;
pub mod constants;
pub mod context;
pub mod errhandler;
pub mod errors;
pub mod group;
pub mod handle;
mod handle_name;
pub mod info;
pub mod op;
pub mod session;
pub mod table;
pub mod topology;

pub use attribute::{Attribute, AttributeValue, Attributes, Keyval, RegisteredKeyval};
pub use comm::{Comm, FlatState, QueueState};
pub use context::Context;
pub use errhandler::{Errhandler, ErrorAction};
pub use errors::Errors;
pub use group::Group;
pub use handle::{Handle, HandleKind};
pub use info::Info;
pub use op::Op;
pub use session::Session;
pub use table::HandleTable;
pub use topology::Topology;

use datatype::Datatype;
use error::{Result, fail};
use std::sync::Arc;

/// An entry of the table of datatypes: a datatype, and the name and the attributes that the program has given
/// it.
#[derive(Debug)]
pub struct TypeEntry {
    /// The datatype. Operations and other datatypes that use the datatype share it.
    pub datatype: Arc<Datatype>,
    /// The name that MPI_Type_set_name has set. Empty if there is none.
    pub name: String,
    pub attributes: Attributes,
}

/// All MPI objects of a process except its requests.
#[derive(Debug)]
pub struct Objects {
    pub comms: HandleTable<Comm>,
    pub groups: HandleTable<Arc<Group>>,
    pub datatypes: HandleTable<TypeEntry>,
    pub ops: HandleTable<Op>,
    pub errhandlers: HandleTable<Errhandler>,
    pub infos: HandleTable<Info>,
    /// The keyvals for all kinds of objects. A keyval's number is its handle as an int.
    pub keyvals: HandleTable<RegisteredKeyval>,
    pub sessions: HandleTable<Session>,
    /// The processes of this process's world (its MPI_COMM_WORLD), which are the process set mpi://WORLD.
    /// Empty until the process has joined its job.
    pub world: Arc<Group>,
    /// Counts the comms that MPI_Comm_create_from_group has made, which have no parent comm.
    pub from_groups: context::PartialCalls,
    pub contexts: context::Contexts,
    /// The error classes and codes that the program has added.
    pub errors: Errors,
    /// The error handler of MPI_FILE_NULL. Every new file gets this error handler. It is also called when a
    /// call fails that has no file, such as MPI_File_open.
    pub file_errhandler: Handle,
    /// Whether the program has set the error handler of MPI_COMM_SELF.
    pub self_errhandler_set: bool,
    /// This process's number in the job. `Group::peers` holds such numbers.
    pub me: u32,
    world_id: u64,
    /// The intercommunicator with the processes that spawned this process's world (MPI_Comm_get_parent).
    /// MPI_COMM_NULL in a world that was not spawned.
    pub parent: Handle,
}

impl Default for Objects {
    fn default() -> Objects {
        Objects::new()
    }
}

impl Objects {
    /// Makes the objects that a process has before MPI_Init: all predefined objects except the comms.
    pub fn new() -> Objects {
        let mut groups = HandleTable::new(HandleKind::Group);
        groups.predefine(constants::GROUP_EMPTY, Arc::new(Group::new([], 0)));
        let mut ops = HandleTable::new(HandleKind::Op);
        for (handle, op) in op::PREDEFINED {
            ops.predefine(handle, Op::Predefined(op));
        }
        let mut infos = HandleTable::new(HandleKind::Info);
        infos.predefine(constants::INFO_ENV, Info::default());
        let mut datatypes = HandleTable::new(HandleKind::Datatype);
        for number in datatype::predefined_handles() {
            let datatype = datatype::predefined(number).expect("listed as predefined").clone();
            let name = datatype::predefined_name(number).unwrap_or_default().to_owned();
            let attributes = Attributes::default();
            datatypes.predefine(Handle(number as usize), TypeEntry { datatype, name, attributes });
        }
        Objects {
            comms: HandleTable::new(HandleKind::Comm),
            groups,
            datatypes,
            ops,
            errhandlers: errhandler::table(),
            infos,
            keyvals: HandleTable::new(HandleKind::Keyval),
            sessions: HandleTable::new(HandleKind::Session),
            world: Arc::new(Group::new([], 0)),
            from_groups: context::PartialCalls::default(),
            contexts: context::Contexts::default(),
            errors: Errors::default(),
            file_errhandler: constants::ERRORS_RETURN,
            self_errhandler_set: false,
            me: 0,
            world_id: 0,
            parent: constants::COMM_NULL,
        }
    }

    /// Sets this process's number `me` in the job, the processes of its world, and the world's number. Called
    /// when the process has joined its job.
    pub fn join(&mut self, me: u32, peers: std::ops::Range<u32>, world: u64) {
        self.me = me;
        self.world_id = world;
        self.world = Arc::new(Group::new(peers.collect::<Vec<_>>(), me));
    }

    /// Makes MPI_COMM_WORLD and MPI_COMM_SELF, as MPI_Init does.
    pub fn enter_world(&mut self) -> Result<()> {
        let alone = Arc::new(Group::new([self.me], self.me));
        let world = Comm::new(Context::of_world(self.world_id), self.world.clone(), "MPI_COMM_WORLD");
        let alone = Comm::new(Context::of_self(self.world_id, self.me), alone, "MPI_COMM_SELF");
        for (handle, mut comm) in [(constants::COMM_WORLD, world), (constants::COMM_SELF, alone)] {
            comm.claim = Some(self.contexts.claim(comm.context)?);
            self.comms.predefine(handle, comm);
        }
        Ok(())
    }

    /// Adds a comm to the table of comms, and returns its handle. Fails if this process already uses the
    /// comm's context id.
    pub fn enter_comm(&mut self, mut comm: Comm) -> Result<Handle> {
        comm.claim = Some(self.contexts.claim(comm.context)?);
        self.comms.insert(comm)
    }

    /// Removes MPI_COMM_WORLD and MPI_COMM_SELF, as MPI_Finalize does.
    pub fn leave_world(&mut self) {
        self.comms.undefine(constants::COMM_WORLD);
        self.comms.undefine(constants::COMM_SELF);
    }

    /// Returns the comm whose error handler gets the errors of calls on no object. This is MPI_COMM_SELF (MPI
    /// 5.0, section 9.3) if the program has set that comm's error handler. Until then it is MPI_COMM_WORLD,
    /// as before MPI 4.0.
    pub fn comm_of_no_object(&self) -> Handle {
        if self.self_errhandler_set { constants::COMM_SELF } else { constants::COMM_WORLD }
    }

    /// Makes the intercommunicator with the processes `parents`, which have spawned this process's world.
    /// `world` is the world's number. Called after `enter_world`.
    pub fn join_parents(&mut self, parents: Vec<u32>, world: u64) -> Result<()> {
        let remote = Arc::new(Group::new(parents, self.me));
        let comm = Comm::between(Context::of_spawn(world), self.world.clone(), remote, "MPI_COMM_PARENT");
        errhandler::retain(&mut self.errhandlers, comm.errhandler, HandleKind::Comm)?;
        self.parent = self.enter_comm(comm)?;
        Ok(())
    }

    /// Returns the group of the process set with the name `name` (MPI 5.0, section 11.3.2). The name is a
    /// URI, so upper and lower case do not matter (RFC 3986, section 6.2.2.1).
    pub fn process_set(&self, name: &str) -> Result<Arc<Group>> {
        match session::PROCESS_SETS.iter().position(|known| known.eq_ignore_ascii_case(name)) {
            Some(0) => Ok(self.world.clone()),
            Some(_) => Ok(Arc::new(Group::new([self.me], self.me))),
            None => fail!(error::Class::Arg, "there is no process set \"{name}\""),
        }
    }

    #[inline]
    pub fn comm(&self, handle: Handle) -> Result<&Comm> {
        self.comms.get(handle)
    }

    /// Returns the datatype with the handle `handle`, whether it is committed or not.
    #[inline]
    pub fn datatype(&self, handle: Handle) -> Result<&Arc<Datatype>> {
        Ok(&self.datatypes.get(handle)?.datatype)
    }

    /// Returns the datatype with the handle `handle`, or MPI_ERR_TYPE if it is not committed.
    #[inline]
    pub fn committed(&self, handle: Handle) -> Result<&Arc<Datatype>> {
        let datatype = self.datatype(handle)?;
        if !datatype.is_committed() {
            fail!(error::Class::Type, "datatype {handle} has not been committed");
        }
        Ok(datatype)
    }

    #[inline]
    pub fn op(&self, handle: Handle) -> Result<Op> {
        self.ops.get(handle).copied()
    }

    pub fn group(&self, handle: Handle) -> Result<&Arc<Group>> {
        self.groups.get(handle)
    }

    /// Returns a copy of the info with the handle `handle`, or an empty info for MPI_INFO_NULL.
    pub fn info_or_empty(&self, handle: Handle) -> Result<Info> {
        if handle == constants::INFO_NULL { Ok(Info::default()) } else { self.infos.get(handle).cloned() }
    }

    /// Adds a group to the table of groups, and returns its handle. Returns MPI_GROUP_EMPTY for an empty
    /// group.
    pub fn enter_group(&mut self, group: Arc<Group>) -> Result<Handle> {
        if group.size() == 0 { Ok(constants::GROUP_EMPTY) } else { self.groups.insert(group) }
    }

    /// Adds a datatype to the table of datatypes, and returns its handle. A predefined datatype keeps its own
    /// handle.
    pub fn enter_datatype(&mut self, datatype: Arc<Datatype>) -> Result<Handle> {
        match datatype.predefined() {
            Some(number) => Ok(Handle(number as usize)),
            None => self.datatypes.insert(TypeEntry {
                datatype,
                name: String::new(),
                attributes: Attributes::default(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_begins_with_the_predefined_objects() {
        let mut objects = Objects::new();
        assert!(objects.comm(constants::COMM_WORLD).is_err());
        objects.join(1, 0..3, 0);
        objects.enter_world().unwrap();
        let world = objects.comm(constants::COMM_WORLD).unwrap();
        assert_eq!((world.size(), world.rank, world.name.as_str()), (3, 1, "MPI_COMM_WORLD"));
        assert_eq!(objects.comm(constants::COMM_SELF).unwrap().peer(0), Ok(1));
        assert_eq!(objects.committed(constants::INT).unwrap().size(), 4);
        assert!(objects.op(constants::SUM).unwrap().is_commutative());
        assert_eq!(&*objects.process_set("mpi://self").unwrap().peers, [1]);
        assert_eq!(objects.process_set("mpi://node").unwrap_err().class, error::Class::Arg);
        objects.leave_world();
        assert!(objects.comm(constants::COMM_WORLD).is_err());
        let error = objects.comm(constants::INT).unwrap_err();
        assert_eq!(error.message, "MPI_INT is not a communicator (it is a datatype)");
    }
}
