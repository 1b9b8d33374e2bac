// SPDX-License-Identifier: BSD-3-Clause
//! The hosts that environment variables name, for a command line without hosts: an allocation of Slurm, or
//! the list that Kubeflow's MPI operator sets for MPICH, Intel MPI and Open MPI.
//!
//! Read next: `hosts.rs`.

use std::path::PathBuf;

use settings::launcher_variables::variable;

use crate::mpirun::place::hosts::{self, Host, Hosts};

/// Environment variables that hold the path of a file with a list of hosts.
const HOST_FILES: [&str; 4] = [
    "HYDRA_HOST_FILE",
    "I_MPI_HYDRA_HOST_FILE",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
];
/// Environment variables that hold the command that starts processes on other hosts in place of ssh.
const LAUNCHERS: [&str; 4] =
    ["HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"];
/// Environment variables that hold further options for `ssh`. Kubeflow sets them, because a pod starts before
/// its sshd.
const SSH_OPTIONS: [&str; 5] = [
    "HYDRA_LAUNCH_EXTRA_ARGS",
    "HYDRA_LAUNCHER_EXTRA_ARGS",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
    "OMPI_MCA_plm_rsh_args",
    "PRTE_MCA_plm_ssh_args",
];

/// Returns the hosts that environment variables name, or None if no variable names any. An error is a
/// sentence that names the variable at fault.
pub fn hosts() -> Result<Option<Hosts>, String> {
    let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
    for name in HOST_FILES {
        if let Some(path) = text(name) {
            return hosts::file(&path).map(Some).map_err(|why| format!("{name}={path}: {why}"));
        }
    }
    let Some(list) = text("SLURM_JOB_NODELIST") else { return Ok(None) };
    let wrong = || format!("SLURM_JOB_NODELIST={list} is no list of hosts");
    let names = names(&list).ok_or_else(wrong)?;
    // Without a number of tasks from the user each host has one slot.
    let tasks = text("SLURM_NTASKS_PER_NODE").and(text("SLURM_TASKS_PER_NODE"));
    let tasks = tasks.or_else(|| text("SLURM_NTASKS").and(text("SLURM_TASKS_PER_NODE")));
    let slots = tasks.map_or(Some(Vec::new()), |tasks| counts(&tasks)).ok_or_else(wrong)?;
    let slots = slots.into_iter().chain(std::iter::repeat(1));
    Ok(Some(Hosts(names.into_iter().zip(slots).map(|(name, slots)| Host { name, slots }).collect())))
}

/// Returns the command that starts processes on other hosts in place of ssh. None if no environment variable
/// names one.
pub fn launcher_exec() -> Option<PathBuf> {
    LAUNCHERS.iter().find_map(|name| variable(name)).map(PathBuf::from)
}

/// Returns further options for `ssh` from an environment variable, split into words. Empty if there are none.
pub fn ssh_options() -> Vec<String> {
    let text = |name: &&str| variable(name).and_then(|value| value.into_string().ok());
    SSH_OPTIONS.iter().find_map(text).and_then(|words| shlex::split(&words)).unwrap_or_default()
}

/// Returns the names in a list of hosts in Slurm's form, such as `n[001-003,7],login`. None if the list is
/// malformed.
fn names(list: &str) -> Option<Vec<String>> {
    let all: Option<Vec<_>> = hosts::parts(list).map(hosts::expanded).collect();
    all.map(|all| all.concat()).filter(|all| all.iter().all(|name| !name.is_empty()))
}

/// Returns how many tasks run on each node, from the text of SLURM_TASKS_PER_NODE: `2(x3),1` gives 2, 2, 2,
/// 1. None if the text is malformed.
fn counts(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        let count: u32 = count.parse().ok()?;
        all.extend(std::iter::repeat_n(count, times));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_slurm() {
        assert_eq!(names("h1").unwrap(), ["h1"]);
        assert_eq!(
            names("n[001-003,7],login,r[1-2]c[5]").unwrap(),
            ["n001", "n002", "n003", "n7", "login", "r1c5", "r2c5"]
        );
        for wrong in ["", "n[1", "n[x]", "n[1-]"] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
        assert_eq!(counts("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(counts("2(x"), None);
    }
}
