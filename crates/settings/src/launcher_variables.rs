// SPDX-License-Identifier: BSD-3-Clause
//! Environment variables of other launchers, which show that another launcher started this process. Also
//! reads any variable, for `mpirun` to pass on.

/// A launcher other than `mpirun` that started this process as one task of several. Environment variables
/// show this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The name of the launcher, as a user would call it.
    pub name: &'static str,
    /// The environment variable that shows the launcher, with its value.
    pub evidence: String,
    /// How to start the program instead, as advice in error sentences.
    pub remedy: &'static str,
}

/// The lowest number of a Slurm step that srun does not start: the shell of `salloc`. The next numbers are
/// those of the batch script and of processes that came by ssh (SLURM_INTERACTIVE_STEP, ... in slurm.h).
const SLURM_OWN_STEPS: u64 = 4294967290;
/// The advice for a launcher by which Outboard cannot be started.
const OURS: &str = "start it by Outboard's mpirun";

/// Returns the other launcher that started this process as one task of several. Returns None if no
/// environment variable shows one.
pub fn launcher() -> Option<Launcher> {
    launcher_by(|name| variable(name).and_then(|value| value.into_string().ok()))
}

/// Reads an environment variable that is not a setting. For settings use [`crate::get`].
pub fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn launcher_by(look_up: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    let srun = "start it by `srun --mpi=pmi2` or `srun --mpi=pmix` (`srun --mpi=list` shows what there is), or by Outboard's mpirun inside the allocation";
    // (launcher, variable with the number of tasks, variable that only a task has, advice)
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
    let number = |name: &str| look_up(name).and_then(|value| value.parse::<u64>().ok());
    for (name, size, task, remedy) in signs {
        let tasks = number(size).unwrap_or(0);
        // Shells of Slurm have SLURM_NTASKS and SLURM_PROCID, too: those of the whole allocation.
        let is_shell = name == "srun"
            && (number("SLURM_STEP_ID").is_none_or(|step| step >= SLURM_OWN_STEPS)
                || (size == "SLURM_NTASKS" && number("SLURM_STEP_NUM_TASKS").is_some()));
        if tasks > 1 && look_up(task).is_some() && !is_shell {
            return Some(Launcher { name, evidence: format!("{size}={tasks}"), remedy });
        }
    }
    // PMIx gives a task only its rank: rank 0 may be alone, any other rank is not.
    let rank = look_up("PMIX_RANK").and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let evidence = format!("PMIX_RANK={rank}");
    (rank > 0).then_some(Launcher { name: "a PMIx launcher", evidence, remedy: OURS })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the launcher that an environment shows. `environment` is the output of `env`, with blanks for
    /// newlines.
    fn with(environment: &str) -> Option<Launcher> {
        let pairs = || environment.split_whitespace().filter_map(|word| word.split_once('='));
        launcher_by(|name| pairs().find(|pair| pair.0 == name).map(|pair| pair.1.to_string()))
    }

    /// Environments of shells that batch systems start, and of tasks that are alone: how each was started,
    /// and its variables. Only variables that concern tasks are listed.
    const ALONE: [(&str, &str); 14] = [
        ("no batch system", ""),
        ("one rank of Hydra", "PMI_SIZE=1 PMI_RANK=0 PMI_FD=8"),
        (
            "salloc, a shell on the login node",
            "SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_TASKS_PER_NODE=4",
        ),
        (
            "salloc -n 4 with use_interactive_step",
            "SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_STEP_ID=4294967290 SLURM_STEPID=4294967290 \
             SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_PROCID=0 SLURM_LOCALID=0",
        ),
        (
            "the same, where Slurm's default is PMIx",
            "SLURM_NTASKS=4 SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 PMIX_RANK=0 PMIX_NAMESPACE=slurm.pmix.7.4294967290",
        ),
        (
            "sbatch -n 8",
            "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_NPROCS=8 SLURM_STEP_ID=4294967291 SLURM_STEPID=4294967291 SLURM_PROCID=0 SLURM_LOCALID=0",
        ),
        ("sbatch -n 8 of an old Slurm", "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_LOCALID=0"),
        (
            "sbatch from a task of srun -n 4",
            "SLURM_NTASKS=8 SLURM_STEP_ID=4294967291 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0",
        ),
        ("ssh into an allocation, the extern step", "SLURM_NTASKS=4 SLURM_STEP_ID=4294967292 SLURM_PROCID=0"),
        (
            "srun -n 1 --preserve-env in salloc -n 4",
            "SLURM_NTASKS=4 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
        ),
        (
            "qsub -l select=2:ncpus=4:mpiprocs=4",
            "PBS_JOBID=7.head PBS_NODEFILE=/var/spool/pbs/aux/7.head PBS_NUM_PPN=4 PBS_NP=8 PBS_TASKNUM=1 PBS_NODENUM=0 PBS_VNODENUM=0",
        ),
        (
            "bsub -n 4 -Is bash",
            "LSB_JOBID=7 LSB_DJOB_NUMPROC=4 LSB_MAX_NUM_PROCESSORS=4 LSB_MCPU_HOSTS=h1_4 LSB_HOSTS=h1_h1_h1_h1 LS_JOBPID=99",
        ),
        ("flux alloc -n 4", "FLUX_URI=local:///tmp/flux/local-0 FLUX_ENCLOSING_ID=f7 FLUX_INSTANCE_SIZE=1"),
        ("flux run -n 1", "FLUX_JOB_ID=f7 FLUX_JOB_SIZE=1 FLUX_TASK_RANK=0 PMI_FD=8 PMI_RANK=0 PMI_SIZE=1"),
    ];

    /// Environments of one task of several: how the task was started, the variables, and the variable that
    /// shows the launcher.
    const TASKS: [(&str, &str, &str); 9] = [
        ("mpiexec.hydra -n 4", "PMI_SIZE=4 PMI_RANK=0 PMI_FD=8", "PMI_SIZE=4"),
        (
            "Hydra in the shell of salloc",
            "SLURM_NTASKS=4 SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 PMI_SIZE=2 PMI_RANK=1",
            "PMI_SIZE=2",
        ),
        (
            "srun -n 4",
            "SLURM_NTASKS=4 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3",
            "SLURM_STEP_NUM_TASKS=4",
        ),
        (
            "srun -n 4 in sbatch -n 1",
            "SLURM_NTASKS=1 SLURM_STEP_ID=12 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0",
            "SLURM_STEP_NUM_TASKS=4",
        ),
        ("srun of an old Slurm", "SLURM_NTASKS=8 SLURM_STEP_ID=0 SLURM_PROCID=3", "SLURM_NTASKS=8"),
        (
            "srun --mpi=pmi2 -n 2",
            "SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 PMI_FD=8 PMI_RANK=1 PMI_SIZE=2",
            "PMI_SIZE=2",
        ),
        (
            "srun --mpi=pmix -n 2",
            "SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 PMIX_RANK=1",
            "SLURM_STEP_NUM_TASKS=2",
        ),
        (
            "flux run -n 4",
            "FLUX_JOB_ID=f7 FLUX_JOB_SIZE=4 FLUX_TASK_RANK=1 PMI_FD=8 PMI_RANK=1 PMI_SIZE=4",
            "PMI_SIZE=4",
        ),
        ("prterun -n 4", "PMIX_RANK=2 PMIX_NAMESPACE=prterun-h1-7@1", "PMIX_RANK=2"),
    ];

    #[test]
    fn shells_of_batch_systems_are_no_tasks() {
        for (what, environment) in ALONE {
            assert_eq!(with(environment), None, "{what}");
        }
    }

    #[test]
    fn tasks_of_several_are_recognised() {
        for (what, environment, evidence) in TASKS {
            assert_eq!(with(environment).map(|found| found.evidence), Some(evidence.to_owned()), "{what}");
        }
    }
}
