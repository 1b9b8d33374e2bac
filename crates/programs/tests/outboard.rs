// SPDX-License-Identifier: BSD-3-Clause
//! Tests of `outboard`: on a running job, and what it prints about the library.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn outboard(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_outboard")).args(words).output().unwrap()
}

fn text(words: &[&str]) -> String {
    let output = outboard(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn top_sees_a_running_job_and_its_counters() {
    let mpirun = env!("CARGO_BIN_EXE_mpirun");
    let rank = PathBuf::from(mpirun).parent().unwrap().join("examples/rank");
    let mut job = Command::new(mpirun)
        .args(["-n", "2", "--proxies", "1", rank.to_str().unwrap(), "join", "count", "print", "sleep=60000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // A line of each rank shows that both have counted.
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(job.stdout.take().unwrap()));
    assert!(lines.next().unwrap().is_ok() && lines.next().unwrap().is_ok());
    let pid = job.id().to_string();
    let shown = text(&["top", "--once", "--job", &pid]);
    let json: Value = serde_json::from_str(&text(&["top", "--json", "--job", &pid])).unwrap();
    job.kill().unwrap();
    job.wait().unwrap();

    assert!(shown.starts_with(&format!("job {pid}: 2 ranks, 1 proxies")), "{shown}");
    let words = |name: &str| -> Vec<&str> {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().collect()
    };
    assert_eq!((words("rank 1")[3], words("rank 1")[5]), ("Running", "5"), "{shown}");
    assert!(shown.contains("proxy 0"), "{shown}");
    assert_eq!(json[0]["job"].to_string(), pid);
    assert_eq!(json[0]["ranks"][1]["counters"]["eager_messages_sent"], 5);
    assert_eq!(json[0]["proxies"].as_array().unwrap().len(), 1);
    // This is more than the largest pid of Linux.
    let none = outboard(&["top", "--once", "--job", "4194305"]);
    assert!(!none.status.success());
}

#[test]
fn info_tells_the_network_and_why_it_was_chosen() {
    let shown = text(&["info", "--fabric", "--address", "127.0.0.1"]);
    let chosen: Vec<&str> =
        shown.lines().filter(|line| line.starts_with("* ") && line.contains(':')).collect();
    assert!(
        chosen.len() == 1 && chosen[0].contains("the launcher's address of this host is 127.0.0.1"),
        "{shown}"
    );
    let without = Command::new(env!("CARGO_BIN_EXE_outboard"))
        .args(["info", "--fabric"])
        .env("OUTBOARD_FABRIC_LIB", "/nonexistent/libfabric.so")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&without.stderr);
    assert_eq!(without.status.code(), Some(1), "{said}");
    assert!(
        said.contains("/nonexistent/libfabric.so") && said.contains("Jobs on one host need no"),
        "{said}"
    );
}

#[test]
fn info_tells_values_and_defaults() {
    let output = Command::new(env!("CARGO_BIN_EXE_outboard"))
        .args(["info", "--settings"])
        .env("OUTBOARD_OFFLOAD", "on")
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("OUTBOARD_OFFLOAD=on   (default auto)"), "{shown}");
    assert!(!shown.contains("OUTBOARD_JOB_FD"));
    let json: Value = serde_json::from_str(&text(&["info", "--json"])).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["settings"].as_array().unwrap().iter().any(|row| row["variable"] == "OUTBOARD_TRACE"));
    let functions = text(&["info", "--functions"]);
    let last = functions.lines().last().unwrap();
    let bodies = functions.lines().filter(|line| line.ends_with(" yes")).count();
    let all = functions.lines().count() - 1;
    assert_eq!(last, format!("functions with a body: {bodies} of {all}"));
}

#[test]
fn mistakes_are_told() {
    let output = outboard(&["nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nonsense"));
}

#[test]
fn the_monitor_is_started_where_it_is_and_how_it_is_had_is_said_where_it_is_not() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("monitor-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (program, monitor) = (folder.join("outboard"), folder.join("outboard-monitor"));
    std::fs::hard_link(env!("CARGO_BIN_EXE_outboard"), &program).unwrap();
    let run = || Command::new(&program).args(["monitor", "--one"]).output().unwrap();
    let without = run();
    std::os::unix::fs::symlink("/bin/echo", &monitor).unwrap();
    let with = run();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(without.status.code() == Some(1) && said.contains("make monitor"), "{said}");
    assert_eq!(String::from_utf8_lossy(&with.stdout), "--one\n");
}
