// SPDX-License-Identifier: BSD-3-Clause
//! The hosts that the environment names if the command line names none: an allocation of Slurm, or the list
//! that Kubeflow's MPI operator sets for MPICH, Intel MPI and Open MPI.
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
/// Environment variables that hold the command to use, instead of ssh, to start processes on other hosts.
const LAUNCHERS: [&str; 4] =
    ["HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"];
/// Variables that hold more options of `ssh`. Kubeflow sets them, since a pod starts before its sshd.
const SSH_OPTIONS: [&str; 5] = [
    "HYDRA_LAUNCH_EXTRA_ARGS",
    "HYDRA_LAUNCHER_EXTRA_ARGS",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
    "OMPI_MCA_plm_rsh_args",
    "PRTE_MCA_plm_ssh_args",
];

/// Returns the hosts that the environment names; None if it names none. An error is a sentence that names the
/// variable at fault.
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

/// Returns the command that starts processes on other hosts, or None if the environment names none.
pub fn launcher_exec() -> Option<PathBuf> {
    LAUNCHERS.iter().find_map(|name| variable(name)).map(PathBuf::from)
}

/// Returns the further options for `ssh` that the environment names, one a word.
pub fn ssh_options() -> Vec<String> {
    let text = |name: &&str| variable(name).and_then(|value| value.into_string().ok());
    SSH_OPTIONS.iter().find_map(text).and_then(|words| shlex::split(&words)).unwrap_or_default()
}

/// Returns the names in a list of hosts as Slurm writes it, `n[001-003,7],login`; None if it is malformed.
fn names(list: &str) -> Option<Vec<String>> {
    let all: Option<Vec<_>> = hosts::parts(list).map(hosts::expanded).collect();
    all.map(|all| all.concat()).filter(|all| all.iter().all(|name| !name.is_empty()))
}

/// Returns the number of tasks on each node from the text of SLURM_TASKS_PER_NODE: 2, 2, 2, 1 from `2(x3),1`.
/// None if it is malformed.
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
