//! Variables of others that concern a launch: signs of another launcher, and what `mpirun` passes on.

/// A sign in the environment that some other launcher started this process as one of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Who, as a user would name it.
    pub name: &'static str,
    /// The variable that shows it, with its value.
    pub evidence: String,
    /// What the user can do.
    pub remedy: &'static str,
}

/// What to do with a launcher of which nothing else is known.
const OURS: &str = "start it by Outboard's mpirun";

/// Which other launcher made this process one task of several, if any.
pub fn launcher() -> Option<Launcher> {
    launcher_by(|name| variable(name).and_then(|value| value.into_string().ok()))
}

/// Any variable of the environment; settings are read by [`crate::get`] instead.
pub fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn launcher_by(look_up: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    let srun = "start it by `srun --mpi=pmi2` or `srun --mpi=pmix` (`srun --mpi=list` shows what there is), or by Outboard's mpirun inside the allocation";
    // (who, variable with the number of tasks, variable that only a task has, what to do)
    let signs = [
        ("another MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", OURS),
        ("another MPI's mpirun", "PMI_SIZE", "PMI_RANK", OURS),
        ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", srun),
        ("srun", "SLURM_NTASKS", "SLURM_PROCID", srun),
        (
            "aprun or PALS",
            "PALS_SIZE",
            "PALS_RANKID",
            "start it by `aprun --pmi=pmix`, or by Outboard's mpirun",
        ),
    ];
    for (name, size, task, remedy) in signs {
        let tasks = look_up(size).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        // A batch script of Slurm has both variables too; only what srun started has a step of its own kind.
        let batch = name == "srun"
            && look_up("SLURM_STEP_ID").is_none_or(|step| step == "4294967291" || step == "batch");
        if tasks > 1 && look_up(task).is_some() && !batch {
            return Some(Launcher { name, evidence: format!("{size}={tasks}"), remedy });
        }
    }
    // PMIx tells a task only its rank; rank 0 may be alone, any other is not.
    let rank = look_up("PMIX_RANK").and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let evidence = format!("PMIX_RANK={rank}");
    (rank > 0).then_some(Launcher { name: "a PMIx launcher", evidence, remedy: OURS })
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
