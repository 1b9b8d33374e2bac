// SPDX-License-Identifier: BSD-3-Clause
//! A rank's requests to its launcher, and the launcher's answers, as bytes: a number has eight bytes, a text
//! has its length before it.
//!
//! | request (first number) | fields | answer of `mpirun` |
//! |---|---|---|
//! | `Spawn` (1) | parents, directory, programs | `Spawned`: world, first rank, counts |
//! | `Publish` (2) | service, port | empty |
//! | `Unpublish` (3) | service | empty |
//! | `Lookup` (4) | service | the port |
//!
//! A rank and its launcher are of one build, so they send no version. A rank may be broken, so `mpirun`
//! checks all that it reads.

use error::{Class, Error, Result};

/// A request of a rank to its launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks the launcher to start processes (MPI 5.0, section 11.8). The answer is `Spawned`.
    Spawn(Spawn),
    /// Asks the launcher to publish a port under a service name (section 11.9.4). The answer is empty.
    Publish {
        /// The service name under which other processes look for the port.
        service: String,
        /// The name of the port, as MPI_Open_port has returned it.
        port: String,
    },
    /// Asks the launcher to forget the port that is published under a service name (section 11.9.4). The
    /// answer is empty.
    Unpublish {
        /// The service name whose port is to be forgotten.
        service: String,
    },
    /// Asks the launcher for the port that was published under a service name. The answer is the port's name.
    Lookup {
        /// The service name under which the port was published.
        service: String,
    },
}

/// The programs that one call of MPI_Comm_spawn or MPI_Comm_spawn_multiple starts together, as one world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spawn {
    /// The ranks of the spawning comm, in the comm's order, by their numbers in the job.
    pub parents: Vec<u32>,
    /// The working directory of the rank that is the root of MPI_Comm_spawn.
    pub directory: Vec<u8>,
    /// The programs to start.
    pub programs: Vec<SpawnProgram>,
}

/// One program that MPI_Comm_spawn starts, and the number of its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpawnProgram {
    /// How many processes to start of this program.
    pub count: u64,
    /// The words of the program's command line: its name, then its arguments.
    pub words: Vec<Vec<u8>>,
    /// The keys and values of the info argument of MPI_Comm_spawn, for this program.
    pub info: Vec<(String, String)>,
}

/// The launcher's answer to `Spawn`: the world that it has started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spawned {
    /// The number of the started world, which no other world of the job has.
    pub world: u64,
    /// The process number of the world's first rank. Its other ranks have the next numbers.
    pub first: u32,
    /// For each program of the request, how many processes the launcher has started.
    pub counts: Vec<u64>,
}

/// The bytes of a request or answer, to which numbers and texts are appended.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

/// The bytes of a request or answer that have not been read yet; each read shortens them.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl Writer {
    /// Appends a number, as eight bytes.
    pub fn number(&mut self, number: u64) -> &mut Writer {
        self.0.extend(number.to_ne_bytes());
        self
    }

    /// Appends a text: its length, then its bytes.
    pub fn text(&mut self, text: impl AsRef<[u8]>) -> &mut Writer {
        self.number(text.as_ref().len() as u64);
        self.0.extend(text.as_ref());
        self
    }

    /// Returns all bytes that have been appended.
    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}

impl<'a> Reader<'a> {
    /// Makes a reader that starts at the first of these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Reads a number of eight bytes. Errors (MPI_ERR_INTERN): there are fewer bytes left.
    pub fn number(&mut self) -> Result<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>().ok_or_else(short)?;
        self.0 = rest;
        Ok(u64::from_ne_bytes(*head))
    }

    /// Reads a text: its length, then that many bytes of any kind. Errors (MPI_ERR_INTERN): the bytes are cut
    /// short.
    pub fn bytes(&mut self) -> Result<Vec<u8>> {
        let length = self.number()?;
        let (head, rest) =
            usize::try_from(length).ok().and_then(|at| self.0.split_at_checked(at)).ok_or_else(short)?;
        self.0 = rest;
        Ok(head.to_vec())
    }

    /// Reads a text: its length, then that many bytes. Errors (MPI_ERR_INTERN): the bytes are cut short, or
    /// are not UTF-8.
    pub fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?).map_err(|_| short())
    }

    /// Reads a list: its length, then as many elements, each by `read`.
    fn each<T>(&mut self, mut read: impl FnMut(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
        (0..self.number()?).map(|_| read(self)).collect()
    }
}

fn short() -> Error {
    Error::new(Class::Intern, "a message between a rank and its launcher is cut short or no text".to_owned())
}

impl Request {
    /// Returns this request as bytes, which `from_bytes` reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Request::Spawn(spawn) => spawn.write(writer.number(1)),
            Request::Publish { service, port } => {
                writer.number(2).text(service).text(port);
            }
            Request::Unpublish { service } => {
                writer.number(3).text(service);
            }
            Request::Lookup { service } => {
                writer.number(4).text(service);
            }
        }
        writer.bytes()
    }

    /// Reads the bytes of a request. Errors (MPI_ERR_INTERN): they are no request.
    pub fn from_bytes(bytes: &[u8]) -> Result<Request> {
        let mut reader = Reader::new(bytes);
        match reader.number()? {
            1 => Spawn::read(&mut reader).map(Request::Spawn),
            2 => Ok(Request::Publish { service: reader.text()?, port: reader.text()? }),
            3 => Ok(Request::Unpublish { service: reader.text()? }),
            4 => Ok(Request::Lookup { service: reader.text()? }),
            _ => Err(short()),
        }
    }
}

impl Spawn {
    /// Returns the fields as bytes, without the number that says which request it is.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.write(&mut writer);
        writer.bytes()
    }

    /// Reads the fields of a spawn from the bytes that `to_bytes` has returned. Errors (MPI_ERR_INTERN): they
    /// are not such fields.
    pub fn from_bytes(bytes: &[u8]) -> Result<Spawn> {
        Spawn::read(&mut Reader::new(bytes))
    }

    fn write(&self, writer: &mut Writer) {
        writer.number(self.parents.len() as u64);
        for parent in &self.parents {
            writer.number(u64::from(*parent));
        }
        writer.text(&self.directory).number(self.programs.len() as u64);
        for program in &self.programs {
            writer.number(program.count).number(program.words.len() as u64);
            for word in &program.words {
                writer.text(word);
            }
            writer.number(program.info.len() as u64);
            for (key, value) in &program.info {
                writer.text(key).text(value);
            }
        }
    }

    fn read(reader: &mut Reader) -> Result<Spawn> {
        let parents = reader.each(|reader| Ok(reader.number()? as u32))?;
        let directory = reader.bytes()?;
        let programs = reader.each(|reader| {
            Ok(SpawnProgram {
                count: reader.number()?,
                words: reader.each(Reader::bytes)?,
                info: reader.each(|reader| Ok((reader.text()?, reader.text()?)))?,
            })
        })?;
        Ok(Spawn { parents, directory, programs })
    }
}

impl Spawned {
    /// Returns this answer as bytes, which `from_bytes` reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.number(self.world).number(u64::from(self.first)).number(self.counts.len() as u64);
        for count in &self.counts {
            writer.number(*count);
        }
        writer.bytes()
    }

    /// Reads the bytes of the launcher's answer to `Spawn`. Errors (MPI_ERR_INTERN): they are cut short.
    pub fn from_bytes(bytes: &[u8]) -> Result<Spawned> {
        let mut reader = Reader::new(bytes);
        Ok(Spawned {
            world: reader.number()?,
            first: reader.number()? as u32,
            counts: reader.each(Reader::number)?,
        })
    }
}

/// Returns a launcher's answer as bytes: 0 and the bytes of the result, or the class and the sentence of the
/// error.
pub fn answer(result: &Result<Vec<u8>>) -> Vec<u8> {
    let mut writer = Writer::default();
    match result {
        Ok(bytes) => writer.number(0).text(bytes),
        Err(error) => writer.number(error.class as u64).text(&error.message),
    };
    writer.bytes()
}

/// Reads a launcher's answer from its bytes. Returns the bytes of its result, or the error that it holds.
pub fn answered(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut reader = Reader::new(bytes);
    match reader.number()? {
        0 => reader.bytes(),
        class => {
            let class = i32::try_from(class).ok().and_then(Class::numbered).unwrap_or(Class::Other);
            Err(Error::new(class, reader.text()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let program = SpawnProgram {
            count: 3,
            words: vec![b"./a b".to_vec(), vec![], vec![0xff]],
            info: vec![("wdir".into(), "/tmp".into())],
        };
        let spawn = Spawn { parents: vec![3, 0], directory: b"/".to_vec(), programs: vec![program; 2] };
        let requests = [
            Request::Spawn(spawn),
            Request::Publish { service: "s".into(), port: "p".into() },
            Request::Unpublish { service: "s".into() },
            Request::Lookup { service: String::new() },
        ];
        for request in requests {
            let bytes = request.to_bytes();
            assert_eq!(Request::from_bytes(&bytes).unwrap(), request);
            (0..bytes.len()).for_each(|cut| assert!(Request::from_bytes(&bytes[..cut]).is_err()));
        }
        let spawned = Spawned { world: 1 << 40, first: 7, counts: vec![1, 2] };
        assert_eq!(Spawned::from_bytes(&spawned.to_bytes()).unwrap(), spawned);
        assert_eq!(answered(&answer(&Ok(vec![1, 2]))).unwrap(), [1, 2]);
        for class in [Class::Spawn, Class::Port] {
            let error = answered(&answer(&Err(Error::new(class, "no".to_owned())))).unwrap_err();
            assert_eq!((error.class, error.message.as_str()), (class, "no"));
        }
    }
}
