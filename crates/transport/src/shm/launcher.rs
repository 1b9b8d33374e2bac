// SPDX-License-Identifier: BSD-3-Clause
//! What a rank asks of its launcher, and the answer, as bytes: numbers of eight bytes, texts with their
//! length before them.
//!
//! Both ends are of one build, so no version is sent. A rank may be broken, so everything is checked.

use error::{Class, Error, Result};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Start processes (MPI 5.0, section 11.8); the answer is `Spawned`.
    Spawn(Spawn),
    /// Publish this port under the name `service` (section 11.9.4). The answer is empty.
    Publish {
        /// The name.
        service: String,
        /// The port.
        port: String,
    },
    /// Unpublish the name. The answer is empty.
    Unpublish {
        /// The name.
        service: String,
    },
    /// The port of the name. The answer is a text.
    Lookup {
        /// The name.
        service: String,
    },
}

/// Programs to be started together as one world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spawn {
    /// The parents: the ranks of the comm, in its order.
    pub parents: Vec<u32>,
    /// The working directory of the root of the spawn.
    pub directory: Vec<u8>,
    /// What to start.
    pub programs: Vec<Program>,
}

/// One program of a spawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// How many processes.
    pub count: u64,
    /// Program and arguments.
    pub words: Vec<Vec<u8>>,
    /// Info keys and their values.
    pub info: Vec<(String, String)>,
}

/// A spawned world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spawned {
    /// Its number.
    pub world: u64,
    /// Its first rank.
    pub first: u32,
    /// For each program, how many processes it has.
    pub counts: Vec<u64>,
}

/// Bytes being written.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

/// Bytes being read.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl Writer {
    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Writer {
        self.0.extend(number.to_ne_bytes());
        self
    }

    /// Adds a text.
    pub fn text(&mut self, text: impl AsRef<[u8]>) -> &mut Writer {
        self.number(text.as_ref().len() as u64);
        self.0.extend(text.as_ref());
        self
    }

    /// All of it.
    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}

impl<'a> Reader<'a> {
    /// Reads from the start.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// The next number.
    pub fn number(&mut self) -> Result<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>().ok_or_else(short)?;
        self.0 = rest;
        Ok(u64::from_ne_bytes(*head))
    }

    /// The next text.
    pub fn bytes(&mut self) -> Result<Vec<u8>> {
        let length = self.number()?;
        let (head, rest) =
            usize::try_from(length).ok().and_then(|at| self.0.split_at_checked(at)).ok_or_else(short)?;
        self.0 = rest;
        Ok(head.to_vec())
    }

    /// The next text, which is one of ours.
    pub fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?).map_err(|_| short())
    }

    /// So many things, one after the other.
    fn each<T>(&mut self, mut read: impl FnMut(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
        (0..self.number()?).map(|_| read(self)).collect()
    }
}

fn short() -> Error {
    Error::new(Class::Intern, "a message between a rank and its launcher is cut short or no text".to_owned())
}

impl Request {
    /// As bytes.
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

    /// From bytes.
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
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.write(&mut writer);
        writer.bytes()
    }

    /// From bytes.
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
            Ok(Program {
                count: reader.number()?,
                words: reader.each(Reader::bytes)?,
                info: reader.each(|reader| Ok((reader.text()?, reader.text()?)))?,
            })
        })?;
        Ok(Spawn { parents, directory, programs })
    }
}

impl Spawned {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.number(self.world).number(u64::from(self.first)).number(self.counts.len() as u64);
        for count in &self.counts {
            writer.number(*count);
        }
        writer.bytes()
    }

    /// From bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Spawned> {
        let mut reader = Reader::new(bytes);
        Ok(Spawned {
            world: reader.number()?,
            first: reader.number()? as u32,
            counts: reader.each(Reader::number)?,
        })
    }
}

/// An answer as bytes: the result, or the error.
pub fn answer(result: &Result<Vec<u8>>) -> Vec<u8> {
    let mut writer = Writer::default();
    match result {
        Ok(bytes) => writer.number(0).text(bytes),
        Err(error) => writer.number(error.class as u64).text(&error.message),
    };
    writer.bytes()
}

/// The inverse of `answer`.
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
        let program = Program {
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
