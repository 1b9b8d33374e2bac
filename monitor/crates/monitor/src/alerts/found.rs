// SPDX-License-Identifier: BSD-3-Clause
//! Finds the ports, links, nodes, hosts and jobs for which a criterion holds now. A port is always shown with
//! the port at the other end of its link.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::criteria::Criterion;
use super::metric::{Metric, Subject};
use crate::control::Control;
use crate::fabric::counters::{COUNTERS, Sample};
use crate::live::Now;
use crate::store::Written;
use crate::time::now_ms;

/// A port, link, node, host or job, or the monitor itself, for which a criterion holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The key that identifies this port, link, node, host or job as long as it exists, such as `host n01`.
    pub key: String,
    pub subject: String,
    pub text: String,
    /// The source of the job (such as `slurm`), if the criterion holds for a job. Otherwise it is empty.
    pub source: String,
    /// The id of the job, if the criterion holds for a job. Otherwise it is empty.
    pub job: String,
}

/// One end of a link: a port, and the name and rack of its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LinkEnd {
    guid: u64,
    port: u8,
    name: String,
    rack: String,
}

impl LinkEnd {
    fn words(&self) -> String {
        format!("{} port {}", self.name, self.port)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct KnownLink {
    ends: [LinkEnd; 2],
    speed: String,
}

/// All links that the discovery has ever seen, except replaced ones. A missing link counts as lost until an
/// administrator says that it was removed on purpose.
#[derive(Default)]
pub struct Links {
    known: BTreeMap<String, KnownLink>,
    /// For each port, by GUID and number: the key of its link in `known`, and the index of the port in the
    /// link's `ends`.
    of_port: HashMap<(u64, u8), (String, usize)>,
    /// The version of the topology from which the known links were last updated.
    version: u64,
    is_changed: bool,
}

impl Links {
    /// Reads the links that the monitor has stored before. A link that cannot be read is left out; the next
    /// discovery of the fabric finds it again.
    pub fn read(control: &Control) -> Links {
        let rows = control.read(|db| {
            let mut found = db.prepare("SELECT words FROM links")?;
            let rows = found.query_map([], |row| row.get::<_, String>(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        });
        let mut links = Links::default();
        for words in rows.unwrap_or_default() {
            if let Ok(link) = serde_json::from_str::<KnownLink>(&words) {
                links.keep(link);
            }
        }
        links.is_changed = false;
        links
    }

    pub fn save(&mut self, control: &Control) -> Result<(), String> {
        if !self.is_changed {
            return Ok(());
        }
        control.with(|db| {
            db.execute("DELETE FROM links", [])?;
            let mut put = db.prepare("INSERT INTO links VALUES (?, ?)")?;
            for (key, link) in &self.known {
                put.execute(params![key, serde_json::to_string(link).unwrap_or_default()])?;
            }
            Ok(())
        })?;
        self.is_changed = false;
        Ok(())
    }

    fn keep(&mut self, link: KnownLink) {
        let key = key(&link);
        if self.known.get(&key) == Some(&link) {
            return;
        }
        // The links that were at these ports before are not lost: this link replaces them.
        for end in &link.ends {
            if let Some((old, _)) = self.of_port.get(&(end.guid, end.port)).cloned()
                && old != key
            {
                self.forget(&old);
            }
        }
        for (side, end) in link.ends.iter().enumerate() {
            self.of_port.insert((end.guid, end.port), (key.clone(), side));
        }
        self.known.insert(key, link);
        self.is_changed = true;
    }

    /// Forgets a link that an administrator has removed on purpose, or that another link replaces. Returns
    /// false if no such link is known.
    pub fn forget(&mut self, key: &str) -> bool {
        let Some(link) = self.known.remove(key) else { return false };
        for end in &link.ends {
            self.of_port.remove(&(end.guid, end.port));
        }
        self.is_changed = true;
        true
    }

    pub fn learn(&mut self, now: &Now) {
        if self.version == now.topology.version {
            return;
        }
        self.version = now.topology.version;
        for link in &now.topology.links {
            let end = |at: usize, port: u8| {
                let node = &now.topology.nodes[at];
                let guid = node.number();
                LinkEnd { guid, port, name: node.name.clone(), rack: node.rack.clone() }
            };
            let ends = [end(link.from, link.from_port), end(link.to, link.to_port)];
            self.keep(KnownLink { ends, speed: link.speed.clone() });
        }
    }

    fn of(&self, guid: u64, port: u8) -> Option<(&KnownLink, usize)> {
        let (key, side) = self.of_port.get(&(guid, port))?;
        Some((self.known.get(key)?, *side))
    }
}

fn key(link: &KnownLink) -> String {
    let [from, to] = &link.ends;
    format!("link {:016x} {} {:016x} {}", from.guid, from.port, to.guid, to.port)
}

/// Returns all things (ports, links, nodes, hosts, jobs) for which a criterion holds.
pub fn found(
    criterion: &Criterion,
    metric: &Metric,
    now: &Now,
    written: &Written,
    links: &Links,
) -> Vec<Found> {
    let mut all = match metric.of {
        Subject::Port => ports(criterion, now, links),
        Subject::Link if criterion.holds(1.0) => lost(criterion, now, links),
        Subject::Node if criterion.holds(1.0) => unreachable(criterion, now, links),
        Subject::Link | Subject::Node => Vec::new(),
        Subject::Host => hosts(criterion, now),
        Subject::Job => jobs(criterion, now),
        Subject::Monitor => monitor(criterion, metric, now, written),
    };
    for found in &mut all {
        if found.text.is_empty() {
            found.text = metric.doc.trim_start_matches("1: ").into();
        }
    }
    all
}

fn is_meant(criterion: &Criterion, ends: &[&LinkEnd]) -> bool {
    let has = |text: &str| text.contains(&criterion.target);
    criterion.target.is_empty() || ends.iter().any(|end| has(&end.name) || end.rack == criterion.target)
}

fn measured(criterion: &Criterion, value: f64) -> String {
    let value = if value < 100.0 { (value * 1000.0).round() / 1000.0 } else { value.round() };
    format!("{} is {value}", criterion.metric)
}

fn ports(criterion: &Criterion, now: &Now, links: &Links) -> Vec<Found> {
    let counter = COUNTERS.iter().position(|counter| counter.name == criterion.metric);
    let value = |sample: &Sample| match (criterion.metric.as_str(), counter) {
        ("use", _) => sample.sent.into_iter().chain(sample.received).reduce(f32::max).map(f64::from),
        ("errors", _) => Some(sample.errors() as f64),
        (_, Some(at)) => Some(sample.since[at] as f64),
        (_, None) => None,
    };
    let found = now.unwatched.values().filter_map(|sample| {
        let value = value(sample).filter(|value| criterion.holds(*value))?;
        let (link, side) = links.of(sample.node, sample.port)?;
        let (here, there) = (&link.ends[side], &link.ends[1 - side]);
        is_meant(criterion, &[here, there]).then(|| Found {
            key: format!("port {:016x} {}", sample.node, sample.port),
            subject: format!("{} (other end: {})", here.words(), there.words()),
            text: format!("{} in {:.0} s", measured(criterion, value), sample.seconds),
            ..Found::default()
        })
    });
    found.collect()
}

fn lost(criterion: &Criterion, now: &Now, links: &Links) -> Vec<Found> {
    let nodes: BTreeSet<u64> = now.topology.nodes.iter().map(|node| node.number()).collect();
    let guid = |at: usize| now.topology.nodes[at].number();
    let there: BTreeSet<(u64, u8)> = now
        .topology
        .links
        .iter()
        .flat_map(|link| [(guid(link.from), link.from_port), (guid(link.to), link.to_port)])
        .chain(now.unanswered.iter().copied())
        .collect();
    let found = links.known.iter().filter(|(_, link)| {
        let [from, to] = &link.ends;
        // A port can only report a missing link if the node of at least one end is there.
        link.ends.iter().any(|end| nodes.contains(&end.guid))
            && !link.ends.iter().any(|end| there.contains(&(end.guid, end.port)))
            && is_meant(criterion, &[from, to])
    });
    let found_at = |(key, link): (&String, &KnownLink)| Found {
        key: key.clone(),
        subject: format!("{} – {}", link.ends[0].words(), link.ends[1].words()),
        text: format!("the link is down; it was {}", link.speed),
        ..Found::default()
    };
    found.map(found_at).collect()
}

fn unreachable(criterion: &Criterion, now: &Now, links: &Links) -> Vec<Found> {
    // The ports that lead to a node, by its GUID. For a node that was never seen, the port stands for itself.
    let mut away: BTreeMap<String, (String, Vec<&LinkEnd>)> = BTreeMap::new();
    for (guid, port) in &now.unanswered {
        match links.of(*guid, *port) {
            Some((link, side)) => {
                let (here, there) = (&link.ends[side], &link.ends[1 - side]);
                let key = format!("node {:016x}", there.guid);
                away.entry(key).or_insert_with(|| (there.name.clone(), Vec::new())).1.push(here);
            }
            None => {
                let name = format!("whoever is behind port {port} of {guid:016x}");
                away.insert(format!("behind {guid:016x} {port}"), (name, Vec::new()));
            }
        }
    }
    for guid in &now.unreachable {
        let mut ends = links.known.values().flat_map(|link| link.ends.iter().zip(link.ends.iter().rev()));
        let name = ends.clone().find(|(end, _)| end.guid == *guid).map(|(end, _)| end.name.clone());
        let before = ends.by_ref().filter(|(end, _)| end.guid == *guid).map(|(_, other)| other);
        let name = name.unwrap_or_else(|| format!("{guid:016x}"));
        away.entry(format!("node {guid:016x}")).or_insert_with(|| (name, before.collect()));
    }
    let found_at = |(key, (name, before)): (String, (String, Vec<&LinkEnd>))| {
        let own = LinkEnd { guid: 0, port: 0, name: name.clone(), rack: String::new() };
        let mut meant = before.clone();
        meant.push(&own);
        let ports: Vec<_> = before.iter().map(|end| end.words()).collect();
        let subject = if ports.is_empty() { name } else { format!("{name} (behind {})", ports.join(", ")) };
        is_meant(criterion, &meant).then(|| Found { key, subject, ..Found::default() })
    };
    away.into_iter().filter_map(found_at).collect()
}

fn hosts(criterion: &Criterion, now: &Now) -> Vec<Found> {
    let at = now_ms();
    let meant = now.hosts.iter().filter(|(name, _)| name.contains(&criterion.target));
    let found = meant.filter_map(|(name, host)| {
        let is_unreachable = host.is_unreachable(at);
        let (value, text) = match criterion.metric.as_str() {
            "host_unreachable" => (Some(f64::from(u8::from(is_unreachable))), String::new()),
            // The last figures of a host that is away are not its present ones.
            _ if is_unreachable => return None,
            "cpu_use" => {
                (host.cpu(), host.cpu().map_or_else(String::new, |value| measured(criterion, value)))
            }
            _ => (host.memory(), host.memory().map_or_else(String::new, |value| measured(criterion, value))),
        };
        criterion.holds(value?).then(|| Found {
            key: format!("host {name}"),
            subject: format!("host {name}"),
            text,
            ..Found::default()
        })
    });
    found.collect()
}

fn jobs(criterion: &Criterion, now: &Now) -> Vec<Found> {
    let at = now_ms();
    let running = now.jobs.iter().filter(|job| job.end.is_none() && !job.ranks.is_empty());
    let found = running.filter(|job| job.name.contains(&criterion.target)).filter_map(|job| {
        let waited: u64 = job.ranks.iter().filter_map(|rank| rank.counters.get("wait_ns")).sum();
        let whole = at.saturating_sub(job.start) as f64 * 1e6 * job.ranks.len() as f64;
        let value = waited as f64 / whole.max(1.0);
        criterion.holds(value).then(|| Found {
            key: format!("job {} {}", job.source, job.id),
            subject: format!("job {} ({})", job.id, job.name),
            text: measured(criterion, value),
            source: job.source.into(),
            job: job.id.clone(),
        })
    });
    found.collect()
}

fn monitor(criterion: &Criterion, metric: &Metric, now: &Now, written: &Written) -> Vec<Found> {
    let value = match metric.name {
        "dropped_rows" => written.dropped_lately as f64,
        "spooled_bytes" => written.spooled_bytes as f64,
        "sweep_seconds" => now.fabric.sweep_ms / 1e3,
        _ => f64::from(u8::from(!now.fabric.error.is_empty())),
    };
    let (subject, text) = ("the monitor".to_string(), measured(criterion, value));
    let found = Found { key: "monitor".into(), subject, text, ..Found::default() };
    if criterion.holds(value) { vec![found] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::topology;
    use std::sync::Arc;

    /// Makes a state of the fabric with two switches, two links between them, and hosts 3 and 4 below the
    /// second switch.
    fn now() -> Now {
        let node = |guid: u64, name: &str, tier| topology::TopologyNode {
            guid: format!("{guid:016x}"),
            name: name.into(),
            rack: "A1".into(),
            kind: "switch",
            tier,
            x: 0.0,
            y: 0.0,
            ports: 8,
        };
        let link = |from, from_port, to, to_port| topology::TopologyLink {
            from,
            from_port,
            to,
            to_port,
            speed: "4x EDR".into(),
            bytes_per_second: 1e9,
        };
        let nodes = vec![node(1, "spine", 2), node(2, "leaf", 1), node(3, "n3", 0), node(4, "n4", 0)];
        let links = vec![link(1, 7, 0, 1), link(1, 8, 0, 2), link(2, 1, 1, 3), link(3, 1, 1, 4)];
        Now { topology: Arc::new(topology::Topology { version: 1, nodes, links }), ..Now::default() }
    }

    fn asked(metric: &str, threshold: f64) -> Criterion {
        Criterion { metric: metric.into(), threshold, is_on: true, ..Criterion::default() }
    }

    fn holds(criterion: &Criterion, now: &Now, links: &Links) -> Vec<(String, String)> {
        let found = found(criterion, criterion.metric().unwrap(), now, &Written::default(), links);
        found.into_iter().map(|found| (found.subject, found.text)).collect()
    }

    /// Returns the state `now` without the links of `node` (None: of no node), and without the links for
    /// which `is_gone` holds.
    fn without(now: &Now, node: Option<usize>, is_gone: impl Fn(&topology::TopologyLink) -> bool) -> Now {
        let mut topology = (*now.topology).clone();
        topology.version += 1;
        topology
            .links
            .retain(|link| !is_gone(link) && node.is_none_or(|at| link.from != at && link.to != at));
        // The indices of other nodes must stay, so a node that is away gets another name.
        if let Some(at) = node {
            topology.nodes[at].guid = format!("{:016x}", 0xffff);
        }
        Now { topology: Arc::new(topology), ..Now::default() }
    }

    #[test]
    fn a_port_is_told_with_its_other_end() {
        let (mut now, mut links) = (now(), Links::default());
        links.learn(&now);
        let mut since = [0; COUNTERS.len()];
        since[5] = 12;
        let sample = Sample {
            node: 2,
            port: 3,
            seconds: 10.0,
            flags: 0,
            since,
            sent: Some(0.2),
            received: Some(0.95),
        };
        let none = Sample { since: [0; COUNTERS.len()], sent: None, received: Some(0.1), ..sample.clone() };
        now.take_sweep(vec![sample]);
        // A sweep before the look changes no result.
        now.take_sweep(vec![none]);
        let expected =
            ("leaf port 3 (other end: n3 port 1)".to_string(), "symbol_errors is 12 in 20 s".to_string());
        assert_eq!(holds(&asked("symbol_errors", 12.0), &now, &links), [expected]);
        assert!(holds(&asked("symbol_errors", 13.0), &now, &links).is_empty());
        assert_eq!(holds(&asked("use", 0.9), &now, &links).len(), 1);
        for (target, count) in [("n3", 1), ("A1", 1), ("n4", 0), ("A", 0)] {
            let criterion = Criterion { target: target.into(), ..asked("errors", 1.0) };
            assert_eq!(holds(&criterion, &now, &links).len(), count, "{target}");
        }
    }

    #[test]
    fn a_link_is_lost_until_it_is_back_replaced_or_forgotten() {
        let (before, mut links) = (now(), Links::default());
        links.learn(&before);
        let criterion = asked("link_lost", 1.0);
        assert!(holds(&criterion, &before, &links).is_empty());
        let mut gone = without(&before, None, |link| link.from_port == 8);
        links.learn(&gone);
        let lost = holds(&criterion, &gone, &links);
        assert_eq!(lost, [("leaf port 8 – spine port 2".into(), "the link is down; it was 4x EDR".into())]);
        // The port is up, and no node answers behind it: this is another fault.
        gone.unanswered = vec![(2, 8)];
        assert!(holds(&criterion, &gone, &links).is_empty());
        let mut topology = (*gone.topology).clone();
        topology.version = 9;
        topology.links.push(topology::TopologyLink { from_port: 8, to_port: 5, ..topology.links[0].clone() });
        links.learn(&Now { topology: Arc::new(topology.clone()), ..Now::default() });
        assert!(
            holds(&criterion, &Now { topology: Arc::new(topology), ..Now::default() }, &links).is_empty()
        );
        let gone = without(&before, None, |link| link.from == 2);
        let key = format!("link {:016x} 1 {:016x} 3", 3, 2);
        assert_eq!(holds(&criterion, &gone, &links).len(), 1);
        assert!(links.forget(&key) && !links.forget(&key));
        assert!(holds(&criterion, &gone, &links).is_empty());
    }

    #[test]
    fn a_node_that_does_not_answer_is_told_with_the_ports_before_it() {
        let (before, mut links) = (now(), Links::default());
        links.learn(&before);
        let criterion = asked("unreachable", 1.0);
        let mut away =
            Now { unreachable: BTreeSet::from([1]), topology: before.topology.clone(), ..Now::default() };
        let expected = "spine (behind leaf port 7, leaf port 8)";
        assert_eq!(holds(&criterion, &away, &links)[0].0, expected);
        // The next discovery does not find it any more.
        away = without(&before, Some(0), |_| false);
        away.unanswered = vec![(2, 7), (2, 8)];
        links.learn(&away);
        assert_eq!(holds(&criterion, &away, &links)[0].0, expected);
        assert!(holds(&asked("link_lost", 1.0), &away, &links).is_empty());
        away.unanswered.push((2, 6));
        assert_eq!(holds(&criterion, &away, &links).len(), 2);
    }

    #[test]
    fn links_are_known_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::open(folder.path()).unwrap();
        let (before, mut links) = (now(), Links::default());
        links.learn(&before);
        links.save(&control).unwrap();
        let gone = without(&before, None, |link| link.from == 2);
        assert_eq!(holds(&asked("link_lost", 1.0), &gone, &Links::read(&control)).len(), 1);
    }
}
