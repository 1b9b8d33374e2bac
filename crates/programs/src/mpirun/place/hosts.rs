// SPDX-License-Identifier: BSD-3-Clause
//! Lists of hosts (`-hosts`, `-f`), and which rank runs on which host.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, UdpSocket};
use std::ops::Range;

/// A host that the user names, with its slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The host's name or address, as the user wrote it.
    pub name: String,
    /// How many ranks the host has room for.
    pub slots: u32,
}

/// A list of hosts, never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts(pub Vec<Host>);

impl Hosts {
    /// Returns how many ranks all hosts together have room for.
    pub fn slots(&self) -> u32 {
        self.0.iter().fold(0, |sum, host| sum.saturating_add(host.slots))
    }

    /// Joins several lists of hosts. A host that is named twice in a row gets the slots of both. A host that
    /// is named again later gets another turn. Fails with the first error in `lists`, or if there is no host.
    pub fn joined(lists: impl Iterator<Item = Result<Hosts, String>>) -> Result<Hosts, String> {
        let mut all: Vec<Host> = Vec::new();
        for list in lists {
            for host in list?.0 {
                match all.last_mut().filter(|other| other.name == host.name) {
                    Some(other) => other.slots = other.slots.saturating_add(host.slots),
                    None => all.push(host),
                }
            }
        }
        if all.is_empty() { Err("it names no host".into()) } else { Ok(Hosts(all)) }
    }

    /// Returns a list of one host: this machine, with room for `slots` ranks.
    pub fn own(slots: u32) -> Hosts {
        Hosts(vec![Host { name: sys::host::name(), slots }])
    }

    /// Whether every host of this list is this machine.
    pub fn are_here(&self) -> bool {
        let own = sys::host::name();
        self.0.iter().all(|host| is_here(&host.name, &own))
    }
}

/// Whether the name or address `host` means this machine, whose name is `own`.
pub fn is_here(host: &str, own: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    match host.parse::<IpAddr>() {
        // Only an address of this machine can be bound.
        Ok(address) => address.is_loopback() || UdpSocket::bind((address, 0)).is_ok(),
        Err(_) => host == "localhost" || (!host.is_empty() && short(host) == short(own)),
    }
}

/// Returns the hosts of a list such as `a,b:4,n[001-003,7]:2`: a number after a `:` is the host's slots,
/// default 1.
pub fn list(text: &str) -> Result<Hosts, String> {
    Hosts::joined(parts(text).map(|host| entry(host, "")))
}

/// Splits a list of hosts at its commas, except at commas inside brackets.
pub fn parts(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    list.split(move |letter| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        depth == 0 && letter == ','
    })
}

/// The most names of one pattern.
const NAMES_MAX: usize = 65536;

/// Returns all names that a pattern in Slurm's form means: n1, n2 and n7 for `n[1-2,7]`. None if the pattern
/// is malformed, or means more than `NAMES_MAX` names.
pub fn expanded(pattern: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = pattern.split_once('[') else { return Some(vec![pattern.to_owned()]) };
    let (ranges, after) = rest.split_once(']')?;
    let ends = expanded(after)?;
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let (width, numbers) = (first.len(), to.checked_sub(from)? as usize + 1);
        if numbers.saturating_mul(ends.len()) > NAMES_MAX - all.len() {
            return None;
        }
        for number in from..=to {
            all.extend(ends.iter().map(|end| format!("{before}{number:0width$}{end}")));
        }
    }
    Some(all)
}

/// Reads a file with one host per line, `HOST[:SLOTS]` or `HOST slots=SLOTS`, and returns its hosts.
pub fn file(path: &str) -> Result<Hosts, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Hosts::joined(lines.filter(|line| !line.is_empty()).map(|line| {
        let (host, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        entry(host, rest)
    }))
}

fn entry(host: &str, rest: &str) -> Result<Hosts, String> {
    // MVAPICH's lists have HOST:SLOTS:ADAPTER.
    let parts: Vec<&str> = host.trim().split(':').collect();
    let host = match parts[..] {
        [name, slots, _] if slots.parse::<u32>().is_ok() => format!("{name}:{slots}"),
        _ => host.trim().to_owned(),
    };
    let (name, glued) = match host.rsplit_once(':') {
        // An IPv6 address has colons of its own.
        Some((name, slots)) if !name.contains(':') => (name, Some(slots)),
        _ => (host.as_str(), None),
    };
    // A name goes into the command line of a launcher, so it must not look like an option or contain words
    // for a shell.
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-:%@".contains(letter);
    let is_name = |name: &String| !name.is_empty() && !name.starts_with('-') && name.chars().all(allowed);
    let names = expanded(name).filter(|names| names.iter().all(is_name));
    let Some(names) = names else {
        return Err(format!("{name:?} is no name of a host, nor a pattern of at most {NAMES_MAX} names"));
    };
    let slots = match glued.or(rest.split_whitespace().find_map(|word| word.strip_prefix("slots="))) {
        None => 1,
        Some(slots) => match slots.parse() {
            Ok(slots @ 1..=4096) => slots,
            _ => return Err(format!("{slots:?} is no number of slots from 1 to 4096")),
        },
    };
    Ok(Hosts(names.into_iter().map(|name| Host { name, slots }).collect()))
}

/// In which order ranks are distributed over hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// Each host gets as many ranks as it has slots before the next host gets any. When all hosts are full,
    /// the distribution starts again with the first host.
    Slots,
    /// Each host gets this many ranks before the next host gets any (`-ppn`). After the last host the
    /// distribution starts again with the first host.
    Each(u32),
    /// Each host gets one rank in turn. After the last host the distribution starts again with the first
    /// host.
    Turns,
}

/// Distributes `ranks` ranks over hosts. Returns for each rank the index in `hosts` of its host.
pub fn deal(hosts: &Hosts, ranks: u32, how: Deal) -> Vec<u32> {
    let slots = |host: &Host| match how {
        Deal::Slots => host.slots,
        Deal::Each(slots) => slots,
        Deal::Turns => 1,
    };
    let once = (0..).zip(&hosts.0).flat_map(|(index, host)| (0..slots(host)).map(move |_| index));
    let once: Vec<u32> = once.collect();
    (0..ranks as usize).map(|rank| once[rank % once.len()]).collect()
}

/// The host of each rank, and the other computers (DPUs) that run proxies. `add` adds the ranks of one
/// program.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The names of all nodes: first the hosts that have ranks, then the computers that only run proxies.
    pub nodes: Vec<String>,
    /// The indices in `nodes` of the computers that only run proxies. The first of these computers runs the
    /// proxies of node 0, the second those of node 1, and so on.
    pub dpus: Range<u32>,
    /// For each rank the index in `nodes` of its host.
    pub node_of: Vec<u32>,
    /// Each list of hosts over which ranks have been distributed, and how many ranks each list has got so
    /// far.
    pub dealt: Vec<(Hosts, u32)>,
    /// In which order the ranks of the first program were distributed over its hosts. None before `add` is
    /// called.
    pub how: Option<Deal>,
}

impl Placement {
    /// Returns a placement of `ranks` ranks, all on this machine, which has `slots` slots.
    pub fn here(ranks: u32, slots: u32) -> Placement {
        let hosts = Hosts::own(slots);
        let nodes = hosts.0.iter().map(|host| host.name.clone()).collect();
        let node_of = vec![0; ranks as usize];
        Placement { nodes, node_of, dealt: vec![(hosts, ranks)], ..Placement::default() }
    }

    /// Distributes `ranks` more ranks over `hosts`. If the same list of hosts has got ranks before, goes on
    /// behind the last of them.
    pub fn add(&mut self, hosts: &Hosts, ranks: u32, how: Deal) {
        let at = self.dealt.iter().position(|(other, _)| other == hosts).unwrap_or_else(|| {
            self.dealt.push((hosts.clone(), 0));
            self.dealt.len() - 1
        });
        self.how.get_or_insert(how);
        let before = self.dealt[at].1;
        self.dealt[at].1 += ranks;
        for index in deal(hosts, before + ranks, how).split_off(before as usize) {
            let name = &hosts.0[index as usize].name;
            let mut nodes = (0..).zip(&self.nodes).filter(|(at, _)| !self.dpus.contains(at));
            let known = nodes.find(|(_, node)| *node == name).map(|(at, _)| at);
            let node = known.unwrap_or_else(|| {
                self.nodes.push(name.clone());
                self.nodes.len() as u32 - 1
            });
            self.node_of.push(node);
        }
    }

    /// Gives each host that has ranks a computer that runs its proxies, in the order of `dpus`. An entry of
    /// `dpus` with several slots serves as many hosts.
    pub fn add_dpus(&mut self, dpus: &Hosts) -> Result<(), String> {
        let (hosts, lines) = (self.nodes.len() as u32, dpus.slots());
        if lines < hosts {
            return Err(format!("it names {lines} computers, where each of {hosts} hosts needs one"));
        }
        self.dpus = hosts..2 * hosts;
        let names = dpus.0.iter().flat_map(|dpu| (0..dpu.slots).map(|_| dpu.name.clone()));
        self.nodes.extend(names.take(hosts as usize));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(all: &[(&str, u32)]) -> Hosts {
        Hosts(all.iter().map(|(name, slots)| Host { name: (*name).into(), slots: *slots }).collect())
    }

    #[test]
    fn hosts_and_their_slots() {
        assert_eq!(list("h1:2, h2,h1").unwrap(), hosts(&[("h1", 2), ("h2", 1), ("h1", 1)]));
        assert_eq!(list("h1,h1:2:mlx5_0,::1").unwrap(), hosts(&[("h1", 3), ("::1", 1)]));
        assert!(list("::1,[fe80]").unwrap_err().starts_with("\"[fe80]\" is no name of a host, nor"));
        for pattern in ["n[0-65536]", "n[0-255][0-256]", "n[2-1]", "n[0-1,0-4294967295]"] {
            assert!(list(pattern).unwrap_err().contains("at most 65536"), "{pattern}");
        }
        assert_eq!(list("n[0-255][0-255]").map(|hosts| hosts.0.len()), Ok(65536));
        let ranges = hosts(&[("h1", 2), ("h2", 2), ("h7", 2), ("login", 1), ("n09", 1), ("n10", 1)]);
        assert_eq!(list("h[1-2,7]:2,login,n[09-10]"), Ok(ranges));
        for wrong in ["h[1-2", "h[a-b]", "h[2-1]", "h[1-2];x"] {
            assert!(list(wrong).unwrap_err().contains("no name of a host"), "{wrong}");
        }
        for (wrong, word) in
            [("h1:x", "slots"), ("", "no name"), ("-oProxyCommand=x", "no name"), ("a;b", "no name")]
        {
            assert!(list(wrong).unwrap_err().contains(word), "{wrong}");
        }
        let path = std::env::temp_dir().join(format!("outboard-hosts-{}", std::process::id()));
        std::fs::write(&path, "# ours\nlocalhost slots=4 max_slots=8\n\nlocalhost:2 # more\nh2 slots=1\n")
            .unwrap();
        assert_eq!(file(path.to_str().unwrap()), Ok(hosts(&[("localhost", 6), ("h2", 1)])));
        std::fs::remove_file(&path).unwrap();
        assert!(file("/no/such/file").unwrap_err().contains("cannot read"));
    }

    #[test]
    fn names_of_this_machine() {
        let own = sys::host::name();
        assert!(list(&format!("localhost,127.0.0.1:3,{own}.example.org:2,::1")).unwrap().are_here());
        assert!(!list("localhost,192.0.2.77").unwrap().are_here());
        assert!(!list("node7").unwrap().are_here());
    }

    #[test]
    fn each_host_has_a_computer_for_its_proxies() {
        let mut placement = Placement::default();
        placement.add(&hosts(&[("a", 2), ("b", 1)]), 3, Deal::Slots);
        assert!(placement.add_dpus(&hosts(&[("d", 1)])).unwrap_err().contains("1 computers"));
        placement.add_dpus(&hosts(&[("d", 2), ("e", 1)])).unwrap();
        assert_eq!((placement.nodes.join(" "), placement.dpus.clone()), ("a b d d".into(), 2..4));
        // A rank that is spawned on such a computer gets a node of its own.
        placement.add(&hosts(&[("d", 1)]), 1, Deal::Slots);
        assert_eq!((placement.node_of, placement.nodes[4].as_str()), (vec![0, 0, 1, 4], "d"));
    }

    #[test]
    fn ranks_fill_slots_or_take_turns() {
        let two = hosts(&[("a", 2), ("b", 1)]);
        assert_eq!(deal(&two, 5, Deal::Slots), [0, 0, 1, 0, 0]);
        assert_eq!(deal(&two, 5, Deal::Each(1)), [0, 1, 0, 1, 0]);
        assert_eq!(deal(&two, 5, Deal::Each(3)), [0, 0, 0, 1, 1]);
        assert_eq!(deal(&two, 3, Deal::Turns), [0, 1, 0]);
    }
}
