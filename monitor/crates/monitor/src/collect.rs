// SPDX-License-Identifier: BSD-3-Clause
//! The fabric's collector: a thread that discovers the fabric, reads all its counters again and again (each
//! time is a *sweep*), writes them into the store, and sends them to open web pages.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::FabricConfig;
use crate::fabric::counters::{Counters, Sweep};
use crate::fabric::discover::{Fabric, discover};
use crate::fabric::exchange::Exchange;
use crate::fabric::names;
use crate::fabric::topology::Topology;
use crate::live::Live;
use crate::store::{Writer, field};
use crate::time::{now_ms, seconds};

/// How long the collector waits before it tries again to reach the fabric.
const RETRY: Duration = Duration::from_secs(10);

pub struct Collector {
    config: FabricConfig,
    live: Arc<Live>,
    writer: Writer,
    /// The port that `new` opened, or why it could not be opened. None once `collect` has used it.
    opened: Option<Result<umad::Port, String>>,
}

impl Collector {
    /// Makes the collector and opens the port to the fabric. That must happen before other threads read
    /// `/sys/class/infiniband`: ibsim's library (libumad2sim 0.10) starts itself when the first file there is
    /// opened, and dies if two threads do so at once.
    pub fn new(config: FabricConfig, live: Arc<Live>, writer: Writer) -> Collector {
        let opened = Some(open(&config));
        Collector { config, live, writer, opened }
    }

    /// Discovers the fabric, and reads all its counters again and again, for as long as the monitor runs. A
    /// port that fails is opened again.
    pub fn run(mut self) {
        loop {
            let Err(why) = self.collect();
            let is_new = self.live.now().fabric.error != why;
            if is_new {
                eprintln!("outboard monitor: fabric: {why}");
            }
            self.live.now().fabric.error = why;
            std::thread::sleep(RETRY);
        }
    }

    fn collect(&mut self) -> Result<std::convert::Infallible, String> {
        let port = match self.opened.take() {
            Some(opened) => opened?,
            // libibumad prints a complaint on standard error each time that it finds no adapter.
            None if std::fs::read_dir("/sys/class/infiniband")
                .map_or(true, |mut all| all.next().is_none()) =>
            {
                return Err(self.live.now().fabric.error.clone());
            }
            None => open(&self.config)?,
        };
        let mut exchange = Exchange::new(port, self.config.limits.clone());
        let skipped = self.config.skipped()?;
        let mut counters = Counters::default();
        let mut next_sweep = Instant::now();
        loop {
            let started = Instant::now();
            let fabric = Arc::new(discover(&mut exchange)?);
            // The port stays open: it takes MADs, and the fabric behind it may come back.
            if fabric.nodes.is_empty() {
                self.live.now().fabric.error = "this host's own port does not answer".into();
                std::thread::sleep(RETRY);
                continue;
            }
            self.discovered(&fabric, started.elapsed());
            let until = started + Duration::from_secs(self.config.discover_s);
            loop {
                let started = Instant::now();
                let sweep = counters.sweep(&mut exchange, &fabric, &skipped)?;
                let mut now = self.live.now();
                now.fabric.mads = exchange.counts;
                now.fabric.skipped = skipped.len();
                drop(now);
                self.take_sweep(sweep, started.elapsed());
                next_sweep = (next_sweep + Duration::from_secs(self.config.sweep_s)).max(started);
                std::thread::sleep(next_sweep.saturating_duration_since(Instant::now()));
                if Instant::now() >= until {
                    break;
                }
            }
        }
    }

    fn discovered(&self, fabric: &Arc<Fabric>, took: Duration) {
        let (names, errors) = match &self.config.map {
            Some(file) => match std::fs::read(file) {
                Ok(bytes) => names::read(&String::from_utf8_lossy(&bytes)),
                Err(error) => (HashMap::new(), vec![format!("{}: {error}", file.display())]),
            },
            None => (HashMap::new(), Vec::new()),
        };
        let topology = Arc::new(Topology::of(fabric, &names));
        let name = |guid: &u64| {
            let hex = format!("{guid:016x}");
            topology.nodes.iter().find(|node| node.guid == hex).map_or(hex.clone(), |node| node.name.clone())
        };
        let mut now = self.live.now();
        let is_new = now.topology.version != topology.version;
        if now.fabric.map_errors != errors {
            errors.iter().for_each(|why| eprintln!("outboard monitor: fabric.map: {why}"));
        }
        now.topology = topology.clone();
        now.discovered = fabric.clone();
        now.fabric.forwarding = fabric.forwarding.len();
        now.fabric.error.clear();
        now.fabric.map_errors = errors;
        now.fabric.discovery_ms = took.as_secs_f64() * 1e3;
        now.fabric.unanswered =
            fabric.unanswered.iter().map(|(guid, port)| format!("{} port {port}", name(guid))).collect();
        now.unanswered.clone_from(&fabric.unanswered);
        drop(now);
        if is_new {
            let at = seconds(now_ms());
            let lines = topology.nodes.iter().fold(String::new(), |mut lines, node| {
                let guid = node.number();
                let (name, rack) = (field(&node.name), field(&node.rack));
                writeln!(lines, "{guid}\t{name}\t{}\t{rack}\t{at}", node.kind).expect("a String takes all");
                lines
            });
            self.writer.add("nodes", lines);
        }
    }

    fn take_sweep(&self, sweep: Sweep, took: Duration) {
        let at = now_ms();
        self.writer.add("port_samples", rows(&sweep, at));
        let mut now = self.live.now();
        now.fabric.sweeps += 1;
        now.fabric.ports = sweep.samples.len();
        now.fabric.sweep_ms = took.as_secs_f64() * 1e3;
        now.fabric.last_sweep = at;
        now.fabric.unreachable = sweep.unreachable.iter().map(|guid| format!("{guid:016x}")).collect();
        now.take_sweep(sweep.samples);
        now.unreachable = sweep.unreachable;
        drop(now);
        self.live.publish();
    }
}

fn open(config: &FabricConfig) -> Result<umad::Port, String> {
    umad::Port::open(config.device.as_deref(), config.port)
}

/// Returns the samples of a sweep (one reading of all port counters) as rows of the table `port_samples`. A
/// share `sent` or `received` that is unknown becomes NULL.
fn rows(sweep: &Sweep, at: u64) -> String {
    let at = seconds(at);
    let share = |share: Option<f32>| share.map_or("\\N".into(), |share| share.to_string());
    let mut lines = String::with_capacity(sweep.samples.len() * 128);
    for sample in &sweep.samples {
        let (sent, received) = (share(sample.sent), share(sample.received));
        let crate::fabric::counters::Sample { node, port, seconds, flags, since, .. } = sample;
        write!(lines, "{at}\t{node}\t{port}\t{seconds}\t{flags}\t{sent}\t{received}")
            .expect("a String takes all");
        for value in since {
            write!(lines, "\t{value}").expect("a String takes all");
        }
        lines.push('\n');
    }
    lines
}
