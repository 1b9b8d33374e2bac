// SPDX-License-Identifier: BSD-3-Clause
//! chDB, which is ClickHouse's engine as a Python wheel, for machines without a ClickHouse server. At the
//! monitor's first start it is installed into a Python environment of its own. `adapter.py` serves it by
//! ClickHouse's HTTP interface.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The tested version of chDB, as a requirements file for pip, with the hashes of the wheels. The packages
/// that chDB needs for Python programs only (pandas, pyarrow) are left out.
pub const WHEELS: &str = "\
chdb==4.4.0 --hash=sha256:b9d1159b19a101a650e72e085631dcc3a0879c31faf7c098bff3ea51dbba2daf
chdb-core==26.9.0 --hash=sha256:0d24d78969f7ab41d5303c148b7cf64880fa017507bbed9c9b8799b29c26723f --hash=sha256:46148d3fc1edd6d6f701922be0f18e2aa6e60349e418b430e69bbb87ab6b95a9 --hash=sha256:707e2ec3fe0f7953bac97942eaeb7a1ed1d66b1e56ecef3f0aa2130f61f6e735 --hash=sha256:bc2d2baedc038ba04be59d97d9ded4f87a3fbe05c3820f93d90e508b1e541ad0
";

/// The process in which chDB runs. It is started again when it ends. It ends when this process ends, because
/// then its standard input is closed.
pub struct Chdb {
    venv: PathBuf,
    folder: PathBuf,
    /// The URL of chDB's present process, and the key that the process asks for. Each new process has another
    /// URL and key.
    place: Mutex<(String, String)>,
}

/// The shortest time between two starts of the process in which chDB runs.
const AGAIN: Duration = Duration::from_secs(2);

impl Chdb {
    pub fn start(venv: &Path, folder: &Path) -> Result<Arc<Chdb>, String> {
        install(venv)?;
        let chdb = Chdb { venv: venv.into(), folder: folder.into(), place: Mutex::default() };
        let mut running = chdb.first()?;
        let chdb = Arc::new(chdb);
        let kept = chdb.clone();
        std::thread::spawn(move || {
            loop {
                let how =
                    running.0.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                eprintln!("outboard monitor: chDB has ended ({how}) and is started again");
                running = loop {
                    std::thread::sleep(AGAIN);
                    match kept.spawn() {
                        Ok(running) => break running,
                        Err(why) => eprintln!("outboard monitor: {why}"),
                    }
                };
            }
        });
        Ok(chdb)
    }

    pub fn place(&self) -> (String, String) {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts chDB's first process, and returns it with its standard input. Tries several times, because the
    /// chDB of a monitor that was killed a moment ago may still hold the data folder.
    fn first(&self) -> Result<(Child, ChildStdin), String> {
        let mut found = self.spawn();
        for _ in 0..3 {
            if found.is_err() {
                std::thread::sleep(AGAIN);
                found = self.spawn();
            }
        }
        found
    }

    /// Starts a process in which chDB runs. Returns the process and its standard input; the process ends when
    /// this input is closed.
    fn spawn(&self) -> Result<(Child, ChildStdin), String> {
        let key = crate::secret::random();
        let mut child = Command::new(self.venv.join("bin/python"))
            .args(["-I", "-c", include_str!("adapter.py")])
            .arg(&self.folder)
            // A library that was preloaded into the monitor is of no use to chDB.
            .env_remove("LD_PRELOAD")
            // Ctrl-C goes to the monitor alone, and chDB ends with it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("chDB cannot be started: {error}"))?;
        let mut line = String::new();
        let mut input = child.stdin.take().expect("it is a pipe");
        let sent = input.write_all(format!("{key}\n").as_bytes());
        let heard = BufReader::new(child.stdout.take().expect("it is a pipe")).read_line(&mut line);
        match (sent, heard, line.trim().parse::<u16>()) {
            (Ok(()), Ok(_), Ok(port)) => {
                *self.place.lock().unwrap_or_else(PoisonError::into_inner) =
                    (format!("http://127.0.0.1:{port}"), key);
                Ok((child, input))
            }
            _ => {
                // The process has ended already, or shall end now.
                let _ = child.kill();
                let _ = child.wait();
                Err("chDB did not start; its own words stand above".into())
            }
        }
    }
}

/// Makes the Python environment of chDB, unless it exists.
fn install(venv: &Path) -> Result<(), String> {
    let done = venv.join("outboard-monitor-done");
    if std::fs::read_to_string(&done).is_ok_and(|text| text == WHEELS) {
        return Ok(());
    }
    println!("outboard monitor: installing chDB into {} (once; 600 MB)", venv.display());
    let run = |command: &mut Command| {
        let output = command
            .env_remove("LD_PRELOAD")
            .output()
            .map_err(|error| format!("{:?} cannot be started: {error}", command.get_program()))?;
        let words = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(())
        } else {
            Err(format!(
                "chDB cannot be installed: {}; without a network see \"chDB without a network\" in \
                 monitor/docs/monitor.md, or name a ClickHouse server in [store] url",
                error_of(&words)
            ))
        }
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    let named = |error: std::io::Error| format!("{}: {error}", venv.display());
    let list = venv.join("requirements.txt");
    std::fs::write(&list, WHEELS).map_err(named)?;
    let pip = ["-q", "--disable-pip-version-check", "install", "--no-deps", "--require-hashes", "-r"];
    run(Command::new(venv.join("bin/pip")).args(pip).arg(&list))?;
    std::fs::write(&done, WHEELS).map_err(named)
}

/// Returns the last error in pip's output `words`, with all of its lines. Returns the last line if there is
/// no error.
fn error_of(words: &str) -> String {
    let from = words.rfind("ERROR:").or_else(|| words.trim_end().rfind('\n')).unwrap_or_default();
    words[from..].split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pips_last_error_is_told_as_a_whole() {
        let words = "ERROR: first\nERROR: THESE PACKAGES DO NOT MATCH THE HASHES.\n    chdb==4.4.0:\n        Got  3576\n\n";
        assert_eq!(error_of(words), "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES. chdb==4.4.0: Got 3576");
        assert_eq!((error_of("a\nb c\n").as_str(), error_of("")), ("b c", String::new()));
    }
}
