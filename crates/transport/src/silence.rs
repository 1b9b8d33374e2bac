// SPDX-License-Identifier: BSD-3-Clause
//! Finds out whether a peer from which no packet has ever come only computes, or cannot be reached.
//!
//! A provider that cannot connect tries for ever, and a peer that computes does not connect. So after a while
//! a thread tests whether the peer's address answers at all, by a TCP connection that is closed at once. Read
//! next: `net.rs`.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a peer may be silent, in nanoseconds, before this process tests whether its address answers.
const SILENCE_NS: u64 = 10_000_000_000;
/// How long after a test of an address the next test may start, in nanoseconds.
const NEXT_NS: u64 = 60_000_000_000;
/// How long an address may take to answer the TCP connection that tests it.
const ANSWER: Duration = Duration::from_secs(10);

/// For how long a peer has been silent, and the test whether its address answers.
#[derive(Default)]
pub(crate) struct Silence {
    /// When the next test of the address is due, in nanoseconds; 0 before the first call of `check`.
    next_test: u64,
    /// The test that is under way. Its thread stores the reason here if the peer cannot be reached. None if
    /// no test is under way.
    trying: Option<Arc<OnceLock<Option<String>>>>,
}

impl Silence {
    /// Starts a test of the peer's address if it is due, or takes the result of a test that has ended.
    /// Returns why the peer cannot be reached; None if no test has shown that. `is_tcp`: the provider itself
    /// listens at the address by TCP.
    pub fn check(
        &mut self,
        now: u64,
        is_tcp: bool,
        address: impl FnOnce() -> Option<SocketAddr>,
    ) -> Option<String> {
        if let Some(trying) = &self.trying {
            let why = trying.get()?.clone();
            (self.trying, self.next_test) = (None, now + NEXT_NS);
            return why;
        }
        if self.next_test == 0 {
            self.next_test = now + SILENCE_NS;
        }
        if now < self.next_test {
            return None;
        }
        let Some(address) = address() else {
            self.next_test = u64::MAX;
            return None;
        };
        let answer = Arc::new(OnceLock::new());
        let slot = answer.clone();
        let connect = move || {
            sys::signal::block_all();
            slot.get_or_init(|| try_address(address, is_tcp));
        };
        match std::thread::Builder::new().name("outboard-reach".into()).spawn(connect) {
            Ok(_) => self.trying = Some(answer),
            Err(_) => self.next_test = now + NEXT_NS,
        }
        None
    }
}

/// Connects to an address and closes the connection. Returns why the address cannot be reached. Returns None
/// if it can be reached, or if the failure does not prove that it cannot.
fn try_address(address: SocketAddr, is_tcp: bool) -> Option<String> {
    let error = TcpStream::connect_timeout(&address, ANSWER).err()?;
    let is_certain = match error.kind() {
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => true,
        ErrorKind::ConnectionRefused => is_tcp,
        _ => false,
    };
    is_certain.then(|| {
        format!(
            "no answer in {} s, and no way to that address ({error}): a firewall drops packets, or one of the \
            two is not the address in the job's network (docs/clusters.md)",
            SILENCE_NS / 1_000_000_000
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Calls `check` until a test of the address has ended, and returns why the address cannot be reached;
    /// None if it can.
    fn verdict(address: SocketAddr, is_tcp: bool) -> Option<String> {
        let mut silence = Silence::default();
        assert_eq!(silence.check(1, is_tcp, || Some(address)), None);
        assert_eq!(silence.check(SILENCE_NS, is_tcp, || Some(address)), None, "it is too early");
        assert!(silence.trying.is_none());
        assert_eq!(silence.check(SILENCE_NS + 1, is_tcp, || Some(address)), None);
        let later = SILENCE_NS + 2;
        while silence.trying.is_some() {
            if let Some(why) = silence.check(later, is_tcp, || Some(address)) {
                return Some(why);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(silence.next_test, later + NEXT_NS);
        None
    }

    /// Goal: a peer that listens but sends no packet is not given up. A peer at whose address no process
    /// listens is given up, with the kernel's reason.
    #[test]
    fn only_an_address_that_does_not_answer_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(verdict(address, true), None);
        drop(listener);
        assert_eq!(verdict(address, false), None, "another protocol may listen there");
        let why = verdict(address, true).expect("nobody listens there");
        assert!(why.contains("refused"), "{why}");
    }
}
