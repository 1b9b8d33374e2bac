// SPDX-License-Identifier: BSD-3-Clause
//! How `mpirun` reaches hosts: the commands that start agents and relays there.
//!
//! With more hosts than OUTBOARD_LAUNCH_FANOUT the commands form a tree: each reaches the first of several
//! hosts, where a relay starts the agents of all of them.
//!
//! Read next: `link.rs`, `relay.rs`.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::mpirun::command::allocation;
use crate::mpirun::command::arguments::{Global, Launcher};
use crate::mpirun::place::hosts;

/// The hidden first argument of an agent.
pub const AGENT: &str = "--agent";
/// The most commands (ssh, rsh or srun) that one process starts, unless OUTBOARD_LAUNCH_FANOUT says
/// otherwise.
const FANOUT: usize = 32;

/// A host on which an agent is to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentHost {
    /// The number of the host's node.
    pub node: u32,
    /// The host's name, as ssh or another launcher's command takes it.
    pub name: String,
}

/// The hidden first argument of a relay.
pub const RELAY: &str = "--relay";

/// The work of a relay: the hosts that it reaches, and the command by which it reaches them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Relay {
    pub launch: AgentCommand,
    /// The hosts to reach. The first is the relay's own.
    pub members: Vec<AgentHost>,
}

/// The command that starts `mpirun` on another host, such as ssh with its options. `mpirun` and its relays
/// use the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentCommand {
    /// The words of the command before the host's name.
    before: Vec<OsString>,
    /// What stands before the host's name in the same word, such as `--nodelist=`; mostly empty.
    prefix: String,
    /// The path of `mpirun` on the other host, quoted as the command needs it.
    program: OsString,
    /// Whether an agent on this host is started without the command.
    has_shortcut: bool,
    /// The most commands that one process starts.
    pub fanout: usize,
}

impl AgentCommand {
    /// Returns the command that the user chose, or else the one that the environment suggests.
    pub fn of(global: &Global, fanout: Option<u64>) -> AgentCommand {
        let own = std::env::current_exe().unwrap_or_else(|_| "mpirun".into());
        let given = if global.launcher.is_none() { allocation::launcher_exec() } else { None };
        let launcher_exec = global.launcher_exec.clone().or(given);
        let in_slurm = || settings::launcher_variables::variable("SLURM_JOB_ID").is_some();
        let launcher = match global.launcher {
            Some(launcher) => launcher,
            None if launcher_exec.is_none() && in_slurm() => Launcher::Srun,
            None => Launcher::Ssh,
        };
        let words: &[&str] = match launcher {
            // A command of the user's has the form of ssh, but not its options.
            _ if launcher_exec.is_some() => &[],
            Launcher::Ssh => {
                let alive = "ServerAliveInterval=10";
                &["ssh", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", alive]
            }
            Launcher::Rsh => &["rsh"],
            Launcher::Srun => &[
                "srun",
                "--nodes=1",
                "--ntasks=1",
                "--overlap",
                "--input=all",
                "--unbuffered",
                "--mpi=none",
                "--cpu-bind=none",
            ],
        };
        let is_srun = launcher_exec.is_none() && launcher == Launcher::Srun;
        let is_ssh = launcher_exec.is_none() && launcher == Launcher::Ssh;
        let options = if is_ssh { allocation::ssh_options() } else { Vec::new() };
        // A user's command may work on this host only, so relays must not be asked to run it.
        let default_fanout = if launcher_exec.is_some() { usize::MAX } else { FANOUT };
        let before = launcher_exec.into_iter().map(OsString::from);
        AgentCommand {
            before: before
                .chain(words.iter().map(OsString::from))
                .chain(options.into_iter().map(OsString::from))
                .collect(),
            prefix: if is_srun { "--nodelist=" } else { "" }.to_owned(),
            program: if is_srun { own.into_os_string() } else { quoted(&own) },
            has_shortcut: global.launcher_exec.is_none(),
            fanout: fanout.map_or(default_fanout, |fanout| fanout as usize),
        }
    }

    /// Returns a name for `host` that means the same host everywhere: this host's own name for `localhost`.
    pub fn name(&self, host: &str) -> String {
        let own = sys::host::name();
        if self.has_shortcut && hosts::is_here(host, &own) { own } else { host.to_owned() }
    }

    /// Returns the command that starts `mpirun` on a host with `word` as its hidden first argument.
    pub fn command(&self, host: &str, word: &str) -> Command {
        if self.has_shortcut && hosts::is_here(host, &sys::host::name()) {
            return AgentCommand::here(word);
        }
        let mut words = self.before.iter();
        let mut command = Command::new(words.next().map_or("ssh".as_ref(), OsString::as_os_str));
        command.args(words).arg(format!("{}{host}", self.prefix)).arg(&self.program).arg(word);
        command
    }

    /// Returns the command that starts `mpirun` on this host with the hidden argument `word`.
    pub fn here(word: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "mpirun".into()));
        command.arg(word);
        command
    }

    /// Divides hosts into groups, at most `fanout` of them, one for each command. A command reaches the first
    /// host of its group, and a relay there the others.
    pub fn groups<'a>(&self, members: &'a [AgentHost]) -> impl Iterator<Item = &'a [AgentHost]> {
        let (hosts, commands) = (members.len(), members.len().min(self.fanout));
        (0..commands).map(move |at| &members[at * hosts / commands..(at + 1) * hosts / commands])
    }
}

/// Returns a path, quoted so that a remote shell takes it for one word.
fn quoted(path: &Path) -> OsString {
    match shlex::try_quote(&path.to_string_lossy()) {
        Ok(word) => word.into_owned().into(),
        Err(_) => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the tree of commands reaches each host once, and no process starts more commands than the
    /// fan-out. Method: the trees for 1 to 300 hosts, followed as relays do.
    #[test]
    fn a_tree_reaches_each_host_once() {
        fn follow(launch: &AgentCommand, members: &[AgentHost], reached: &mut Vec<u32>) -> usize {
            let mut depth = 0;
            let groups: Vec<_> = launch.groups(members).collect();
            assert!(groups.len() <= launch.fanout);
            for group in groups {
                reached.push(group[0].node);
                depth = depth.max(1 + follow(launch, &group[1..], reached));
            }
            depth
        }
        for hosts in (1..=300).step_by(7) {
            let members: Vec<_> =
                (0..hosts).map(|node| AgentHost { node, name: format!("h{node}") }).collect();
            for (fanout, depth_max) in [(2, 8), (3, 6), (32, 2), (300, 1)] {
                let mut reached = Vec::new();
                let (before, prefix, program) = (Vec::new(), String::new(), OsString::new());
                let launch = AgentCommand { before, prefix, program, has_shortcut: false, fanout };
                let depth = follow(&launch, &members, &mut reached);
                reached.sort_unstable();
                assert_eq!(reached, (0..hosts).collect::<Vec<_>>());
                assert!(depth <= depth_max, "{hosts} hosts, {fanout} each: {depth} levels");
            }
        }
    }
}
