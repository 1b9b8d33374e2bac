// SPDX-License-Identifier: BSD-3-Clause
//! Programs of any MPI that run under `liboutboard_watch.so`. That library keeps a page of counters for each
//! process, as a file in /dev/shm (`crates/watch_page`). The contents of a page are not trusted; the owner of
//! the file says whose process it is.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use watch_page::{
    CLASS_NAMES, CLASSES_COUNT, COUNTS, Call, FILE_PREFIX, FORM, Head, MAGIC, NODES_MAX, PLACES, TEXT_BYTES,
    WORDS, at, node_at,
};

use super::local::{name_of, usage};
use crate::job::{Job, JobRank};
use crate::time::now_ms;

const FOLDER: &str = "/dev/shm";
/// The most processes of one host whose pages of counters are read.
const PAGES_MAX: usize = 4096;
const PLACE_NAMES: [&str; PLACES] = ["near", "far"];

/// The page of counters of one process, as it was read, and the uid of the user who owns the page's file.
struct ProcessPage {
    words: Vec<u64>,
    uid: u32,
}

/// For each world (MPI_COMM_WORLD) that still has a running process on this host, by the world's number: the
/// last pages of counters of its processes that have ended.
#[derive(Default)]
pub struct Watched(BTreeMap<u64, Vec<ProcessPage>>);

impl Watched {
    pub fn jobs(&mut self) -> Result<Vec<Job>, String> {
        let entries = std::fs::read_dir(FOLDER).map_err(|error| format!("{FOLDER}: {error}"))?;
        let mut pages = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(FILE_PREFIX)?.parse::<u32>().ok());
            if pages.len() < PAGES_MAX
                && let Some(pid) = pid
            {
                pages.extend(read(&entry.path(), pid));
            }
        }
        Ok(self.joined(pages))
    }

    /// Returns a job for each world that has a page in `pages`. The bool beside a page says whether its
    /// process is over. A job also has the processes that ended earlier, and is returned once more after its
    /// last process has ended.
    fn joined(&mut self, pages: Vec<(ProcessPage, bool)>) -> Vec<Job> {
        let mut worlds: BTreeMap<u64, (Vec<ProcessPage>, bool)> = BTreeMap::new();
        for (page, is_over) in pages {
            let (all, goes_on) = worlds.entry(page.head(Head::World)).or_default();
            *goes_on |= !is_over;
            all.push(page);
        }
        let mut before = std::mem::take(&mut self.0);
        let mut jobs = Vec::new();
        for (world, (mut all, goes_on)) in worlds {
            all.extend(before.remove(&world).unwrap_or_default());
            jobs.extend(described(&all));
            if goes_on {
                all.retain(|page| page.head(Head::State) == 2);
                self.0.insert(world, all);
            }
        }
        jobs
    }
}

/// Reads a process's page of counters, and stores the present time in it, so that the process knows of a
/// reader. If the process is over, removes the page's file instead. Returns the page and whether the process
/// is over, or None if the file is no page that this user may open.
fn read(path: &Path, pid: u32) -> Option<(ProcessPage, bool)> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    // The file belongs to another user, or has just gone.
    let file = options.open(path).ok()?;
    let facts = file.metadata().ok()?;
    let is_alive = Path::new(&format!("/proc/{pid}")).exists();
    let mut bytes = vec![0; WORDS * 8];
    let is_read =
        facts.is_file() && facts.len() == bytes.len() as u64 && file.read_exact_at(&mut bytes, 0).is_ok();
    let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    let mut page = ProcessPage { words: words.collect(), uid: facts.uid() };
    let is_page = is_read
        && page.head(Head::Magic) == MAGIC
        && page.head(Head::Form) == FORM
        && page.head(Head::Pid) == u64::from(pid);
    let is_over = !is_alive || is_page && page.head(Head::State) == 2;
    if is_over {
        page.words[Head::State as usize] = 2;
        // Another reader may have removed it already.
        let _ = std::fs::remove_file(path);
    } else if is_page {
        // Without this word the process removes the file itself.
        let _ = file.write_all_at(&now_ms().to_ne_bytes(), Head::Seen as u64 * 8);
    }
    is_page.then_some((page, is_over))
}

impl ProcessPage {
    fn head(&self, word: Head) -> u64 {
        self.words[word as usize]
    }

    fn text(&self, word: Head) -> String {
        let words = &self.words[word as usize..word as usize + TEXT_BYTES / 8];
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).chars().filter(|char| !char.is_control()).collect()
    }

    /// Returns the counts in the page of counters, under names like those of Outboard's own counters. `hosts`
    /// has the host's name for each node, by the node's number.
    fn counters(&self, hosts: &HashMap<u64, String>) -> BTreeMap<String, u64> {
        let mut counters = BTreeMap::new();
        let mut add = |name: String, value: u64| {
            if value > 0 {
                let sum: &mut u64 = counters.entry(name).or_default();
                *sum = sum.saturating_add(value);
            }
        };
        for call in Call::ALL {
            let name = call.name();
            for (class, place) in
                (0..CLASSES_COUNT).flat_map(|class| (0..PLACES).map(move |place| (class, place)))
            {
                let first = at(*call, class, place);
                let [calls, bytes, ns, waits] =
                    std::array::from_fn::<u64, COUNTS, _>(|index| self.words[first + index]);
                add(format!("{name}_calls"), calls);
                add(format!("{name}_bytes"), bytes);
                add(format!("{name}_wait_ns"), ns);
                add(format!("{name}_waits"), waits);
                add(format!("{name}.{}.{}", CLASS_NAMES[class], PLACE_NAMES[place]), calls);
                add("wait_ns".into(), ns);
            }
        }
        for node in 0..NODES_MAX {
            let host = hosts.get(&(node as u64)).cloned().unwrap_or_else(|| format!("node {node}"));
            add(format!("bytes_to.{host}"), self.words[node_at(node)]);
        }
        counters
    }
}

/// Makes one job of the `pages` of one world's processes on this host. Returns None if the pages belong to
/// several users, because then one of them is forged.
fn described(pages: &[ProcessPage]) -> Option<Job> {
    let first = pages.first()?;
    if pages.iter().any(|page| page.uid != first.uid) {
        return None;
    }
    let hosts: HashMap<u64, String> =
        pages.iter().map(|page| (page.head(Head::Node), page.text(Head::Host))).collect();
    let mut nodes: Vec<String> = hosts.values().cloned().collect();
    nodes.sort();
    let rank = |page: &ProcessPage| JobRank {
        rank: page.head(Head::Rank).min(u32::MAX.into()) as u32,
        host: page.text(Head::Host),
        pid: page.head(Head::Pid) as u32,
        state: if page.head(Head::State) == 2 { "Ended" } else { "Running" }.into(),
        waiting_for: String::new(),
        counters: page.counters(&hosts).into_iter().chain(usage(page.head(Head::Pid) as u32)).collect(),
    };
    let mut ranks: Vec<JobRank> = pages.iter().map(rank).collect();
    ranks.sort_by_key(|rank| rank.rank);
    Some(Job {
        id: format!("{:x}", first.head(Head::World)),
        source: "watch",
        user: name_of(&first.uid.to_string()),
        project: String::new(),
        name: first.text(Head::Program),
        nodes,
        ranks_count: first.head(Head::Size).min(u32::MAX.into()) as u32,
        ranks,
        state: "RUNNING".into(),
        // A number that JavaScript and ClickHouse can read as a time.
        start: pages.iter().map(|page| page.head(Head::Start)).min()?.min(now_ms()),
        inside: (first.head(Head::Slurm) != 0).then(|| format!("slurm/{}", first.head(Head::Slurm))),
        ..Job::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(rank: u64, state: u64) -> ProcessPage {
        let mut words = vec![0; WORDS];
        let pid = u64::from(std::process::id());
        let head =
            [(Head::Magic, MAGIC), (Head::Form, FORM), (Head::Pid, pid), (Head::Rank, rank), (Head::Size, 2)];
        for (word, value) in head.into_iter().chain([(Head::World, 7), (Head::State, state), (Head::Node, 0)])
        {
            words[word as usize] = value;
        }
        words[Head::Host as usize] = u64::from_ne_bytes(*b"n01\0\0\0\0\0");
        let first = at(Call::Send, 2, 1);
        words[first..first + COUNTS].copy_from_slice(&[10, 5120, 900, 1]);
        words[node_at(0)] = 5120;
        ProcessPage { words, uid: 0 }
    }

    fn write(path: &Path, page: &ProcessPage) {
        let bytes: Vec<u8> = page.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn pages_of_a_world_are_one_job() {
        let job = described(&[page(1, 1), page(0, 1)]).unwrap();
        assert_eq!(
            (job.id.as_str(), job.ranks_count, job.nodes.as_slice()),
            ("7", 2, &["n01".to_string()][..])
        );
        assert_eq!(job.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1]);
        let counters = &job.ranks[0].counters;
        let expected =
            [("send_calls", 10), ("send_bytes", 5120), ("send.2K.far", 10), ("bytes_to.n01", 5120)];
        assert!(expected.iter().all(|(name, value)| counters[*name] == *value), "{counters:?}");
        assert!(!counters.contains_key("recv_calls"));
        assert!(described(&[page(0, 1), ProcessPage { uid: 1, ..page(1, 1) }]).is_none());
    }

    #[test]
    fn who_has_ended_stays_until_all_have() {
        let mut watched = Watched::default();
        let ranks = |jobs: Vec<Job>| jobs.iter().map(|job| job.ranks.len()).collect::<Vec<_>>();
        assert_eq!(ranks(watched.joined(vec![(page(0, 1), false), (page(1, 2), true)])), [2]);
        assert_eq!(ranks(watched.joined(vec![(page(0, 1), false)])), [2]);
        assert_eq!(ranks(watched.joined(vec![(page(0, 2), true)])), [2]);
        assert_eq!(ranks(watched.joined(Vec::new())), Vec::<usize>::new());
        assert!(watched.0.is_empty());
    }

    #[test]
    fn a_page_is_read_once_more_after_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (path, pid) = (folder.path().join("page"), std::process::id());
        write(&path, &page(0, 1));
        assert!(read(&path, pid).is_some() && path.exists());
        let seen = std::fs::read(&path).unwrap();
        assert_ne!(seen[Head::Seen as usize * 8..][..8], [0; 8], "the process knows of its reader");
        assert!(read(&path, pid ^ 1).is_none(), "another process's name");
        write(&path, &page(0, 2));
        assert!(read(&path, pid).is_some() && !path.exists());
        let mut strange = page(0, 1);
        strange.words[Head::Magic as usize] = 0;
        write(&path, &strange);
        let before = std::fs::read(&path).unwrap();
        assert!(read(&path, pid).is_none());
        assert!(std::fs::read(&path).unwrap() == before, "what is no page is not written");
        std::fs::write(&path, "short").unwrap();
        assert!(read(&path, pid).is_none());
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        assert!(read(&folder.path().join("link"), pid).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn no_page_is_too_odd(changes in proptest::collection::vec((0..WORDS, any::<u64>()), 0..40)) {
            let mut odd = page(0, 1);
            for (word, value) in changes {
                odd.words[word] = value;
            }
            prop_assert!(described(&[odd, page(1, 1)]).is_some());
        }
    }
}
