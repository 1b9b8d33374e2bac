// SPDX-License-Identifier: BSD-3-Clause
//! The program that the tests of `mpirun` start as a rank. It joins the job without the rest of the library,
//! and carries out its arguments one after the other (`join`, `print`, `exit=3`). Only rank R carries out
//! `@R:WORD`.

use std::process::Command;
use std::time::Duration;

fn main() {
    let mut job: Option<boot::Membership> = None;
    for word in std::env::args().skip(1) {
        let (only, word) = match word.strip_prefix('@').and_then(|rest| rest.split_once(':')) {
            Some((rank, word)) => (rank.parse::<u64>().ok(), word.to_string()),
            None => (None, word),
        };
        if only.is_some() && only != settings::get().rank {
            continue;
        }
        let (word, value) = word.split_once('=').unwrap_or((&word, ""));
        let number = || value.parse::<i32>().expect("a number");
        match word {
            "join" => match boot::join().and_then(|job| {
                job.arrive_at_init();
                job.wait_for_all().map(|()| job)
            }) {
                Ok(membership) => job = Some(membership),
                Err(error) => {
                    eprintln!("rank: {error}");
                    std::process::exit(9);
                }
            },
            "print" => {
                let job = job.expect("joined");
                println!("rank {} of {} alone {}", job.rank, job.size, job.alone);
            }
            "count" => telemetry::count(telemetry::Counter::EagerMessagesSent, 5),
            "event" => telemetry::event(telemetry::Event::Wait),
            "leave" => {
                let job = job.expect("joined");
                job.arrive_at_finalize();
                job.leave();
            }
            "abort" => job.expect("joined").abort(number()),
            "fail" => job.expect("joined").fail(number()),
            "exit" => std::process::exit(number()),
            "signal" => signal_myself(number()),
            "sleep" => std::thread::sleep(Duration::from_millis(number() as u64)),
            // Runs a program as a child of the rank.
            "child" => {
                let own = std::env::current_exe().expect("an executable");
                let status = Command::new(own).args(value.split(',')).status().expect("a child");
                assert!(status.success());
            }
            // Runs a descendant that has left group, session and parent, and closed everything.
            "daemon" => {
                let line = format!("setsid sleep {value} </dev/null >/dev/null 2>&1 &");
                Command::new("sh").args(["-c", &line]).status().expect("a shell");
            }
            "proxy-state" => {
                let segment = job.expect("joined").segment;
                println!("proxy 0 is {:?}", segment.proxy(0).state());
            }
            "kill-proxy" => {
                let page = segment_proxy(job.expect("joined").segment);
                let process = sys::process::ProcessHandle::open(page).expect("a proxy");
                process.kill().expect("killed");
            }
            "await-dead-proxy" => {
                let segment = job.expect("joined").segment;
                while segment.proxy(0).state() != transport::shm::State::Dead {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            other => panic!("no such word: {other}"),
        }
    }
}

fn signal_myself(number: i32) {
    let signal = rustix::process::Signal::from_named_raw(number).expect("a signal");
    rustix::process::kill_process(rustix::process::getpid(), signal).expect("our own process");
    std::thread::sleep(Duration::from_secs(60));
}

/// Waits until proxy 0 of this job has started, and returns the proxy's process id.
fn segment_proxy(segment: &transport::shm::Segment) -> u32 {
    loop {
        let pid = segment.proxy(0).pid.load(std::sync::atomic::Ordering::Acquire);
        if pid != 0 {
            return pid;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
