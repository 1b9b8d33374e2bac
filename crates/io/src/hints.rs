// SPDX-License-Identifier: BSD-3-Clause
//! Hints, with ROMIO's names (MPI 5.0, section 14.2.8). An invalid value is ignored.

use objects::Info;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Automatic,
    Enable,
    Disable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hints {
    /// The number of aggregators of collective accesses. With 0, a file of one host has one per core, and a
    /// file of several hosts as many as `per_host` allows.
    pub cb_nodes: u32,
    /// The most aggregators on each host if the file's ranks are on several: `N` in the hint
    /// cb_config_list=`*:N`.
    pub per_host: u32,
    /// The ranks of the aggregators, once all ranks have taken over rank 0's values (`adopt`); empty before.
    pub aggregators: Vec<u32>,
    /// The most bytes of the file that an aggregator moves in a round of a collective access.
    pub cb_buffer_bytes: u64,
    /// Whether aggregators move the data of collective reads. Otherwise each rank reads its own data.
    pub cb_read: Switch,
    /// Whether aggregators move the data of collective writes. Otherwise each rank writes its own data.
    pub cb_write: Switch,
    /// The longest block of the file, in bytes, that one system call reads, with the holes in it.
    pub read_buffer_bytes: u64,
    /// The longest block of the file, in bytes, that one system call writes, with the holes in it.
    pub write_buffer_bytes: u64,
    /// Whether a read of several ranges of the file also reads the holes between them (data sieving).
    pub ds_read: Switch,
    /// Whether a write to several ranges of the file also reads the holes between them, and writes the holes
    /// back unchanged, under a lock.
    pub ds_write: Switch,
    /// The alignment of the aggregators' domains in the file, in bytes: each domain begins at a multiple of
    /// this number.
    pub striping_bytes: u64,
    /// The permission bits of a file that is created.
    pub permissions: u32,
    /// Hints that this library stores as it got them, as keys and values, and does not use: cb_config_list,
    /// striping_factor, access_style, ...
    pub stored: Vec<(String, String)>,
}

/// The names of hints that are stored and not used.
const STORED: [&str; 9] = [
    "access_style",
    "cb_block_size",
    "collective_buffering",
    "filename",
    "io_node_list",
    "nb_proc",
    "num_io_nodes",
    "romio_no_indep_rw",
    "striping_factor",
];

impl Default for Hints {
    fn default() -> Hints {
        Hints {
            cb_nodes: 0,
            per_host: 1,
            aggregators: Vec::new(),
            cb_buffer_bytes: 16 << 20,
            cb_read: Switch::Automatic,
            cb_write: Switch::Automatic,
            read_buffer_bytes: 4 << 20,
            write_buffer_bytes: 512 << 10,
            ds_read: Switch::Automatic,
            ds_write: Switch::Automatic,
            striping_bytes: 64 << 10,
            permissions: 0o666,
            stored: Vec::new(),
        }
    }
}

impl Hints {
    /// Takes over the hints that `info` has and this library knows; ignores invalid values.
    pub fn take(&mut self, info: &Info) {
        for (key, value) in info.entries() {
            self.set(key, value.trim());
        }
    }

    fn set(&mut self, key: &str, value: &str) {
        let number = || value.parse::<u64>().ok().filter(|number| (1..=1 << 40).contains(number));
        let switch = |old: Switch| match value.to_ascii_lowercase().as_str() {
            "automatic" => Switch::Automatic,
            "enable" | "true" => Switch::Enable,
            "disable" | "false" => Switch::Disable,
            _ => old,
        };
        match key {
            "cb_nodes" => self.cb_nodes = number().map_or(self.cb_nodes, |n| n.min(1 << 20) as u32),
            "cb_config_list" => {
                if let Some(rest) = value.strip_prefix('*') {
                    let many = rest.strip_prefix(':').unwrap_or("1");
                    let number = if many == "*" { Some(u32::MAX) } else { many.parse().ok() };
                    self.per_host = number.filter(|number| *number > 0).unwrap_or(self.per_host);
                }
                self.store(key, value);
            }
            "cb_buffer_size" => self.cb_buffer_bytes = number().unwrap_or(self.cb_buffer_bytes),
            "romio_cb_read" => self.cb_read = switch(self.cb_read),
            "romio_cb_write" => self.cb_write = switch(self.cb_write),
            "ind_rd_buffer_size" => self.read_buffer_bytes = number().unwrap_or(self.read_buffer_bytes),
            "ind_wr_buffer_size" => self.write_buffer_bytes = number().unwrap_or(self.write_buffer_bytes),
            "romio_ds_read" => self.ds_read = switch(self.ds_read),
            "romio_ds_write" => self.ds_write = switch(self.ds_write),
            "striping_unit" => self.striping_bytes = number().unwrap_or(self.striping_bytes),
            "file_perm" => {
                let octal = u32::from_str_radix(value.trim_start_matches("0o"), 8);
                self.permissions = octal.ok().filter(|bits| *bits <= 0o7777).unwrap_or(self.permissions);
            }
            key if STORED.contains(&key) => self.store(key, value),
            _ => {}
        }
    }

    fn store(&mut self, key: &str, value: &str) {
        match self.stored.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value.to_owned(),
            None => self.stored.push((key.to_owned(), value.to_owned())),
        }
    }

    /// Returns all hints in use as an info, for MPI_File_get_info.
    pub fn to_info(&self) -> Info {
        let word = |switch: Switch| match switch {
            Switch::Automatic => "automatic".to_owned(),
            Switch::Enable => "enable".to_owned(),
            Switch::Disable => "disable".to_owned(),
        };
        let facts = [
            ("cb_buffer_size", self.cb_buffer_bytes.to_string()),
            ("romio_cb_read", word(self.cb_read)),
            ("romio_cb_write", word(self.cb_write)),
            ("cb_nodes", self.aggregators.len().to_string()),
            ("ind_rd_buffer_size", self.read_buffer_bytes.to_string()),
            ("ind_wr_buffer_size", self.write_buffer_bytes.to_string()),
            ("romio_ds_read", word(self.ds_read)),
            ("romio_ds_write", word(self.ds_write)),
            ("striping_unit", self.striping_bytes.to_string()),
            ("file_perm", format!("{:o}", self.permissions)),
        ];
        let mut info = Info::default();
        let stored = self.stored.iter().map(|(key, value)| (key.as_str(), value.clone()));
        for (key, value) in facts.into_iter().chain(stored) {
            info.set(key, &value).expect("keys and values are short");
        }
        info
    }

    /// Returns the ranks that become aggregators; `hosts[i]` is the host of rank `i`. On one host they are
    /// spread evenly. On several hosts they are the first ranks of each host, so that each host's connection
    /// to the file is used.
    fn choose(&self, hosts: &[u32]) -> Vec<u32> {
        let size = hosts.len().max(1);
        if hosts.iter().all(|host| *host == hosts[0]) {
            let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
            let many = if self.cb_nodes == 0 { cores() } else { self.cb_nodes as usize }.clamp(1, size);
            return (0..many).map(|at| (at * size / many) as u32).collect();
        }
        let mut seen = HashMap::new();
        // The order is by turns: the first rank of each host, then the second of each, ...
        let mut turns: Vec<(u32, u32)> = Vec::new();
        for (rank, host) in (0..).zip(hosts) {
            let turn = seen.entry(host).or_insert(0u32);
            if *turn < self.per_host {
                turns.push((*turn, rank));
            }
            *turn += 1;
        }
        turns.sort_unstable();
        turns.truncate(if self.cb_nodes == 0 { turns.len() } else { self.cb_nodes as usize });
        let mut ranks: Vec<u32> = turns.into_iter().map(|(_, rank)| rank).collect();
        ranks.sort_unstable();
        ranks
    }

    /// Returns four words that rank 0 sends to all ranks, which need equal values to plan: the numbers of
    /// aggregators, `cb_buffer_bytes`, the switches, and `striping_bytes`. `hosts[i]` is the host of rank
    /// `i`.
    pub fn shared_words(&self, hosts: &[u32]) -> [u64; 4] {
        let switches = self.cb_read as u64 | (self.cb_write as u64) << 8 | (self.ds_write as u64) << 16;
        let nodes = self.choose(hosts).len() as u64 | u64::from(self.per_host) << 32;
        [nodes, self.cb_buffer_bytes, switches, self.striping_bytes]
    }

    /// Sets this rank's values, and so the aggregators, from the `shared_words` that rank 0 has sent.
    /// `hosts[i]` is the host of rank `i`.
    pub fn adopt(&mut self, words: [u64; 4], hosts: &[u32]) {
        let switch = |byte: u64| match byte & 0xff {
            1 => Switch::Enable,
            2 => Switch::Disable,
            _ => Switch::Automatic,
        };
        let [nodes, buffer_bytes, switches, striping_bytes] = words;
        (self.cb_nodes, self.per_host) = (nodes as u32, (nodes >> 32) as u32);
        self.aggregators = self.choose(hosts);
        self.cb_buffer_bytes = buffer_bytes.max(1);
        self.striping_bytes = striping_bytes.max(1);
        (self.cb_read, self.cb_write) = (switch(switches), switch(switches >> 8));
        self.ds_write = switch(switches >> 16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hints_are_kept_and_others_are_not() {
        let mut info = Info::default();
        for (key, value) in [
            ("cb_nodes", "3"),
            ("cb_buffer_size", "nonsense"),
            ("romio_ds_write", "ENABLE"),
            ("cb_config_list", "*:2"),
            ("file_perm", "600"),
            ("my_own", "1"),
        ] {
            info.set(key, value).unwrap();
        }
        let mut hints = Hints::default();
        hints.take(&info);
        assert_eq!((hints.cb_nodes, hints.cb_buffer_bytes, hints.ds_write), (3, 16 << 20, Switch::Enable));
        assert_eq!((hints.choose(&[0; 2]).len(), hints.choose(&[0; 8]).len()), (2, 3));
        hints.adopt(hints.shared_words(&[0; 2]), &[0; 2]);
        let reported = hints.to_info();
        assert_eq!(reported.get("cb_nodes"), Some("2"));
        assert_eq!(reported.get("cb_config_list"), Some("*:2"));
        assert_eq!(reported.get("file_perm"), Some("600"));
        assert_eq!(reported.get("my_own"), None);
        let mut again = Hints::default();
        again.take(&reported);
        again.adopt(again.shared_words(&[0; 2]), &[0; 2]);
        assert_eq!(again.to_info(), reported);
        let mut other = Hints::default();
        other.adopt(hints.shared_words(&[0; 4]), &[0; 4]);
        assert_eq!((other.cb_nodes, other.ds_write, other.cb_read), (2, Switch::Enable, Switch::Automatic));
    }

    #[test]
    fn each_of_several_hosts_has_aggregators() {
        let hosts = [0, 0, 0, 1, 1, 2, 0, 2];
        let chosen = |list: &str, nodes: &str| {
            let mut info = Info::default();
            for (key, value) in [("cb_config_list", list), ("cb_nodes", nodes)] {
                info.set(key, value).unwrap();
            }
            let mut hints = Hints::default();
            hints.take(&info);
            hints.adopt(hints.shared_words(&hosts), &hosts);
            hints.aggregators
        };
        assert_eq!(chosen("", ""), [0, 3, 5]);
        assert_eq!(chosen("*:2", ""), [0, 1, 3, 4, 5, 7]);
        assert_eq!(chosen("*:2", "4"), [0, 1, 3, 5]);
        assert_eq!(chosen("*:*", ""), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(chosen("*", "2"), [0, 3]);
    }
}
