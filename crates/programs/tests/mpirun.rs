// SPDX-License-Identifier: BSD-3-Clause
//! Tests of `mpirun` with shell programs and with `examples/rank.rs`: streams, environment variables, exit
//! codes, deaths.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn mpirun() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpirun"));
    // The test may itself run under some launcher.
    for (name, _) in std::env::vars() {
        if ["OUTBOARD_", "PMI", "OMPI_", "SLURM_", "MPIEXEC_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Returns the path of the test program, which is built from `examples/rank.rs`.
fn rank() -> String {
    let folder = PathBuf::from(env!("CARGO_BIN_EXE_mpirun")).parent().unwrap().join("examples");
    folder.join("rank").to_str().unwrap().to_string()
}

/// Runs `mpirun` with the words of `line`, in which RANK stands for the test program, and with `script` as
/// one more word. Returns its output, then standard output and standard error as text.
fn run(line: &str, script: Option<&str>) -> (Output, String, String) {
    let words = line.split_whitespace().map(|word| if word == "RANK" { rank() } else { word.to_string() });
    let output = mpirun().args(words).args(script).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    lines
}

/// Returns the pid of a process whose command line contains `marker`, or None if there is no such process.
fn process_of(marker: &str) -> Option<rustix::process::Pid> {
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok().filter(|pid| *pid != std::process::id() as i32)?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        rustix::process::Pid::from_raw(pid).filter(|_| String::from_utf8_lossy(&line).contains(marker))
    })
}

fn someone_has(marker: &str) -> bool {
    process_of(marker).is_some()
}

/// Waits until `done` returns true. Fails after two minutes, which only a hang explains; `what` names what
/// did not come.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn tasks_of_an_allocation_of_one_host_are_ranks() {
    let ranks = |tasks: &[(&str, &str)], words: &[&str]| {
        let mut command = mpirun();
        command.env("SLURM_JOB_ID", "7").env("SLURM_JOB_NODELIST", "a-name-in-slurm").envs(tasks.to_vec());
        command.args(words).args(["sh", "-c", "echo $OMPI_COMM_WORLD_SIZE"]);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect::<Vec<_>>()
    };
    let tasks = [("SLURM_NTASKS", "2"), ("SLURM_TASKS_PER_NODE", "2")];
    assert_eq!(ranks(&tasks, &[]), ["2", "2"]);
    assert_eq!(ranks(&tasks, &["-n", "1"]), ["1"]);
    assert_eq!(ranks(&[("SLURM_TASKS_PER_NODE", "8")], &[]), ["1"], "processors that nobody called tasks");
}

#[test]
fn labelled_lines_are_whole_and_all_arrive() {
    let (output, out, err) = run(
        "-l -n 4 sh -c",
        Some(
            "i=0; while [ $i -lt 2000 ]; do echo line $i of $OUTBOARD_RANK; i=$((i+1)); done; printf last >&2",
        ),
    );
    assert_eq!(code(&output), 0);
    for rank in 0..4 {
        let mine = out.lines().filter_map(|line| line.strip_prefix(&format!("[{rank}] ")));
        let wanted = (0..2000).map(|i| format!("line {i} of {rank}"));
        assert!(mine.eq(wanted), "rank {rank}");
        assert!(err.lines().any(|line| line == format!("[{rank}] last")));
    }
    assert_eq!(out.lines().count(), 8000);
}

#[test]
fn large_output_without_newlines_is_passed_on_unchanged() {
    let (output, out, _) = run("-n 1 sh -c", Some("head -c 5000000 /dev/zero | tr '\\0' x"));
    assert_eq!(code(&output), 0);
    assert!(out.len() == 5_000_000 && out.bytes().all(|byte| byte == b'x'), "{} bytes", out.len());
}

#[test]
fn ranks_end_when_nobody_reads_their_output() {
    let mut child =
        mpirun().args(["-n", "2", "yes"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!((line.as_str(), code(&output)), ("y\n", 141));
    assert!(String::from_utf8_lossy(&output.stderr).contains("SIGPIPE"));
}

#[test]
fn standard_input_is_rank_0s() {
    let mut child =
        mpirun().args(["-n", "3", "-l", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[0] one\n[0] two\n");
}

#[test]
fn several_programs_variables_and_folders() {
    let (output, out, err) = run(
        "-genv A all -n 1 -env B one -wdir / sh -c pwd : -np 2 -x B=two -env A own sh -c",
        Some(
            "echo $A $B $MPI_LOCALRANKID/$MPI_LOCALNRANKS $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE $PMI_RANK.",
        ),
    );
    assert_eq!(code(&output), 0, "{err}");
    assert_eq!(sorted(&out), ["/", "own two 1/3 1/3 .", "own two 2/3 2/3 ."]);
}

#[test]
fn ranks_find_their_job() {
    let (output, out, err) = run("-n 3 RANK join print leave", None);
    assert_eq!((code(&output), err.as_str()), (0, ""));
    assert_eq!(
        sorted(&out),
        ["rank 0 of 3 alone false", "rank 1 of 3 alone false", "rank 2 of 3 alone false"]
    );
    let script = format!("exec 2>&1; sh -c '{} join print leave'", rank());
    let (output, out, _) = run("-n 2 sh -c", Some(&script));
    assert_eq!((code(&output), sorted(&out)[0]), (0, "rank 0 of 2 alone false"), "{out}");
}

#[test]
fn the_descriptor_is_found_though_a_script_closed_it_and_is_not_given_to_children() {
    let script = format!("eval \"exec $OUTBOARD_JOB_FD>&-\"; {} join print leave", rank());
    let (output, out, err) = run("-n 2 bash -c", Some(&script));
    assert_eq!((code(&output), sorted(&out)[1]), (0, "rank 1 of 2 alone false"), "{err}");
    let (output, out, err) = run("-n 2 RANK join child=join,print,leave leave", None);
    assert_eq!(code(&output), 0, "{err}");
    assert_eq!(sorted(&out), ["rank 0 of 1 alone true", "rank 0 of 1 alone true"]);
}

#[test]
fn a_second_program_of_a_script_is_refused() {
    let script = format!("{0} join leave; {0} join leave", rank());
    let (output, _, err) = run("-n 2 sh -c", Some(&script));
    assert!(code(&output) != 0 && err.contains("only one MPI program"), "{err}");
}

#[test]
fn other_launchers_are_named() {
    let output = Command::new(rank()).arg("join").env("PMI_SIZE", "4").env("PMI_RANK", "1").output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(code(&output) == 9 && err.contains("PMI_SIZE=4") && err.contains("Outboard's mpirun"), "{err}");
}

#[test]
fn the_first_failure_is_reported_in_one_line_and_ends_the_job() {
    for (line, wanted, words) in [
        (
            "-n 3 RANK join @1:signal=9 sleep=60000",
            137,
            &["rank 1 (pid ", "killed by signal 9 (SIGKILL)"][..],
        ),
        ("-n 2 RANK join @1:signal=6 sleep=60000", 134, &["rank 1", "SIGABRT"]),
        ("-n 2 RANK join @0:exit=3 sleep=60000", 3, &["rank 0", "code 3 without MPI_Finalize"]),
        ("-n 2 RANK join @0:exit=0 sleep=60000", 1, &["rank 0", "code 0 without MPI_Finalize"]),
        ("-n 2 RANK join @1:abort=7 sleep=60000", 7, &["rank 1", "MPI_Abort with code 7"]),
        (
            "-n 2 RANK join @1:fail=15 sleep=60000",
            15,
            &["rank 1", "fatal error of code 15 (MPI_ERR_TRUNCATE)"],
        ),
        ("-n 2 RANK @1:exit=0 join sleep=60000", 1, &["rank 1 ended without MPI_Init"]),
        ("-n 2 RANK @1:exit=4 join sleep=60000", 4, &["rank 1", "exited with code 4"]),
    ] {
        let (output, _, err) = run(line, None);
        assert_eq!(code(&output), wanted, "{line}: {err}");
        assert!(words.iter().all(|word| err.contains(word)), "{line}: {err}");
        // A rank that crashes prints its own lines before.
        let said = err.lines().filter(|line| !line.starts_with("outboard: "));
        assert_eq!(said.count(), 1, "{line}: {err}");
    }
}

#[test]
fn a_time_limit_ends_the_job_and_says_what_ranks_wait_for() {
    let (output, _, err) = run("-n 2 --timeout 0.5 RANK join sleep=60000", None);
    assert_eq!(code(&output), 124, "{err}");
    let words = ["the time of 0.5 s", "what the 2 ranks of this job wait for", "rank 0 (pid", "rank 1 (pid"];
    assert!(words.iter().all(|word| err.contains(word)), "{err}");
    let output = mpirun().env("MPIEXEC_TIMEOUT", "0.2").args(["-n", "2", "sleep", "61"]).output().unwrap();
    assert_eq!(code(&output), 124, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_failure_after_finalize_is_the_exit_code_only() {
    let (output, out, err) = run("-n 2 RANK join leave @1:exit=5 sleep=300 print", None);
    assert_eq!((code(&output), err.as_str(), out.lines().count()), (5, "", 1));
}

#[test]
fn what_cannot_be_started_is_explained() {
    let folder = std::env::temp_dir();
    let plain = folder.join(format!("outboard-plain-{}", std::process::id()));
    std::fs::write(&plain, "text").unwrap();
    let plain_name = plain.to_str().unwrap();
    for (line, wanted, word) in [
        ("-n 2 no-such-command-anywhere", 127, "no such command"),
        ("-n 2 ./no-such-file", 127, "no such file"),
        (&format!("-n 2 {plain_name}"), 126, "not executable"),
        ("-wdir /no-such-folder true", 1, "not a folder"),
        ("-proxy-cores 4000 true", 1, "cpu 4000"),
        ("-genv OUTBOARD_CHECK 9 true", 1, "OUTBOARD_CHECK=9"),
        ("--bogus true", 2, "bogus"),
    ] {
        let (output, _, err) = run(line, None);
        assert_eq!(code(&output), wanted, "{line}: {err}");
        assert!(err.contains(word), "{line}: {err}");
    }
    std::fs::remove_file(&plain).unwrap();
    let (output, _, err) = run("", None);
    assert!(code(&output) == 2 && err.contains("Usage"), "{err}");
}

#[test]
fn an_unknown_setting_is_warned_of_once() {
    let (output, _, err) = {
        let output = mpirun()
            .args(["-n", "3", &rank(), "join", "leave"])
            .env("OUTBOARD_OFLOAD", "on")
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, (), err)
    };
    assert_eq!(code(&output), 0);
    assert_eq!(err, "mpirun: OUTBOARD_OFLOAD is not a setting; did you mean OUTBOARD_OFFLOAD?\n");
}

#[test]
fn interrupt_and_terminate_end_everything() {
    for (signal, wanted) in [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)] {
        let marker = format!("sleep 6{}{wanted}", std::process::id());
        // The ranks ignore the first request, so that only SIGKILL after the grace can end them.
        let script = format!("trap '' INT TERM; echo up; {marker}");
        let mut child =
            mpirun().args(["-n", "2", "sh", "-c", &script]).stderr(Stdio::null()).spawn().unwrap();
        eventually("the sleep", || someone_has(&marker.replace(' ', "\0")));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(wanted));
        assert!(!someone_has(&marker.replace(' ', "\0")));
    }
}

#[test]
fn ranks_start_with_no_signal_blocked_and_see_the_request_to_end() {
    let (_, out, _) = run("-n 1 grep SigBlk /proc/self/status", None);
    let zero = |line: &str| {
        line.split_whitespace().nth(1).is_some_and(|mask| mask.bytes().all(|digit| digit == b'0'))
    };
    assert!(out.lines().count() == 1 && out.lines().all(zero), "{out}");
    let script = "trap 'echo asked; exit 0' TERM; if [ $OUTBOARD_RANK = 1 ]; then sleep 0.3; exit 3; fi; sleep 60 & wait";
    let (output, out, _) = run("-n 2 sh -c", Some(script));
    assert_eq!((code(&output), out.as_str()), (3, "asked\n"));
}

#[test]
fn nothing_survives_mpirun_killed() {
    let number = format!("7{}", std::process::id());
    let mut child = mpirun()
        .args([
            "-n",
            "2",
            "--proxies",
            "1",
            &rank(),
            "join",
            &format!("daemon={number}"),
            &format!("sleep=9{number}"),
        ])
        .spawn()
        .unwrap();
    eventually("the daemon", || someone_has(&format!("sleep\0{number}")));
    let guardian = guardian_of(child.id());
    // This process does not belong to the job, though it has the launcher's pid, as a process of another
    // container may.
    let stranger = format!("8{number}");
    let mut other = Command::new("sleep");
    let mut other =
        other.arg(&stranger).env("OUTBOARD_LAUNCHER_PID", child.id().to_string()).spawn().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for marker in [&format!("sleep\0{number}"), &format!("sleep=9{number}")] {
        eventually("the end of all", || !someone_has(marker));
    }
    eventually("the guardian's end", || !std::path::Path::new(&format!("/proc/{guardian}")).exists());
    assert_eq!(other.try_wait().unwrap(), None, "a stranger was killed");
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Returns the pid of the guardian process that the `mpirun` with the pid `launcher` has started.
fn guardian_of(launcher: u32) -> u32 {
    let list = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    let is_guardian = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--guard-job-of")
    };
    list.split_whitespace().map(|pid| pid.parse().unwrap()).find(is_guardian).expect("a guardian")
}

/// Runs a shell script, in which MPIRUN stands for the path of `mpirun`. Returns its exit code and its
/// standard output.
fn shell(script: &str) -> (Option<i32>, String) {
    let script = script.replace("MPIRUN", env!("CARGO_BIN_EXE_mpirun"));
    let output = Command::new("timeout").args(["60", "sh", "-c", &script]).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    for signal in ["HUP", "INT", "QUIT", "TERM", "USR1"] {
        let script = format!("kill -{signal} $OUTBOARD_LAUNCHER_PID $$; sleep 0.3; echo alive");
        let ended = shell(&format!("trap '' {signal}; exec MPIRUN -n 2 sh -c '{script}'"));
        assert_eq!(ended, (Some(0), "alive\nalive\n".into()), "{signal}");
    }
}

#[test]
fn ignoring_the_end_of_children_does_not_hide_the_end_of_ranks() {
    let (code, _) =
        shell("exec env --ignore-signal=CHLD MPIRUN -n 2 sh -c 'exit $((OUTBOARD_RANK == 1 ? 7 : 0))'");
    assert_eq!(code, Some(7));
}

#[test]
fn what_a_shell_had_started_before_it_became_mpirun_is_spared() {
    // The same holds after a failure.
    let marker = format!("5{}", std::process::id());
    // One child, and a grandchild whose parent ends while the job runs; and a descendant of the job.
    let before = format!("sleep {marker}1 & (sleep {marker}2 & sleep 0.2) &");
    let (code, _) = shell(&format!(
        "exec >/dev/null 2>&1; {before} exec MPIRUN -n 1 sh -c 'setsid sleep {marker}3 & sleep 0.5; exit 3'"
    ));
    let left = [1, 2, 3].map(|number| process_of(&format!("sleep\0{marker}{number}")));
    for pid in left.into_iter().flatten() {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    assert_eq!((code, left.map(|pid| pid.is_some())), (Some(3), [true, true, false]));
}

#[test]
fn what_ranks_left_goes_on_after_a_good_end_and_is_ended_by_name_after_a_failure() {
    for failure in [0, 3] {
        let marker = format!("8{}", std::process::id());
        // One process with a session of its own, and one in the background.
        let quiet = ">/dev/null 2>&1 </dev/null &";
        let script =
            format!("setsid sleep {marker}1 {quiet} sleep {marker}3 {quiet} sleep 0.3; exit {failure}");
        let (output, _, err) = run("-n 1 sh -c", Some(&script));
        let left = [1, 3].map(|number| process_of(&format!("sleep\0{marker}{number}")));
        for pid in left.into_iter().flatten() {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        assert_eq!((code(&output), left.map(|pid| pid.is_some())), (failure, [failure == 0; 2]), "{err}");
        let told: Vec<&str> = err.lines().filter(|line| line.contains("had left processes")).collect();
        assert_eq!(told.len(), usize::from(failure != 0), "{err}");
        assert!(told.iter().all(|line| line.contains("sleep (pid ") && line.contains("SIGTERM")), "{err}");
    }
}

#[test]
fn a_dead_proxy_is_marked_and_warned_of_and_the_job_goes_on() {
    let (output, out, err) =
        run("-n 2 --proxies 1 RANK join @0:kill-proxy await-dead-proxy proxy-state leave", None);
    assert_eq!(code(&output), 0, "{err}");
    assert_eq!(sorted(&out), ["proxy 0 is Dead", "proxy 0 is Dead"]);
    assert!(err.lines().count() == 1 && err.contains("proxy 0 (pid ") && err.contains("SIGKILL"), "{err}");
}

#[test]
fn the_trace_is_one_valid_file() {
    let folder = std::env::temp_dir().join(format!("outboard-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let output = mpirun()
        .args(["-n", "2", "--proxies", "1", "-wdir", "/", &rank(), "join", "event", "leave"])
        .env("OUTBOARD_TRACE", "trace.json")
        .current_dir(&folder)
        .output()
        .unwrap();
    assert_eq!((code(&output), String::from_utf8_lossy(&output.stderr).as_ref()), (0, ""));
    let text = std::fs::read_to_string(folder.join("trace.json")).unwrap();
    let events = telemetry::chrome::parse(&text).unwrap();
    telemetry::chrome::check(&events).unwrap();
    for pid in [0, 1, telemetry::chrome::FIRST_PROXY_PID] {
        assert!(events.iter().any(|event| event["pid"] == pid), "process {pid}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "parts were left");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn statistics_are_printed_once() {
    let (output, _, err) = run("-n 2 -genv OUTBOARD_STATS 1 RANK join leave", None);
    assert_eq!(code(&output), 0);
    assert_eq!(err.matches("counters of 2 ranks").count(), 1, "{err}");
}
