//! Variables of others that concern a launch: signs of another launcher, and what `mpirun` passes on.

/// A sign in the environment that some other launcher started this process as one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Who, as a user would name it.
    pub name: &'static str,
    /// The variable that shows it, with its value.
    pub evidence: String,
}

/// Which other launcher made this process one task of several, if any.
pub fn launcher() -> Option<Launcher> {
    launcher_by(|name| variable(name).and_then(|value| value.into_string().ok()))
}

/// Any variable of the environment; settings are read by [`crate::get`] instead.
pub fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn launcher_by(look_up: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    // (who, variable with the number of tasks, variable that only a task has)
    let signs = [
        ("another MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        ("another MPI's mpirun", "PMI_SIZE", "PMI_RANK"),
        ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        ("srun", "SLURM_NTASKS", "SLURM_PROCID"),
        ("aprun or PALS", "PALS_SIZE", "PALS_RANKID"),
    ];
    for (name, size, task) in signs {
        let tasks = look_up(size).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        // A batch script of Slurm has both variables too; only what srun started has a step of its own kind.
        let batch = name == "srun"
            && look_up("SLURM_STEP_ID").is_none_or(|step| step == "4294967291" || step == "batch");
        if tasks > 1 && look_up(task).is_some() && !batch {
            return Some(Launcher { name, evidence: format!("{size}={tasks}") });
        }
    }
    // PMIx tells a task only its rank; rank 0 may be alone, any other is not.
    let rank = look_up("PMIX_RANK").and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    (rank > 0).then(|| Launcher { name: "a PMIx launcher", evidence: format!("PMIX_RANK={rank}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &'static [(&str, &str)]) -> Option<Launcher> {
        launcher_by(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_string()))
    }

    #[test]
    fn other_launchers_are_recognised() {
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("PMI_SIZE", "1"), ("PMI_RANK", "0")]), None);
        assert_eq!(with(&[("PMI_SIZE", "4"), ("PMI_RANK", "0")]).unwrap().evidence, "PMI_SIZE=4");
        assert_eq!(with(&[("SLURM_NTASKS", "8")]), None, "inside an allocation, not a task");
        assert_eq!(
            with(&[("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0"), ("SLURM_STEP_ID", "4294967291")]),
            None,
            "the batch script itself"
        );
        assert_eq!(
            with(&[("SLURM_NTASKS", "8"), ("SLURM_PROCID", "3"), ("SLURM_STEP_ID", "0")]).unwrap().name,
            "srun"
        );
        assert!(with(&[("PMIX_RANK", "2")]).is_some());
    }
}
