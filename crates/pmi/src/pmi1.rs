// SPDX-License-Identifier: BSD-3-Clause
//! PMI-1 over the socket that the launcher gives to each rank (`PMI_FD`, `PMI_RANK`, `PMI_SIZE`).
//!
//! A rank sends a line and gets a line back. The exception is `abort`, which has no answer.

use crate::{mapping, wire};
use error::{Class, Error, Result, fail};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::{PmiLine, PmiLines};

/// How many bytes a value may have if the launcher names no limit. Every launcher allows this many.
const VALUE_BYTES: usize = 256;

#[derive(Debug)]
pub(crate) struct Connection {
    socket: File,
    /// The bytes that the launcher has sent. A thread holds the lock from its request to the launcher's
    /// answer.
    lines: Mutex<PmiLines>,
    rank: u32,
    size: u32,
    /// The name that the launcher gives to the job's store of keys and values.
    store: String,
    value_bytes_max: usize,
}

impl Connection {
    /// Whether an environment variable names the socket for PMI-1.
    pub fn is_offered() -> bool {
        settings::launcher_variables::variable("PMI_FD").is_some()
    }

    /// Registers with the launcher, and returns the connection. None if environment variables name no
    /// launcher that speaks PMI-1.
    pub fn open() -> Result<Option<Connection>> {
        let number = |name: &str| settings::launcher_variables::variable(name)?.to_str()?.parse::<u32>().ok();
        let (Some(fd), Some(rank), Some(size)) = (number("PMI_FD"), number("PMI_RANK"), number("PMI_SIZE"))
        else {
            return Ok(None);
        };
        let kind = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        if !kind.to_string_lossy().starts_with("socket:") {
            fail!(
                Class::Other,
                "the launcher's socket PMI_FD={fd} is closed: a program between the launcher and this one has closed it (Python: subprocess with close_fds=False keeps it)"
            );
        }
        let socket = sys::memory::inherited(fd as i32);
        let socket = socket.map_err(|error| Error::new(Class::Other, format!("PMI_FD={fd}: {error}")))?;
        Connection::register(socket.into(), rank, size).map(Some)
    }

    fn register(socket: File, rank: u32, size: u32) -> Result<Connection> {
        if rank >= size {
            fail!(Class::Other, "the launcher says PMI_RANK={rank} and PMI_SIZE={size}");
        }
        let mut connection = Connection {
            socket,
            lines: Mutex::default(),
            rank,
            size,
            store: String::new(),
            value_bytes_max: VALUE_BYTES,
        };
        connection.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let limits = connection.ask("cmd=get_maxes", "maxes")?;
        connection.value_bytes_max = limits.number("vallen_max").unwrap_or(VALUE_BYTES);
        let named = connection.ask("cmd=get_my_kvsname", "my_kvsname")?;
        connection.store = named.field("kvsname").unwrap_or_default().to_owned();
        Ok(connection)
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn application(&self) -> Result<u32> {
        // A launcher that does not number programs answers -1.
        Ok(self.ask("cmd=get_appnum", "appnum")?.number("appnum").unwrap_or(0))
    }

    /// Returns the number of each rank's host, as the launcher numbers hosts. None if the launcher does not
    /// say.
    pub fn mapping(&self) -> Result<Option<Vec<u32>>> {
        Ok(self.look_up("PMI_process_mapping")?.and_then(|text| mapping::read(&text, self.size)))
    }

    pub fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        // The limit includes the terminating zero of a C string.
        for (index, text) in wire::texts(value, self.value_bytes_max.saturating_sub(1)).iter().enumerate() {
            let (store, key) = (&self.store, full(self.rank, key, index));
            self.ask(&format!("cmd=put kvsname={store} key={key} value={text}"), "put_result")?;
        }
        Ok(())
    }

    pub fn fence(&self) -> Result<()> {
        self.ask("cmd=barrier_in", "barrier_out").map(drop)
    }

    pub fn get(&self, rank: u32, key: &str) -> Result<Vec<u8>> {
        let mut index = 0;
        let next = || {
            index += 1;
            self.look_up(&full(rank, key, index - 1))
        };
        match wire::value(next)? {
            Some(value) => Ok(value),
            None => fail!(Class::Other, "the launcher's store has no \"{key}\" of rank {rank}"),
        }
    }

    pub fn abort(&self, code: i32) {
        // This is one write of a short line, so it does not mix with another thread's.
        let _ = (&self.socket).write_all(format!("cmd=abort exitcode={code}\n").as_bytes());
    }

    pub fn finalize(&self) {
        // A launcher that does not answer has ended, and needs no more messages.
        let _ = self.ask("cmd=finalize", "finalize_ack");
    }

    pub fn lifeline(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn look_up(&self, key: &str) -> Result<Option<String>> {
        let mut lines = self.lock();
        let line =
            self.exchange(&mut lines, &format!("cmd=get kvsname={} key={key}", self.store), "get_result")?;
        let is_there = line.number("rc").unwrap_or(0) == 0;
        Ok(line.field("value").filter(|_| is_there).map(str::to_owned))
    }

    /// Sends a request and returns the launcher's answer. Errors (MPI_ERR_OTHER): the answer is another
    /// command than `answer`, or it reports an error.
    fn ask(&self, request: &str, answer: &str) -> Result<PmiLine> {
        let mut lines = self.lock();
        let line = self.exchange(&mut lines, request, answer)?;
        if line.number("rc").unwrap_or(0) != 0 {
            fail!(Class::Other, "the launcher refuses \"{request}\" (PMI-1): \"{}\"", line.text());
        }
        Ok(line)
    }

    fn exchange(&self, lines: &mut PmiLines, request: &str, answer: &str) -> Result<PmiLine> {
        let mut socket = &self.socket;
        if let Err(error) = socket.write_all(format!("{request}\n").as_bytes()) {
            fail!(Class::Other, "the connection to the launcher (PMI_FD) is broken: {error}");
        }
        let line = lines.next(&mut socket)?;
        if line.field("cmd") != Some(answer) {
            fail!(
                Class::Other,
                "the launcher answered \"{request}\" by \"{}\", not by \"{answer}\" (PMI-1)",
                line.text()
            );
        }
        Ok(line)
    }

    fn lock(&self) -> MutexGuard<'_, PmiLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key under which one part of a value is in the launcher's store. A long value is stored in
/// several parts.
fn full(rank: u32, key: &str, part: usize) -> String {
    format!("ob{rank}-{key}-{part}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    /// Starts a thread that plays the launcher: it answers each line with the next of `answers`. Returns the
    /// rank's socket, and the thread, which returns the lines that it got.
    fn launcher(answers: &'static [&'static str]) -> (File, std::thread::JoinHandle<Vec<String>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serve = move || {
            let mut received = Vec::new();
            let mut lines = BufReader::new(theirs.try_clone().unwrap()).lines();
            for answer in answers {
                received.extend(lines.next().and_then(|line| line.ok()));
                (&theirs).write_all(answer.as_bytes()).unwrap();
            }
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            received.extend(lines.map_while(|line| line.ok()));
            received
        };
        (OwnedFd::from(ours).into(), std::thread::spawn(serve))
    }

    const HELLO: &str = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
    const LIMITS: &str = "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=21\n";
    const STORE: &str = "cmd=my_kvsname rc=0 kvsname=kvs_1\n";

    #[test]
    fn a_rank_registers_puts_and_gets() {
        let (socket, served) = launcher(&[
            HELLO,
            LIMITS,
            STORE,
            "cmd=put_result rc=0 msg=success\n",
            "cmd=put_result\n",
            "cmd=barrier_out tag=0\n",
            "cmd=get_result rc=0 value=00000003c0ff\n",
            "cmd=get_result rc=0 msg=success value=ee\n",
            "cmd=get_result rc=1\n",
            "cmd=get_result rc=0 value=(vector,(0,2,1))\n",
            "cmd=finalize_ack rc=0\n",
        ]);
        let connection = Connection::register(socket, 1, 2).unwrap();
        connection.put("names", &[1, 2, 3, 4, 5, 6, 7]).unwrap();
        connection.fence().unwrap();
        assert_eq!(connection.get(0, "names").unwrap(), [0xc0, 0xff, 0xee]);
        let missing = connection.get(0, "none").unwrap_err().message.clone();
        assert!(missing.contains("\"none\" of rank 0"), "{missing}");
        assert_eq!(connection.mapping().unwrap().unwrap(), [0, 1]);
        connection.finalize();
        connection.abort(7);
        drop(connection);
        let received = served.join().unwrap();
        assert_eq!(received[3], "cmd=put kvsname=kvs_1 key=ob1-names-0 value=00000007010203040506");
        assert_eq!(received[4], "cmd=put kvsname=kvs_1 key=ob1-names-1 value=07");
        assert_eq!(received[7], "cmd=get kvsname=kvs_1 key=ob0-names-1");
        assert_eq!(received[10], "cmd=finalize");
    }

    #[test]
    fn a_launcher_that_talks_nonsense_is_refused_in_a_sentence() {
        for (answers, words) in [
            (&["cmd=response_to_init rc=-1 pmi_version=2\n"][..], "refuses \"cmd=init"),
            (&["cmd=maxes rc=0\n"], "by \"cmd=maxes rc=0\", not by \"response_to_init\""),
            (&["boom\n"], "by \"boom\""),
            (&["\n"], "by \"\""),
            (&["cmd=response_to_"], "has ended"),
            (&[HELLO], "ended"),
        ] {
            let (socket, served) = launcher(answers);
            let error = Connection::register(socket, 0, 2).err().unwrap().message.clone();
            assert!(error.contains(words) || error.contains("broken"), "{error}");
            served.join().unwrap();
        }
        let (socket, _served) = launcher(&[]);
        assert!(Connection::register(socket, 2, 2).is_err(), "no such rank");
    }

    #[test]
    fn a_launcher_that_ends_hangs_up() {
        let (socket, served) = launcher(&[HELLO, LIMITS, STORE]);
        let connection = Connection::register(socket, 0, 1).unwrap();
        assert!(connection.fence().unwrap_err().message.contains("has ended"));
        assert!(connection.get(0, "x").is_err());
        connection.finalize();
        drop(connection);
        served.join().unwrap();
    }
}
