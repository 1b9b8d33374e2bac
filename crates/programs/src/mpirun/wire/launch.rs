// SPDX-License-Identifier: BSD-3-Clause
//! The commands by which `mpirun` reaches other hosts: they start agents and relays there. A relay is an
//! `mpirun` that passes frames on.
//!
//! With more hosts than OUTBOARD_LAUNCH_FANOUT the commands form a tree. Each command reaches the first host
//! of a group, and a relay there starts the agents of the whole group.
//!
//! Read next: `link.rs`, `relay.rs`.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::mpirun::command::allocation;
use crate::mpirun::command::arguments::{Global, Launcher};
use crate::mpirun::place::hosts;

/// The hidden first argument with which `mpirun` runs as an agent.
pub const AGENT: &str = "--agent";
/// The most commands (ssh, rsh or srun) that one process starts, unless OUTBOARD_LAUNCH_FANOUT gives another
/// number.
const FANOUT: usize = 32;

/// A host on which an agent (an `mpirun` process for that host) is to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentHost {
    /// The host's node number.
    pub node: u32,
    /// The host's name, as ssh or another such command takes it.
    pub name: String,
}

/// The hidden first argument with which `mpirun` runs as a relay.
pub const RELAY: &str = "--relay";

/// What a relay has to do: the hosts that it must reach, and the command for reaching them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Relay {
    pub launch: AgentCommand,
    /// The hosts to reach. The first is the relay's own.
    pub members: Vec<AgentHost>,
}

/// The command that starts `mpirun` on another host, such as ssh with its options. `mpirun` and its relays
/// use the same command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentCommand {
    /// The words of the command that stand before the host's name.
    before: Vec<OsString>,
    /// What stands before the host's name in the same word: `--nodelist=` for srun, else nothing.
    prefix: String,
    /// The path of `mpirun` on the other host, quoted if the command passes it to a shell.
    program: OsString,
    /// Whether an agent (`mpirun`) on this host is started directly, without the command.
    has_shortcut: bool,
    /// The most commands that one process starts at the same time.
    pub fanout: usize,
}

impl AgentCommand {
    /// Returns the command that the user chose on the command line, else the one that the environment
    /// suggests (Slurm's srun in an allocation), else ssh.
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

    /// Returns a name for `host` that every host understands: this host's own name in place of `localhost`.
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

    /// Divides hosts into at most `fanout` groups, for one command each. The command reaches the first host
    /// of the group, and a relay there the others.
    pub fn groups<'a>(&self, members: &'a [AgentHost]) -> impl Iterator<Item = &'a [AgentHost]> {
        let (hosts, commands) = (members.len(), members.len().min(self.fanout));
        (0..commands).map(move |at| &members[at * hosts / commands..(at + 1) * hosts / commands])
    }
}

/// Returns `path`, quoted so that a remote shell reads it as one word.
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
