// SPDX-License-Identifier: BSD-3-Clause
//! `outboard man` writes the manual pages, which an installation has below share/man.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use telemetry::{Counter, Unit};

use crate::mpirun::{REFUSED, WITHOUT_EFFECT};

/// Write the manual pages.
#[derive(Args)]
#[command(hide = true)]
pub struct Man {
    /// The folder to write to, usually share/man.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

impl Man {
    /// Writes all manual pages. The pages of programs are made from clap's descriptions of their command
    /// lines. Returns an empty text.
    pub fn run(&self, outboard: clap::Command) -> Result<String, String> {
        let write = || -> std::io::Result<()> {
            let (programs, other) = (self.to.join("man1"), self.to.join("man7"));
            std::fs::create_dir_all(&programs)?;
            std::fs::create_dir_all(&other)?;
            clap_mangen::generate_to(outboard, &programs)?;
            std::fs::write(programs.join("mpirun.1"), mpirun()?)?;
            std::fs::write(programs.join("mpiexec.1"), ".so man1/mpirun.1\n")?;
            std::fs::write(other.join("outboard-settings.7"), settings_page())?;
            std::fs::write(other.join("outboard-counters.7"), counters_page())
        };
        write().map_err(|error| format!("cannot write manual pages to {}: {error}", self.to.display()))?;
        Ok(String::new())
    }
}

/// Returns the manual page of `mpirun` in roff. The text at the end of `mpirun --help` becomes sections of
/// the page.
fn mpirun() -> std::io::Result<Vec<u8>> {
    let man = clap_mangen::Man::new(crate::mpirun::command().version(env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    page.extend_from_slice(
        b".SH EXIT STATUS\nThat of the first rank that failed, 128 + N if signal N ended it; 124 after \\-\\-timeout; \
          126 or 127 if a program could not be started. outboard\\-errors(7) has a table.\n\
          .SH WHEN A PROGRAM HANGS\nkill \\-USR1 PID, with the pid of this mpirun, prints what every rank waits for; \
          outboard top shows it too.\n\
          .SH OPTIONS OF OTHER LIBRARIES\nThese options of MPICH, Intel MPI and Open MPI are accepted and have no effect \
          on one machine; \\-v prints those that stand in the command.\n",
    );
    for (names, _, why) in WITHOUT_EFFECT {
        writeln!(page, ".TP\n{}\n{}.", options(names), escaped(why))?;
    }
    page.extend_from_slice(b".PP\nThese are refused; the text says what to do instead.\n");
    for (names, instead) in REFUSED {
        writeln!(page, ".TP\n{}\n{}.", options(names), escaped(instead))?;
    }
    page.extend_from_slice(
        b".SH ENVIRONMENT\nSettings are variables OUTBOARD_...; outboard\\-settings(7) explains all. MPIEXEC_TIMEOUT is as \
          \\-\\-timeout.\n\
          .SH SEE ALSO\n.BR mpirun_rsh (1),\n.BR mpicc (1),\n.BR outboard (1),\n.BR outboard\\-settings (7),\n\
          .BR outboard\\-errors (7)\n",
    );
    Ok(page)
}

fn options(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("\\fB\\-{}\\fR", escaped(name))).collect();
    names.join(", ")
}

/// Returns the manual page outboard-settings(7) in roff: every setting with its values and its default.
fn settings_page() -> String {
    let mut text = String::from(
        ".TH outboard-settings 7 \"\" Outboard\n.SH NAME\noutboard-settings \\- environment variables that Outboard obeys\n\
         .SH DESCRIPTION\nA value has the form that the line Allowed shows; bytes may be written as 64KiB, times as 50us. A variable \
         OUTBOARD_... that is no setting is reported by name. The scope says who reads it: process, each rank for itself; \
         job, all ranks, which must agree; launch, mpirun; proxy, the proxies. mpirun\\(aqs environment and \\-genv are right for \
         all scopes, \\-env for process only. \"outboard info \\-\\-settings\" prints the values that hold now.\n.SH SETTINGS\n",
    );
    for row in settings::TABLE.iter().filter(|row| !row.internal) {
        let default = if row.default.is_empty() { "not set" } else { row.default };
        let scope = format!("{:?}", row.scope).to_lowercase();
        let lines = [row.variable, row.doc, row.why, &row.kind.allowed(), default].map(escaped);
        let [variable, doc, why, allowed, default] = lines;
        text += &format!(
            ".TP\n\\fB{variable}\\fR\n{doc}\n{why}\nAllowed: {allowed}. Default: {default}. Scope: {scope}.\n"
        );
    }
    text + ".SH SEE ALSO\n.BR mpirun (1),\n.BR outboard\\-info (1),\n.BR outboard\\-counters (7)\n"
}

/// Returns the manual page outboard-counters(7) in roff: every counter with its meaning.
fn counters_page() -> String {
    let mut text = String::from(
        ".TH outboard-counters 7 \"\" Outboard\n.SH NAME\noutboard-counters \\- counters of Outboard, and MPI_T variables\n\
         .SH DESCRIPTION\nEach rank and proxy counts always. OUTBOARD_STATS=1 prints the sums at the end of the job, outboard top \
         shows them while it runs (\\-\\-json: all), and MPI_T exports each as a performance variable of the same name, bound to \
         no object, of the datatype MPI_UNSIGNED_LONG_LONG. A handle counts from when it is started. Control variables of MPI_T are the \
         settings, by their names without OUTBOARD_ in small letters; MPI_T_cvar_write can change none after MPI_Init.\n.SH COUNTERS\n",
    );
    for counter in Counter::ALL {
        let class = match (counter, counter.unit()) {
            (Counter::InstancesLive, _) => "MPI_T_PVAR_CLASS_LEVEL",
            (_, Unit::Count) => "MPI_T_PVAR_CLASS_COUNTER",
            (_, Unit::Bytes) => "MPI_T_PVAR_CLASS_AGGREGATE",
            (_, Unit::Nanoseconds) => "MPI_T_PVAR_CLASS_TIMER",
        };
        let unit = super::info::unit(*counter);
        text += &format!(".TP\n\\fB{}\\fR ({unit}; {class})\n{}.\n", counter.name(), escaped(counter.doc()));
    }
    text + ".SH SEE ALSO\n.BR outboard\\-top (1),\n.BR outboard\\-settings (7)\n"
}

/// Returns `text`, escaped so that roff prints it unchanged.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins with a full stop or a quote would be a command of roff.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_are_written() {
        let folder = std::env::temp_dir().join(format!("outboard-man-{}", std::process::id()));
        Man { to: folder.clone() }.run(crate::outboard::command()).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
        for (name, word) in [
            ("man1/mpirun.1", "genv"),
            ("man1/mpirun.1", "proxy\\-cores"),
            ("man1/mpirun.1", "merge\\-stderr"),
            ("man1/mpiexec.1", ".so"),
            ("man1/outboard.1", "outboard"),
            ("man1/outboard-top.1", "top"),
            ("man1/outboard-info.1", "counters"),
            ("man1/outboard-profile.1", "TRACE"),
            ("man7/outboard-settings.7", "OUTBOARD_OFFLOAD"),
            ("man7/outboard-counters.7", "eager_bytes_sent"),
        ] {
            assert!(page(name).contains(word), "{name}: {word}");
        }
        for word in ["(Outboard)", ".SH EXTRA"] {
            assert!(!page("man1/mpirun.1").contains(word), "{word}");
        }
        assert_eq!(escaped(".a\\b-c"), "\\&.a\\eb\\-c");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
