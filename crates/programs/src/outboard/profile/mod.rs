// SPDX-License-Identifier: BSD-3-Clause
//! `outboard profile` makes one HTML page of a trace: time by function and call site, messages between ranks,
//! which rank waits for which, and a timeline.
//!
//! Read next: `trace.rs` (the file), `waits.rs` (what counts as waiting), `figures.rs`, `page.rs`.

mod calls;
mod figures;
mod page;
mod timeline;
mod trace;
mod waits;

use std::path::{Path, PathBuf};

use clap::Args;

use calls::TraceParts;
use figures::Figures;

/// Make a page of a trace: time per function and call site, messages, who waits for whom, and a timeline.
///
/// The job must have run with OUTBOARD_TRACE=FILE. The page is one HTML file that needs no server and no
/// network. Debug information (-g) gives call sites their lines.
#[derive(Args)]
pub struct Profile {
    /// The file that OUTBOARD_TRACE made.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Write the page here. Default: the trace's name with .html instead of .json.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print all figures as JSON, and write no page.
    #[arg(long)]
    json: bool,
}

impl Profile {
    /// Makes the profile of a trace, and writes its page unless --json asks for JSON. Returns the text or
    /// JSON to print.
    pub fn run(&self) -> Result<String, String> {
        let named = |error: String| format!("{}: {error}", self.trace.display());
        let text = read(&self.trace).map_err(named)?;
        let trace = trace::parse(&text).map_err(named)?;
        let mut parts = TraceParts::of(&trace).map_err(named)?;
        let waits = waits::find(&mut parts);
        let figures = Figures::of(&trace, &parts, &waits);
        if self.json {
            let text = serde_json::to_string_pretty(&figures).map_err(|error| named(error.to_string()))?;
            return Ok(text + "\n");
        }
        let to = self.output.clone().unwrap_or_else(|| self.trace.with_extension("html"));
        if same(&to, &self.trace) {
            return Err(format!(
                "{} is the trace itself: please name another file with --output",
                to.display()
            ));
        }
        let name = self.trace.file_name().unwrap_or_default().to_string_lossy();
        let page = page::html(&name, &figures, &parts, &waits);
        std::fs::write(&to, page).map_err(|error| format!("cannot write {}: {error}", to.display()))?;
        Ok(format!("{}\n", to.display()))
    }
}

fn read(path: &Path) -> Result<String, String> {
    let is_file = std::fs::metadata(path).map_err(|error| error.to_string())?.is_file();
    if !is_file {
        return Err("not a file".into());
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

/// Whether two paths lead to the same file.
fn same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::waits::Why;
    use super::*;

    fn call(pid: u64, name: &str, from: f64, dur: f64) -> Value {
        json!({"ph": "X", "cat": "call", "name": name, "pid": pid, "tid": 1, "ts": from, "dur": dur, "args": {"site": format!("/bin/a+0x{pid}")}})
    }

    /// Returns the two events of an operation: its begin and its end. `args` decides whether it is a send or
    /// receive, an epoch of a window, or a collective.
    fn span(pid: u64, name: &str, times: [f64; 2], args: Value) -> [Value; 2] {
        let id = format!("{pid}.{name}.{}", times[0]);
        let cat = match () {
            () if args.get("direction").is_some() => "message",
            () if args.get("lock").is_some() => "epoch",
            () => "operation",
        };
        let half = |ph: &str, ts: f64| {
            let args = if ph == "b" { args.clone() } else { json!({}) };
            json!({"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": 1, "ts": ts, "id2": {"local": id}, "args": args})
        };
        [half("b", times[0]), half("e", times[1])]
    }

    fn message(pid: u64, way: &str, peer: u64, number: u64, times: [f64; 2]) -> [Value; 2] {
        let args =
            json!({"direction": way, "peer": peer, "tag": 3, "bytes": 100, "context": "7", "number": number});
        span(pid, &format!("MPI_{way} on c"), times, args)
    }

    fn file(events: &[Value]) -> String {
        json!({"otherData": {"command": "a <b>", "hosts": ["n1"], "version": "9"}, "traceEvents": events})
            .to_string()
    }

    fn with<T>(text: &str, look: impl FnOnce(&Figures, &TraceParts, &[waits::Wait]) -> T) -> T {
        let trace = trace::parse(text).unwrap();
        let mut parts = TraceParts::of(&trace).unwrap();
        let waits = waits::find(&mut parts);
        look(&Figures::of(&trace, &parts, &waits), &parts, &waits)
    }

    /// Returns a trace of two ranks. Rank 0 waits 30 us for rank 1's send, rank 1 waits 10 us for rank 0's
    /// receive, and rank 0 waits 40 us for rank 1 in a collective. One call lies inside another, and rank 1's
    /// last call never ends.
    fn events() -> Vec<Value> {
        let mut events = vec![
            call(0, "MPI_Recv", 100.0, 50.0),
            call(1, "MPI_Send", 130.0, 10.0),
            call(1, "MPI_Send", 200.0, 30.0),
            call(0, "MPI_Recv", 210.0, 30.0),
            call(0, "MPI_Allreduce", 300.0, 50.0),
            call(0, "MPI_Send", 310.0, 10.0),
            call(1, "MPI_Iallreduce", 340.0, 5.0),
            call(0, "MPI_Finalize", 400.0, 100.0),
            json!({"ph": "B", "cat": "call", "name": "MPI_Recv", "pid": 1, "tid": 1, "ts": 480.0, "args": {}}),
            json!({"ph": "X", "cat": "step", "name": "copy", "pid": 1_000_000, "tid": 1, "ts": 340.0, "dur": 10.0, "args": {"rank": 0, "peer": 1, "bytes": 8}}),
        ];
        events.extend(message(0, "receive", 1, 1, [100.0, 149.0]));
        events.extend(message(1, "send", 0, 1, [130.0, 139.0]));
        events.extend(message(1, "send", 0, 2, [200.0, 229.0]));
        events.extend(message(0, "receive", 1, 2, [210.0, 239.0]));
        let args = || json!({"bytes": 8, "context": "7"});
        events.extend(span(0, "MPI_Allreduce on c #1", [300.0, 349.0], args()));
        events.extend(span(1, "MPI_Allreduce on c #1", [340.0, 345.0], args()));
        events
    }

    #[test]
    fn a_rank_waits_for_the_partner_that_began_last_and_no_time_counts_twice() {
        with(&file(&events()), |figures, _, _| {
            let late = figures.late.iter().map(|row| (row.why, row.late, row.rank, row.us));
            let wanted =
                [(Why::Collective, 1, 0, 40.0), (Why::Sender, 1, 0, 30.0), (Why::Receiver, 0, 1, 10.0)];
            assert_eq!(late.collect::<Vec<_>>(), wanted);
            let ranks = figures.ranks.iter().map(|it| (it.in_mpi_us, it.outside_us, it.waited_us));
            assert_eq!(ranks.collect::<Vec<_>>(), [(130.0, 120.0, 70.0), (65.0, 305.0, 10.0)]);
            let traffic: Vec<_> =
                figures.traffic.iter().map(|it| (it.from, it.to, it.messages, it.bytes)).collect();
            assert_eq!(traffic, [(1, 0, 2, 200)]);
            let calls = |name: &str| {
                figures.functions.iter().filter(|row| row.function == name).map(|row| row.calls).sum::<u64>()
            };
            assert_eq!((calls("MPI_Send"), calls("MPI_Recv")), (2, 3), "a call in another is not counted");
            assert_eq!(figures.cut_off, [1]);
        });
    }

    /// Goal: the members of a comm wait for each other only. They do not wait for members of another comm
    /// whose calls have the same name, nor for ranks that are no neighbours.
    #[test]
    fn a_collective_has_the_members_of_its_comm_and_neighbours_only_their_sources() {
        let mut events = Vec::new();
        for (at, name, context) in
            [(100.0, "MPI_Allreduce on c #1", ""), (200.0, "MPI_Neighbor_alltoall on c #1", "5")]
        {
            let function = name.split(' ').next().unwrap();
            // Ranks 0 and 1 share a comm, as ranks 2 and 3 do; of its neighbours each rank needs the one
            // below.
            for (pid, from) in [(0, at), (1, at + 10.0), (2, at), (3, at + 11.0)] {
                events.push(call(pid, function, from, at + 20.0 - from));
                let comm = if context.is_empty() { format!("{}", pid / 2) } else { context.into() };
                let args = json!({"bytes": 8, "context": comm, "sources": if pid > 0 { vec![pid - 1] } else { vec![] }});
                events.extend(span(pid, name, [from, at + 19.0], args));
            }
        }
        with(&file(&events), |figures, _, _| {
            let late = figures.late.iter().map(|row| (&*row.function, row.rank, row.late, row.us));
            let mut late: Vec<_> = late.collect();
            late.sort_by(|a, b| a.0.cmp(b.0).then(a.1.cmp(&b.1)));
            let wanted = [
                ("MPI_Allreduce", 0, 1, 10.0),
                ("MPI_Allreduce", 2, 3, 11.0),
                ("MPI_Neighbor_alltoall", 2, 1, 10.0),
            ];
            assert_eq!(late, wanted);
        });
    }

    /// Returns a trace of three collectives among 3 ranks, in which a rank needs only some of the others.
    /// Ranks 0 and 2 are late.
    fn rooted() -> Vec<Value> {
        let mut events = Vec::new();
        // In a broadcast and a scan rank 1 needs rank 0, and rank 0 needs none. In a reduction to rank 1 only
        // rank 1 needs others.
        for (at, name, root) in [
            (100.0, "MPI_Bcast on c #1", 0),
            (200.0, "MPI_Scan on c #1", 9),
            (300.0, "MPI_Reduce on c #1", 1),
        ] {
            let function = name.split(' ').next().unwrap();
            for (pid, from) in [(0, at + 30.0), (1, at), (2, at + 35.0)] {
                events.push(call(pid, function, from, at + 50.0 - from));
                let args = json!({"bytes": 8, "context": "7", "root": root, "place": pid, "site": format!("/bin/a+0x{pid}")});
                events.extend(span(pid, name, [from, at + 49.0], args));
            }
        }
        events
    }

    /// Goal: each call waits for exactly the ranks that it needs. Method: a partitioned message, rooted
    /// collectives, a scan, and epochs and locks of windows. In each some rank is late, and some calls need
    /// no other rank or already have what they need.
    #[test]
    fn partitions_windows_and_rooted_collectives_wait_for_whom_they_need() {
        let mut events = Vec::new();
        let mut calls =
            |pid: u64, name: &str, from: f64, until: f64| events.push(call(pid, name, from, until - from));
        let mut more = Vec::new();
        let signal = |pid: u64, cat: &str, name: &str, ts: f64, peer: u64, number: u64| {
            json!({"ph": "i", "s": "t", "cat": cat, "name": name, "pid": pid, "tid": 1, "ts": ts,
                "args": {"peer": peer, "number": number, "context": "9", "partition": 0}})
        };
        // A partitioned message that starts at 10 and is ready at 40; the receiver waits from 20 on.
        calls(0, "MPI_Start", 10.0, 11.0);
        calls(0, "MPI_Pready", 40.0, 41.0);
        calls(1, "MPI_Start", 10.0, 11.0);
        calls(1, "MPI_Wait", 20.0, 50.0);
        let args = |way: &str, peer: u64| json!({"direction": way, "peer": peer, "tag": 3, "bytes": 8, "context": "9", "number": 1});
        more.extend(span(0, "MPI_Start on c", [10.0, 41.0], args("send", 1)));
        more.extend(span(1, "MPI_Start on c", [10.0, 49.0], args("receive", 0)));
        more.extend([
            signal(0, "partition", "ready", 12.0, 1, 1),
            signal(0, "partition", "ready", 40.5, 1, 1),
        ]);
        more.extend(rooted());
        // A post at 430 and a completion at 470.
        calls(0, "MPI_Win_post", 430.0, 431.0);
        calls(1, "MPI_Win_start", 410.0, 440.0);
        calls(1, "MPI_Win_complete", 470.0, 471.0);
        calls(0, "MPI_Win_wait", 450.0, 480.0);
        more.push(signal(0, "window", "post", 430.5, 1, 1));
        more.push(signal(1, "window", "start", 439.0, 0, 1));
        more.push(signal(1, "window", "complete", 470.5, 0, 1));
        more.push(signal(0, "window", "wait", 479.0, 1, 1));
        // Rank 0 holds a lock on rank 2 until 530; rank 1 asks for it at 510; rank 2 asks for a lock on rank
        // 0.
        calls(0, "MPI_Win_lock", 500.0, 501.0);
        calls(0, "MPI_Win_unlock", 530.0, 531.0);
        calls(1, "MPI_Win_lock", 510.0, 540.0);
        calls(2, "MPI_Win_lock", 510.0, 540.0);
        let lock = |peer: u64, lock: &str| json!({"lock": lock, "peer": peer, "context": "9"});
        more.extend(span(0, "MPI_Win_lock on w", [500.5, 530.5], lock(2, "exclusive")));
        more.extend(span(1, "MPI_Win_lock on w", [539.0, 545.0], lock(2, "shared")));
        more.extend(span(2, "MPI_Win_lock on w", [539.0, 545.0], lock(0, "shared")));
        events.extend(more);
        with(&file(&events), |figures, _, _| {
            let mut late: Vec<_> = figures
                .late
                .iter()
                .map(|row| (&*row.function, row.rank, row.why, row.late, row.us))
                .collect();
            late.sort_by(|a, b| a.0.cmp(b.0).then(a.1.cmp(&b.1)));
            let wanted = [
                ("MPI_Bcast", 1, Why::Collective, 0, 30.0),
                ("MPI_Reduce", 1, Why::Collective, 2, 35.0),
                ("MPI_Scan", 1, Why::Collective, 0, 30.0),
                ("MPI_Wait", 1, Why::Sender, 0, 20.5),
                ("MPI_Win_lock", 1, Why::Holder, 0, 20.5),
                ("MPI_Win_start", 1, Why::Target, 0, 20.5),
                ("MPI_Win_wait", 0, Why::Origin, 1, 20.5),
            ];
            assert_eq!(late, wanted);
            let sites =
                figures.late.iter().filter(|row| row.late == 0).all(|row| row.late_site == "/bin/a+0x0");
            assert!(sites && figures.traffic.len() == 1, "partitioned messages are in the matrix");
        });
    }

    #[test]
    fn the_page_has_every_part_and_only_text_of_a_trace() {
        let page = with(&file(&events()), |figures, parts, waits| page::html("<t>", figures, parts, waits));
        for wanted in [
            "Profile of &lt;t&gt;",
            "a &lt;b&gt;",
            "prefers-color-scheme:dark",
            "width=device-width",
            "waiting for a partner that had not begun",
            "proxy 0",
            "<line ",
            "scope=row",
            "late sender",
            "ends before MPI_Finalize",
        ] {
            assert!(page.contains(wanted), "no {wanted:?} in {page}");
        }
        assert!(!page.contains("http") && !page.contains("src=") && !page.contains("NaN"), "{page}");
    }

    #[test]
    fn many_ranks_and_events_make_a_page_that_says_what_it_leaves_out() {
        let mut events = Vec::new();
        for rank in 0..300 {
            for at in 1..=20 {
                let from = 50.0 * at as f64 + rank as f64;
                let name = format!("MPI_F{}", rank % 97);
                events.push(call(rank, &name, from, 20.0));
                events.extend(message(rank, "send", (rank + 1) % 301, at, [from, from + 1.0]));
            }
        }
        let page = with(&file(&events), |figures, parts, waits| page::html("t", figures, parts, waits));
        assert!(page.len() < 1 << 20, "{} bytes", page.len());
        for wanted in [
            "take 10 ranks together",
            "more rows are left out",
            "20 messages to ranks that are not in this trace",
            ">290-299",
        ] {
            assert!(page.contains(wanted), "no {wanted:?}");
        }
    }

    #[test]
    fn what_is_no_trace_is_refused_with_a_sentence() {
        let whole = file(&events());
        let refused = |text: &str| match trace::parse(text) {
            Ok(trace) => TraceParts::of(&trace).err().unwrap_or_default(),
            Err(error) => error,
        };
        assert!(refused(&whole[..whole.len() / 2]).contains("cut off"));
        assert!(refused("[]").contains("no trace that OUTBOARD_TRACE made"));
        assert!(refused("{\"traceEvents\":[]}").contains("no MPI call"));
        for (key, value) in
            [("ts", json!(-1.0)), ("ts", json!(1e300)), ("pid", json!(-3)), ("name", json!(7))]
        {
            let mut event = call(0, "MPI_Send", 1.0, 1.0);
            event[key] = value;
            assert!(refused(&file(&[event])).contains("no trace that OUTBOARD_TRACE made"), "{key}");
        }
        let strange = call(u64::MAX, "MPI_Send", 1.0, 1.0);
        assert!(refused(&file(&[strange])).contains("no MPI call"));
    }

    #[test]
    fn the_trace_is_never_overwritten() {
        let path = std::env::temp_dir().join(format!("outboard-profile-{}.html", std::process::id()));
        std::fs::write(&path, file(&events())).unwrap();
        let profile = |output: Option<PathBuf>| Profile { trace: path.clone(), output, json: false }.run();
        let said = profile(None).unwrap_err();
        let to = path.with_extension("page");
        assert!(profile(Some(to.clone())).is_ok());
        let folder = Profile { trace: std::env::temp_dir(), output: None, json: true }.run();
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&to).unwrap();
        assert!(said.contains("is the trace itself") && folder.unwrap_err().contains("not a file"));
    }
}
