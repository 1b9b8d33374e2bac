// SPDX-License-Identifier: BSD-3-Clause
//! The machine on which a table of measured values is valid.

use std::io::Read;

/// The facts about a machine on which its table of measured values depends. Which caches two cores share is
/// not among them: the names of the table's rows say that (`Distance`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processor, as the kernel calls it.
    pub processor: String,
    /// The release of the kernel, as `uname -r` prints it.
    pub kernel: String,
    /// How a process may access the memory of other processes: the setting of Yama (a Linux security module),
    /// and whether a container's filter refuses such access.
    pub rights: String,
}

impl Machine {
    /// Returns the facts about this machine, for which it asks the kernel.
    pub fn this() -> Machine {
        let word = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
        let yama = word("/proc/sys/kernel/yama/ptrace_scope");
        let scope = yama.map_or("no Yama".into(), |scope| format!("ptrace_scope {scope}"));
        let may_read = if reads_itself() { "" } else { ", cross-memory attach refused" };
        Machine {
            processor: processor(),
            kernel: word("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".into()),
            rights: scope + may_read,
        }
    }

    /// Returns the facts about the machine, each as a name and a value. They are the first lines of a table's
    /// file.
    pub(crate) fn lines(&self) -> [(&'static str, &str); 3] {
        [("processor", &self.processor), ("kernel", &self.kernel), ("rights", &self.rights)]
    }

    /// Returns the name of the file that holds the machine's facts (`Facts`).
    pub fn facts_name(&self) -> String {
        self.file_name().replace(".tuning", ".facts")
    }

    /// Returns the name of the file that holds the machine's table.
    pub fn file_name(&self) -> String {
        // The hash is FNV-1a; the table itself names the machine in full.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let bytes = self.lines().into_iter().flat_map(|(_, text)| text.bytes().chain([0]));
        format!("{:016x}.tuning", bytes.fold(0xcbf2_9ce4_8422_2325, hash))
    }
}

/// Returns the processor's vendor, family, model and stepping, from the kernel's entry for the first core.
fn processor() -> String {
    let mut text = vec![0; 4096];
    let read = std::fs::File::open("/proc/cpuinfo").and_then(|mut file| file.read(&mut text));
    text.truncate(read.unwrap_or(0));
    let text = String::from_utf8_lossy(&text);
    let first = text.split("\n\n").next().unwrap_or_default();
    let names =
        ["model name", "vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part", "cpu"];
    let known = first.lines().filter_map(|line| line.split_once(':'));
    let parts: Vec<&str> =
        known.filter(|(name, _)| names.contains(&name.trim())).map(|(_, value)| value.trim()).collect();
    if parts.is_empty() { "unknown".into() } else { parts.join(" ") }
}

/// Whether the kernel lets this process read its own memory by cross-memory attach. The filter of a container
/// may refuse even that.
fn reads_itself() -> bool {
    let from = sys::Block::of(&[1; 8]);
    let to = sys::Block::new(8);
    let piece = (from.span().address(), 8);
    sys::remote::read(sys::process::id(), &[piece], &[to.span()]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name() {
        let machine = Machine::this();
        assert_eq!(machine, Machine::this());
        assert!(!machine.kernel.is_empty() && !machine.processor.contains('\n'), "{machine:?}");
        let other = Machine { kernel: "0".into(), ..machine.clone() };
        assert_ne!(machine.file_name(), other.file_name());
    }
}
