// SPDX-License-Identifier: BSD-3-Clause
//! Open files (MPI 5.0, sections 14.2 to 14.4).

use crate::access::{Access, AccessDirection};
use crate::failure::failure;
use crate::hints::Hints;
use crate::pool::Promise;
use crate::shared_pointer::SharedPointer;
use crate::storage::Storage;
use crate::view::{KnownViews, View};
use coll::Members;
use datatype::Buffer;
use error::{Class, Error, Result, fail};
use objects::constants as c;
use objects::{Comm, Handle};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub struct OpenFile {
    pub storage: Arc<Storage>,
    /// A duplicate of the comm that opened the file. So the file's collectives have contexts of their own.
    pub comm: Comm,
    pub amode: i32,
    pub hints: Arc<Hints>,
    pub view: Arc<View>,
    /// The views of all ranks. Empty until the first collective access that needs them has exchanged them.
    pub known: KnownViews,
    /// The individual file pointer: this rank's position in its view, in etypes.
    pub position: i64,
    /// The shared file pointer, which is in rank 0's memory; None if rank 0 is on another host.
    pub shared: Option<SharedPointer>,
    /// The window through which ranks on other hosts than rank 0's reach the shared file pointer; None if the
    /// file's ranks are on one host.
    pub counter: Option<Handle>,
    /// Whether accesses are atomic (MPI_File_set_atomicity).
    pub atomic: bool,
    /// The split collective access that has begun and was not ended by the program; None if there is none.
    pub split: Option<SplitAccess>,
    /// The file's error handler. The file counts as one reference to it in the table of error handlers of
    /// `Objects`.
    pub errhandler: Handle,
}

/// The state between the begin and the end function of a split collective access.
#[derive(Clone, Debug)]
pub struct SplitAccess {
    /// The name of the access without its suffix, such as `MPI_File_read_all` of MPI_File_read_all_begin.
    pub name: &'static str,
    /// The outcome of the access: how many bytes of the program's memory were moved.
    pub outcome: Promise<Result<u64>>,
}

/// Prefixes by which users of ROMIO choose a file system. This library treats all file systems alike.
const PREFIXES: [&str; 6] = ["ufs:", "nfs:", "xfs:", "lustre:", "gpfs:", "panfs:"];

/// Returns the path of the file `name`, without one of the `PREFIXES`.
pub fn path_of(name: PathBuf) -> PathBuf {
    let text = name.to_string_lossy();
    match PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)) {
        Some(rest) => PathBuf::from(rest),
        None => name,
    }
}

pub const AMODES: i32 = c::MODE_RDONLY
    | c::MODE_RDWR
    | c::MODE_WRONLY
    | c::MODE_CREATE
    | c::MODE_EXCL
    | c::MODE_DELETE_ON_CLOSE
    | c::MODE_UNIQUE_OPEN
    | c::MODE_SEQUENTIAL
    | c::MODE_APPEND;

/// Fails with MPI_ERR_AMODE if the flags of an access mode do not go together: two exclude each other, or one
/// is missing (MPI 5.0, section 14.2.1).
pub fn check_amode(amode: i32) -> Result<()> {
    let ways = [c::MODE_RDONLY, c::MODE_RDWR, c::MODE_WRONLY];
    if ways.iter().filter(|way| amode & **way != 0).count() != 1 {
        fail!(
            Class::Amode,
            "amode {amode:#x} does not have just one of MPI_MODE_RDONLY, MPI_MODE_RDWR and MPI_MODE_WRONLY"
        );
    }
    if amode & c::MODE_RDONLY != 0 && amode & (c::MODE_CREATE | c::MODE_EXCL) != 0 {
        fail!(Class::Amode, "MPI_MODE_CREATE and MPI_MODE_EXCL do not go with MPI_MODE_RDONLY");
    }
    if amode & c::MODE_RDWR != 0 && amode & c::MODE_SEQUENTIAL != 0 {
        fail!(Class::Amode, "MPI_MODE_RDWR does not go with MPI_MODE_SEQUENTIAL");
    }
    Ok(())
}

/// Opens a file in the access mode `amode`. If this mode has MPI_MODE_CREATE, the rank that passes `makes`
/// creates the file with `permissions`; no other rank creates it.
pub fn open(path: &Path, amode: i32, permissions: u32, makes: bool) -> Result<Storage> {
    let makes_now = makes && amode & c::MODE_CREATE != 0;
    let attempt = |read: bool| {
        std::fs::OpenOptions::new()
            .read(read)
            .write(amode & c::MODE_RDONLY == 0)
            .create(makes_now)
            .create_new(makes_now && amode & c::MODE_EXCL != 0)
            .mode(permissions)
            .open(path)
    };
    // Data sieving needs to read, so the file is opened for that, too, if it is permitted.
    let (file, readable) = match attempt(true) {
        Err(error) if amode & c::MODE_WRONLY != 0 && error.kind() == std::io::ErrorKind::PermissionDenied => {
            (attempt(false), false)
        }
        file => (file, true),
    };
    let file = file.map_err(|error| failure(path, "open", &error))?;
    let is_folder = file.metadata().is_ok_and(|facts| facts.is_dir());
    if is_folder {
        return Err(Error::new(Class::BadFile, format!("{} is a folder", path.display())));
    }
    Ok(Storage::new(file, path.to_owned(), readable))
}

pub fn delete(path: &Path) -> Result<()> {
    std::fs::remove_file(path).map_err(|error| failure(path, "delete", &error))
}

impl OpenFile {
    /// Returns the file's ranks as the members of a new collective, which has a context of its own. All ranks
    /// of the file must make these calls in the same order, so that their contexts agree.
    pub fn members(&mut self) -> Result<Members> {
        Ok(Members {
            context: self.comm.operation_context()?,
            sequence: 0,
            rank: self.comm.rank,
            peers: self.comm.group.peers.clone(),
            first_group: 0,
        })
    }

    /// Checks that an access at another position than the shared file pointer's is allowed:
    /// MPI_MODE_SEQUENTIAL forbids it (MPI 5.0, section 14.2.1).
    pub fn check_random(&self) -> Result<()> {
        if self.amode & c::MODE_SEQUENTIAL != 0 {
            fail!(
                Class::UnsupportedOperation,
                "{} was opened with MPI_MODE_SEQUENTIAL, which allows only the shared file pointer",
                self.storage.path().display()
            );
        }
        Ok(())
    }

    /// Checks that the access mode with which the file was opened permits a read or a write (`way`).
    pub fn check_way(&self, way: AccessDirection) -> Result<()> {
        let path = self.storage.path().display();
        match way {
            AccessDirection::Read if self.amode & c::MODE_WRONLY != 0 => {
                fail!(Class::Access, "{path} was opened with MPI_MODE_WRONLY and cannot be read")
            }
            AccessDirection::Write if self.amode & c::MODE_RDONLY != 0 => {
                fail!(Class::ReadOnly, "{path} was opened with MPI_MODE_RDONLY and cannot be written")
            }
            _ => Ok(()),
        }
    }

    /// Converts `bytes` data bytes of the view to a number of etypes. Errors (MPI_ERR_ARG): the bytes are no
    /// whole number of etypes.
    pub fn etypes(&self, bytes: u64) -> Result<i64> {
        let unit = self.view.etype_bytes;
        if !bytes.is_multiple_of(unit) {
            fail!(Class::Arg, "{bytes} bytes in the file are no whole number of etypes of {unit} bytes");
        }
        Ok((bytes / unit) as i64)
    }

    /// Makes an access that moves `bytes` bytes between `memory` and the file. It begins at offset `etypes`
    /// of the view, counted in etypes.
    pub fn access(&self, etypes: i64, memory: Buffer, bytes: u64) -> Result<Access> {
        let from = self.view.packed(etypes)?;
        if bytes > 0 && self.view.tiles.tile_bytes() == 0 {
            fail!(Class::Arg, "the view's filetype has no data, so that {bytes} bytes have no place in it");
        }
        if !self.view.tiles.holds(from, bytes) {
            fail!(Class::Arg, "{bytes} bytes from offset {etypes} of the view reach beyond 2^63 bytes");
        }
        Ok(Access {
            storage: self.storage.clone(),
            hints: self.hints.clone(),
            tiles: self.view.tiles.clone(),
            from,
            memory,
            atomic: self.atomic,
        })
    }

    /// Returns the position, in etypes, to which a seek from the position `current` leads.
    pub fn target(&self, current: i64, offset: i64, whence: i32) -> Result<i64> {
        let start = match whence {
            c::SEEK_SET => 0,
            c::SEEK_CUR => current,
            c::SEEK_END => self.view.end(self.storage.size()?),
            _ => fail!(Class::Arg, "whence is {whence}, not MPI_SEEK_SET, MPI_SEEK_CUR or MPI_SEEK_END"),
        };
        match start.checked_add(offset) {
            Some(target) if target >= 0 => Ok(target),
            _ => fail!(Class::Arg, "offset {offset} from {start} leads before the beginning of the view"),
        }
    }

    /// Advances the individual file pointer by `etypes`. Returns its old value.
    pub fn advance(&mut self, etypes: i64) -> i64 {
        let now = self.position;
        self.position = now.saturating_add(etypes);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_contradict_themselves() {
        assert!(check_amode(c::MODE_RDWR | c::MODE_CREATE | c::MODE_EXCL | c::MODE_APPEND).is_ok());
        for wrong in [
            0,
            c::MODE_CREATE,
            c::MODE_RDONLY | c::MODE_WRONLY,
            c::MODE_RDONLY | c::MODE_CREATE,
            c::MODE_RDONLY | c::MODE_EXCL,
            c::MODE_RDWR | c::MODE_SEQUENTIAL,
            AMODES,
        ] {
            assert_eq!(check_amode(wrong).unwrap_err().class, Class::Amode, "{wrong:#x}");
        }
    }

    #[test]
    fn errors_of_opening_have_their_classes() {
        let folder = std::env::temp_dir().join(format!("outboard-open-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("x");
        let class = |path: &Path, amode| open(path, amode, 0o666, true).unwrap_err().class;
        assert_eq!(class(&path, c::MODE_RDWR), Class::NoSuchFile);
        open(&path, c::MODE_RDWR | c::MODE_CREATE, 0o666, true).unwrap();
        assert_eq!(class(&path, c::MODE_RDWR | c::MODE_CREATE | c::MODE_EXCL), Class::FileExists);
        assert_eq!(class(&folder, c::MODE_RDWR), Class::BadFile);
        assert_eq!(class(&folder, c::MODE_RDONLY), Class::BadFile);
        assert_eq!(class(&path.join("y"), c::MODE_RDWR), Class::BadFile);
        let other = open(&path, c::MODE_RDWR | c::MODE_CREATE | c::MODE_EXCL, 0o666, false);
        assert!(other.is_ok(), "only the first makes it");
        delete(&path).unwrap();
        assert_eq!(delete(&path).unwrap_err().class, Class::NoSuchFile);
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn prefixes_are_left_off() {
        assert_eq!(path_of("ufs:/tmp/x".into()), Path::new("/tmp/x"));
        assert_eq!(path_of("nfs:x".into()), Path::new("x"));
        assert_eq!(path_of("other:x".into()), Path::new("other:x"));
    }
}
