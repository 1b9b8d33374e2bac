//! Hints, by ROMIO's names (MPI 5.0, section 14.2.8). An invalid value is ignored.

use objects::Info;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Automatic,
    Enable,
    Disable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hints {
    /// The number of aggregators of collective accesses; 0: one per core.
    pub cb_nodes: u32,
    /// Bytes that an aggregator moves in a round.
    pub cb_buffer_bytes: u64,
    /// Whether collective reads are exchanged.
    pub cb_read: Switch,
    /// Whether collective writes are exchanged.
    pub cb_write: Switch,
    /// Bytes of a block when reading with holes.
    pub read_buffer_bytes: u64,
    /// Bytes of a block when writing with holes.
    pub write_buffer_bytes: u64,
    /// Whether holes are read along.
    pub ds_read: Switch,
    /// Whether holes are read and written back with their old content, under a lock.
    pub ds_write: Switch,
    /// The domains of aggregators begin at multiples of this.
    pub striping_bytes: u64,
    /// Permissions of a new file.
    pub permissions: u32,
    /// Hints that are kept and not used: cb_config_list, striping_factor, access_style, ...
    pub kept: Vec<(String, String)>,
}

/// The names of hints that are kept and not used.
const KEPT: [&str; 10] = [
    "access_style",
    "cb_block_size",
    "cb_config_list",
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
            cb_buffer_bytes: 16 << 20,
            cb_read: Switch::Automatic,
            cb_write: Switch::Automatic,
            read_buffer_bytes: 4 << 20,
            write_buffer_bytes: 512 << 10,
            ds_read: Switch::Automatic,
            ds_write: Switch::Automatic,
            striping_bytes: 64 << 10,
            permissions: 0o666,
            kept: Vec::new(),
        }
    }
}

impl Hints {
    /// Sets the hints of an info.
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
            key if KEPT.contains(&key) => match self.kept.iter_mut().find(|(known, _)| known == key) {
                Some((_, old)) => *old = value.to_owned(),
                None => self.kept.push((key.to_owned(), value.to_owned())),
            },
            _ => {}
        }
    }

    /// All hints in use, for a comm of `size` ranks (MPI_File_get_info).
    pub fn to_info(&self, size: u32) -> Info {
        let word = |switch: Switch| match switch {
            Switch::Automatic => "automatic".to_owned(),
            Switch::Enable => "enable".to_owned(),
            Switch::Disable => "disable".to_owned(),
        };
        let facts = [
            ("cb_buffer_size", self.cb_buffer_bytes.to_string()),
            ("romio_cb_read", word(self.cb_read)),
            ("romio_cb_write", word(self.cb_write)),
            ("cb_nodes", self.aggregators(size).to_string()),
            ("ind_rd_buffer_size", self.read_buffer_bytes.to_string()),
            ("ind_wr_buffer_size", self.write_buffer_bytes.to_string()),
            ("romio_ds_read", word(self.ds_read)),
            ("romio_ds_write", word(self.ds_write)),
            ("striping_unit", self.striping_bytes.to_string()),
            ("file_perm", format!("{:o}", self.permissions)),
        ];
        let mut info = Info::default();
        let kept = self.kept.iter().map(|(key, value)| (key.as_str(), value.clone()));
        for (key, value) in facts.into_iter().chain(kept) {
            info.set(key, &value).expect("keys and values are short");
        }
        info
    }

    /// The number of aggregators among `size` ranks.
    pub fn aggregators(&self, size: u32) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        (if self.cb_nodes == 0 { cores() } else { self.cb_nodes }).clamp(1, size.max(1))
    }

    /// What must be equal on all ranks, so that they plan collective accesses alike.
    pub fn shared_words(&self, size: u32) -> [u64; 4] {
        let switches = self.cb_read as u64 | (self.cb_write as u64) << 8 | (self.ds_write as u64) << 16;
        [self.aggregators(size).into(), self.cb_buffer_bytes, switches, self.striping_bytes]
    }

    /// Takes over rank 0's `shared` words.
    pub fn adopt(&mut self, words: [u64; 4]) {
        let switch = |byte: u64| match byte & 0xff {
            1 => Switch::Enable,
            2 => Switch::Disable,
            _ => Switch::Automatic,
        };
        let [nodes, buffer_bytes, switches, striping_bytes] = words;
        self.cb_nodes = nodes as u32;
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
        assert_eq!((hints.aggregators(2), hints.aggregators(8)), (2, 3));
        let told = hints.to_info(2);
        assert_eq!(told.get("cb_nodes"), Some("2"));
        assert_eq!(told.get("cb_config_list"), Some("*:2"));
        assert_eq!(told.get("file_perm"), Some("600"));
        assert_eq!(told.get("my_own"), None);
        let mut again = Hints::default();
        again.take(&told);
        assert_eq!(again.to_info(2), told);
        let mut other = Hints::default();
        other.adopt(hints.shared_words(4));
        assert_eq!((other.cb_nodes, other.ds_write, other.cb_read), (3, Switch::Enable, Switch::Automatic));
    }
}
