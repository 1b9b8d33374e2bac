// SPDX-License-Identifier: BSD-3-Clause
//! Starts the processes of ranks and proxies with their environment variables, standard streams and cpus
//! (hardware threads).

use std::ffi::OsString;
use std::hash::BuildHasher;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use settings::Settings;
use transport::route_fabric::SIZES;

use super::guardian::JOB_ID;
use crate::mpirun::command::arguments::{Global, RankProgram};
use crate::mpirun::command::say::Refusal;
use crate::mpirun::streams::input;

/// The numbers of a rank that is to be started: in the segment, in its world and on this host.
pub struct RankPlacement<'a> {
    /// The rank's process number in the segment.
    pub rank: u32,
    /// The rank's number in its MPI_COMM_WORLD.
    pub number: u32,
    /// The size of the rank's MPI_COMM_WORLD.
    pub size: u32,
    /// The rank's index among the ranks of its MPI_COMM_WORLD on this host, and how many ranks that world has
    /// here.
    pub local: (u32, u32),
    /// The process numbers of the ranks that called MPI_Comm_spawn to start this rank. Empty for a rank of
    /// the first world.
    pub parents: &'a [u32],
}

/// What `mpirun` passes on to every process that it starts for a job.
pub struct Setup {
    /// The descriptor of the job's segment, which ranks and proxies inherit.
    pub fd: OwnedFd,
    /// The job's random id, which all its processes have in their environment. The id tells them apart from
    /// later processes with the same pid.
    pub id: String,
    /// The command-line options that hold for the whole job.
    pub global: Global,
    /// Whether a rank may inherit the standard input of this process. True if the job's root (`mpirun`) is in
    /// this process.
    pub reads_ours: bool,
    /// The value of MPI_UNIVERSE_SIZE, or None if the attribute is to be the number of ranks.
    pub universe: Option<u32>,
    /// The absolute path of the file into which the trace (OUTBOARD_TRACE) is written. None if no trace is
    /// wanted.
    pub trace: Option<PathBuf>,
}

impl Setup {
    /// Returns a random id for a job, in 16 hexadecimal digits.
    pub fn new_id() -> String {
        format!("{:016x}", std::hash::RandomState::new().hash_one(std::process::id()))
    }

    /// Returns the path of the trace file, made absolute because ranks may start in another folder (`-wdir`).
    /// Hosts may share a file system, so the path ends in the number `node` if that is given. None if no
    /// trace is wanted.
    pub fn trace_path(settings: &Settings, node: Option<u32>) -> Option<PathBuf> {
        let file = settings.trace.as_ref()?;
        let mut path = std::path::absolute(file).unwrap_or_else(|_| file.clone()).into_os_string();
        if let Some(node) = node {
            path.push(format!(".node-{node}"));
        }
        Some(path.into())
    }

    /// Starts a rank on these cpus. Returns its process, and the descriptor from which we read the rank's
    /// standard output: our end of the terminal that --pty gives the rank, else of a pipe.
    pub fn start_rank(
        &self,
        program: &RankProgram,
        placement: &RankPlacement,
        cpus: &[usize],
    ) -> Result<(Child, Option<OwnedFd>), Refusal> {
        let mut command = Command::new(&program.words[0]);
        command.args(&program.words[1..]);
        self.prepare(&mut command, &program.environment);
        command.env("OUTBOARD_RANK", placement.rank.to_string());
        if let Some(universe) = self.universe {
            command.env("OUTBOARD_UNIVERSE_SIZE", universe.to_string());
        }
        if !placement.parents.is_empty() {
            let parents: Vec<String> = placement.parents.iter().map(u32::to_string).collect();
            command.env("OUTBOARD_PARENTS", parents.join(","));
        }
        // Programs choose their GPU or scratch folder by these names of other MPIs. PMI_RANK is not among
        // them: with it a program of an MPICH would look for a process manager that is not there.
        let (local_rank, local_size) = placement.local;
        for (name, number) in [
            ("OMPI_COMM_WORLD_RANK", placement.number),
            ("OMPI_COMM_WORLD_SIZE", placement.size),
            ("MPI_LOCALRANKID", local_rank),
            ("OMPI_COMM_WORLD_LOCAL_RANK", local_rank),
            ("OMPI_COMM_WORLD_NODE_RANK", local_rank),
            ("MPI_LOCALNRANKS", local_size),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", local_size),
        ] {
            command.env(name, number.to_string());
        }
        // A job of one rank makes a wheel of mpi4py complain about the wrong mpirun. It does not complain
        // about larger jobs.
        if placement.size == 1 && settings::launcher_variables::variable("MPI4PY_CHECK_MPIEXEC").is_none() {
            command.env("MPI4PY_CHECK_MPIEXEC", "0");
        }
        if let Some(directory) = &program.directory {
            command.current_dir(directory);
        }
        let spawned = !placement.parents.is_empty();
        command.stdin(if spawned {
            Stdio::null()
        } else {
            input::for_rank(placement.rank, &self.global.stdin, self.reads_ours)
        });
        command.stderr(Stdio::piped());
        let ours = if self.global.pty {
            let (ours, theirs) =
                pty().map_err(|error| Refusal::other(format!("--pty: cannot make a terminal: {error}")))?;
            command.stdout(theirs);
            Some(ours)
        } else {
            self.unbuffered(&mut command, program);
            command.stdout(Stdio::piped());
            None
        };
        if settings::get().malloc == settings::Malloc::Arena {
            // The library is named without its path: a path with a space would be taken for two.
            put_before(&mut command, &program.environment, "LD_PRELOAD", "liboutboard_malloc.so".into());
        }
        sys::child::tie(&mut command, cpus);
        let mut child = command.spawn().map_err(|error| refusal(program, &error))?;
        let output = ours.or(child.stdout.take().map(OwnedFd::from));
        Ok((child, output))
    }

    /// Sets environment variables that make Python and gfortran write each line at once, although the output
    /// is a pipe. A variable that the user sets stays. For C and C++ the MPI library does the same.
    fn unbuffered(&self, command: &mut Command, program: &RankProgram) {
        for (name, value) in [("PYTHONUNBUFFERED", "1"), ("GFORTRAN_UNBUFFERED_PRECONNECTED", "y")] {
            let is_given = program.environment.iter().any(|(given, _)| given == name);
            if !is_given && settings::launcher_variables::variable(name).is_none() {
                command.env(name, value);
            }
        }
    }

    /// Starts proxy number `proxy` of this host on these cpus, and returns its process.
    pub fn start_proxy(&self, proxy: u32, cpus: &[usize]) -> Result<Child, Refusal> {
        let path = beside_us("outboard-proxy");
        let mut command = Command::new(&path);
        self.prepare(&mut command, &self.global.genv());
        command.env("OUTBOARD_PROXY", proxy.to_string());
        command.stdin(Stdio::null());
        sys::child::tie(&mut command, cpus);
        command
            .spawn()
            .map_err(|error| Refusal::other(format!("cannot start the proxy {}: {error}", path.display())))
    }

    fn prepare(&self, command: &mut Command, environment: &[(OsString, OsString)]) {
        // Variables that another process manager left for its own children would mislead programs that read
        // them.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PMI_") || name.starts_with("PMIX_")) {
                command.env_remove(name);
            }
        }
        command.env_remove("OUTBOARD_RANK").env_remove("OUTBOARD_PROXY").env_remove("OUTBOARD_PARENTS");
        // A rank sets these itself only if it has one thread when it loads the library.
        for (name, value) in
            SIZES.iter().filter(|(name, _)| settings::launcher_variables::variable(name).is_none())
        {
            command.env(name, value);
        }
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        // So a program finds the libmpi_abi.so.1 of this `mpirun`.
        put_before(command, environment, "LD_LIBRARY_PATH", beside_us("../lib").into());
        if let Some(trace) = &self.trace {
            command.env("OUTBOARD_TRACE", trace);
        }
        command.env("OUTBOARD_JOB_FD", std::os::fd::AsRawFd::as_raw_fd(&self.fd).to_string());
        command.env("OUTBOARD_LAUNCHER_PID", std::process::id().to_string());
        command.env(JOB_ID, &self.id);
    }
}

/// Opens a pseudo-terminal as wide as our own. Returns the end from which we read, and the end, in raw mode,
/// to which a rank prints.
fn pty() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    let mut modes = tcgetattr(&theirs)?;
    modes.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &modes)?;
    if let Ok(size) = tcgetwinsize(std::io::stdout()) {
        tcsetwinsize(&theirs, size)?;
    }
    Ok((ours, theirs))
}

/// Sets the variable `name` of a command to `ours`, followed by a colon and the paths that the user gave: in
/// `environment`, else in our own environment.
fn put_before(command: &mut Command, environment: &[(OsString, OsString)], name: &str, ours: OsString) {
    let given = environment.iter().rev().find(|(given, _)| given == name).map(|(_, value)| value.clone());
    let mut all = ours;
    if let Some(path) =
        given.or_else(|| settings::launcher_variables::variable(name)).filter(|path| !path.is_empty())
    {
        all.push(":");
        all.push(path);
    }
    command.env(name, all);
}

/// Returns the absolute path of the file `relative`, seen from the folder of our own executable. So the
/// installed tree may lie anywhere.
pub(super) fn beside_us(relative: &str) -> PathBuf {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).unwrap_or_default();
    let folder = own.parent().unwrap_or(Path::new("."));
    match relative.strip_prefix("../") {
        Some(rest) => folder.parent().unwrap_or(folder).join(rest),
        None => folder.join(relative),
    }
}

/// Returns a message for the user that says why a program could not be started, and the exit code that a
/// shell would return.
fn refusal(program: &RankProgram, error: &std::io::Error) -> Refusal {
    let name = program.words[0].to_string_lossy();
    if let Some(directory) = program.directory.as_ref().filter(|directory| !directory.is_dir()) {
        return Refusal { code: 1, message: format!("-wdir: {} is not a folder", directory.display()) };
    }
    match error.raw_os_error() {
        Some(libc::ENOENT) if name.contains('/') && Path::new(&*name).exists() => {
            Refusal { code: 126, message: format!("{name}: the interpreter that it names does not exist") }
        }
        Some(libc::ENOENT) if name.contains('/') => {
            Refusal { code: 127, message: format!("{name}: no such file") }
        }
        Some(libc::ENOENT) => Refusal {
            code: 127,
            message: format!("{name}: no such command in PATH (for one in this folder, write ./{name})"),
        },
        Some(libc::EACCES) => Refusal { code: 126, message: format!("{name}: not executable") },
        Some(libc::ENOEXEC) => Refusal {
            code: 126,
            message: format!("{name}: neither a program of this machine nor a script with #!"),
        },
        Some(libc::EMFILE) => Refusal {
            code: 1,
            message: format!(
                "{name}: cannot be started: mpirun, which needs three descriptors for each rank, may have only {}: raise `ulimit -n`",
                sys::limits::descriptors().unwrap_or(0)
            ),
        },
        _ => Refusal { code: 126, message: format!("{name}: cannot be started: {error}") },
    }
}
