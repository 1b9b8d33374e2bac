// SPDX-License-Identifier: BSD-3-Clause
//! `outboard plan` prints a rank's schedule, or what would be chosen for a call.

use std::fmt::Write as _;

use clap::Args;
use coll::Placement;
use coll::carrier::{
    self, CallFacts, CallMode, Carrier, CarrierFacts, LibraryFacts, OffloadTerms, Policy, Slots, Space, Why,
    choose, execute,
};
use schedule::simulate::{Network, simulate};
use schedule::{
    ALGORITHMS, Algorithm, AlgorithmFacts, Collective, CombineOrder, NodeMap, Params, Schedule, Side,
};
use telemetry::Unit;
use telemetry::summary::short;

/// Print the steps of a collective's schedule on one rank, or what is chosen for a size.
#[derive(Args)]
pub struct Plan {
    #[command(flatten)]
    which: Which,
    /// List the algorithms.
    #[arg(long)]
    list: bool,
    /// The number of ranks.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    ranks: u32,
    /// The number of nodes; neighbouring ranks share a node.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,
    /// Place neighbouring ranks on different nodes, one after the other.
    #[arg(long)]
    round_robin: bool,
    /// The rank whose schedule is printed.
    #[arg(short, long, value_name = "RANK", default_value_t = 0)]
    rank: u32,
    /// The root of a rooted collective.
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
    /// Print what is chosen for this size: who carries the call out, and the algorithm. The size is that of
    /// the vector, or of the block that one rank sends to one other.
    #[arg(short, long, value_name = "BYTES", requires = "collective")]
    bytes: Option<String>,
    /// The libfabric provider between the nodes, such as tcp or verbs. Default: the one that a job would take
    /// on this host.
    #[arg(long, value_name = "PROVIDER", requires = "bytes")]
    fabric: Option<String>,
    /// Assume MPI_IN_PLACE.
    #[arg(long)]
    in_place: bool,
    /// Assume an operator that is not commutative.
    #[arg(long)]
    ordered: bool,
    /// Say which steps the rank carries out, and which a proxy on another computer, such as a data processing
    /// unit (`mpirun --dpu-hostfile`).
    #[arg(long, conflicts_with_all = ["bytes", "list"])]
    dpu: bool,
    /// Print the protocol of messages between two ranks of a node, by length.
    #[arg(long, conflicts_with_all = ["collective", "list", "bytes"])]
    p2p: bool,
}

/// The collective and the algorithm that a command line names.
#[derive(Args)]
pub(super) struct Which {
    /// The collective, such as allreduce. Default: all.
    pub(super) collective: Option<String>,
    /// One of its algorithms, such as ring. Default: all.
    algorithm: Option<String>,
}

/// Returns the collective that `name` means, and whether the name is that of the nonblocking function
/// (`iallreduce`). The spelling may be that of settings (reduce_scatter), of MPI (MPI_Reduce_scatter) or of
/// the tables (reduce-scatter).
pub(super) fn collective(name: &str) -> Result<(Collective, bool), String> {
    let plain = |name: &str| name.to_lowercase().trim_start_matches("mpi_").replace('_', "-");
    let find = |wanted: &str| Collective::ALL.into_iter().find(|one| plain(one.name()) == wanted);
    let wanted = plain(name);
    let nonblocking = || Some((find(wanted.strip_prefix('i')?)?, true));
    find(&wanted).map(|found| (found, false)).or_else(nonblocking).ok_or_else(|| {
        let names: Vec<&str> = Collective::ALL.iter().map(|one| one.name()).collect();
        format!("no such collective: {name}; there are {}", names.join(", "))
    })
}

impl Which {
    /// Returns the algorithms that the command line names, at least one. Without a collective, returns all.
    /// Fails if no collective or algorithm has that name.
    pub(super) fn algorithms(&self) -> Result<Vec<&'static AlgorithmFacts>, String> {
        let Some(name) = &self.collective else {
            return Ok(ALGORITHMS.iter().filter(|facts| !facts.inter).collect());
        };
        let (collective, _) = collective(name)?;
        let Some(algorithm) = &self.algorithm else { return Ok(collective.algorithms().collect()) };
        match Algorithm::find(collective, algorithm) {
            Some(algorithm) => Ok(vec![algorithm.facts()]),
            None => {
                let names: Vec<&str> = collective.algorithms().map(|facts| facts.name).collect();
                Err(format!("no such algorithm of {name}: {algorithm}; there are {}", names.join(", ")))
            }
        }
    }
}

impl Plan {
    /// Returns the text to print: the steps of a schedule, the list of algorithms, what is chosen for a size,
    /// or the protocols of messages.
    pub fn run(&self) -> Result<String, String> {
        if self.p2p {
            return protocols();
        }
        if let (Some(bytes), Some(name)) = (&self.bytes, &self.which.collective) {
            let settings = settings::load().map_err(|error| error.to_string())?;
            return self.choice(collective(name)?, settings::bytes(bytes)?, settings);
        }
        let algorithms = self.which.algorithms()?;
        let mut text = String::new();
        if self.list || self.which.collective.is_none() {
            for facts in algorithms {
                let name = facts.collective.name();
                writeln!(text, "{name:<22} {:<14} {}", facts.name, facts.summary)
                    .expect("a String takes all");
            }
            return Ok(text);
        }
        if self.rank >= self.ranks || self.root >= self.ranks {
            return Err(format!("rank {} and root {} must be below {}", self.rank, self.root, self.ranks));
        }
        let params = Params {
            root: self.root,
            in_place: self.in_place,
            commutative: !self.ordered,
            nodes: self.placement().map().cloned(),
            ..Params::new(self.rank, self.ranks)
        };
        let right = |facts: &AlgorithmFacts| facts.algorithm.is_right(!self.ordered, params.nodes.as_deref());
        for facts in algorithms {
            writeln!(text, "{} {}: {}", facts.collective.name(), facts.name, facts.summary)
                .expect("a String takes all");
            match right(facts) {
                false => writeln!(text, "  not for operators that are not commutative"),
                true => writeln!(text, "{}", self.steps(&facts.algorithm.plan(&params))),
            }
            .expect("a String takes all");
        }
        if self.dpu {
            text += "host: the rank, in the call that starts the operation and those that wait for it; dpu: the proxy\n";
        }
        Ok(text)
    }

    /// Returns the steps of a schedule as text, one a line. With `--dpu` a line begins with who carries the
    /// step out: `host` (the rank) or `dpu` (the proxy).
    fn steps(&self, schedule: &Schedule) -> String {
        let words = schedule.to_string();
        if !self.dpu {
            return words;
        }
        let placement = self.placement();
        let node = |rank: u32| placement.map().map(|nodes| nodes.of(rank));
        let sides = schedule.sides(|peer| node(peer) == node(self.rank));
        let sides = sides.iter().map(|side| if *side == Side::Host { "host" } else { "dpu" });
        let lines = words.lines().zip([""].into_iter().chain(sides));
        lines.map(|(line, side)| format!("{side:<5}{line}\n")).collect()
    }
}

impl Plan {
    /// Returns which rank is on which node, as --nodes and --round-robin say.
    fn placement(&self) -> Placement {
        let make = if self.round_robin { NodeMap::round_robin } else { NodeMap::by_node };
        Placement::of(make(self.ranks, self.nodes.min(self.ranks)))
    }

    /// Returns a text that says what carries out a call of this size, in a job with proxies and in a job
    /// without.
    fn choice(
        &self,
        (collective, nonblocking): (Collective, bool),
        bytes: u64,
        settings: &settings::Settings,
    ) -> Result<String, String> {
        let choice = coll::AlgorithmChoice::from_settings(settings).map_err(|error| error.to_string())?;
        let placement = self.placement();
        let algorithm = choice.of(collective, bytes, self.ranks, !self.ordered, &placement);
        let mut policy = Policy::new(settings, &choice);
        let (members, has_nodes) = (self.ranks, self.nodes > 1);
        let network = if has_nodes { self.network(settings) } else { None };
        policy.is_carried_by_kernel = network.as_deref().is_some_and(fabric::is_carried_by_kernel);
        let mode = if nonblocking { CallMode::Nonblocking } else { CallMode::Blocking };
        let call = CallFacts { collective, bytes, members, mode, all_of_one_group: true, on_images: false };
        let library = self.library(collective, settings)?;
        let by = self.by(algorithm, choice.is_overruled(collective));
        // The mean bytes that a rank sends. The executor compares these, plus reductions and copies.
        let simulated = self.ranks <= RANKS_WEIGHED;
        let report = || simulate(algorithm, self.ranks, bytes, placement.map(), &Network::default(), 1);
        let moved = simulated.then(|| report().message_bytes / u64::from(self.ranks));
        let terms = OffloadTerms {
            setting: policy.offload,
            start: carrier::schedule::offload(&policy, mode),
            bytes: moved.unwrap_or(u64::MAX),
            bytes_min: policy.offload_bytes_min,
            has_steps: true,
            has_messages: has_nodes
                && carrier::schedule::fetched_bytes_min(&policy, mode, has_nodes, || call) > bytes,
        };
        let describe = |has_proxies: bool| {
            // Members on several nodes share no slots; nonblocking calls that a proxy takes use no queue.
            let is_served = has_proxies && policy.offload != coll::Offload::Off;
            let is_refused = has_nodes || nonblocking && is_served;
            let slots = if is_refused { Slots::Refused } else { Slots::Attached(call.moves(Space::FULL)) };
            let facts = CarrierFacts { policy: &policy, library, on_devices: false, slots };
            let (carrier, why) = choose(&call, &facts);
            match carrier {
                Carrier::Library => format!("{} ({})", settings.ccl, why.why()),
                Carrier::Slots | Carrier::Queue => {
                    format!("{} ({}); the first calls by {by}", carrier.name(), why.why())
                }
                Carrier::Device | Carrier::Schedule => {
                    let why = execute(&terms, || (!has_proxies).then_some(Why::NoProxy));
                    let who = if why.is_proxy() { "a proxy" } else { "the ranks, inside MPI calls" };
                    let moved = match (why, moved) {
                        (Why::ProxyLong | Why::Short, Some(moved)) => format!(
                            ", {}: a rank moves {}",
                            short(policy.offload_bytes_min, Unit::Bytes),
                            short(moved, Unit::Bytes)
                        ),
                        _ => String::new(),
                    };
                    format!("{who}, by {by} ({}{moved})", why.why())
                }
            }
        };
        let name = format!("{}{}", if nonblocking { "i" } else { "" }, collective.name());
        let nodes = if has_nodes { self.nodes_over(network) } else { String::new() };
        let head = format!("{name} of {} on {} ranks{nodes}\n", short(bytes, Unit::Bytes), self.ranks);
        let (served, alone) = (describe(true), describe(false));
        if served == alone {
            return Ok(head + &format!("  with proxies and without: {alone}\n"));
        }
        Ok(head + &format!("  with proxies:    {served}\n  without proxies: {alone}\n"))
    }

    /// Returns the libfabric provider between the nodes: that of --fabric, else the one that a job on this
    /// host would take. None if there is no libfabric.
    fn network(&self, settings: &settings::Settings) -> Option<String> {
        let found = || {
            let wanted = fabric::ProviderChoice::of(settings);
            let library = fabric::Libfabric::load(wanted.library).ok()?;
            Some(fabric::choose(&library, &wanted, None).ok()?.first()?.core())
        };
        self.fabric.clone().or_else(found)
    }

    /// Returns " of N nodes" and the provider that connects them, as text.
    fn nodes_over(&self, network: Option<String>) -> String {
        let over = match network {
            Some(network) => format!("over {network}"),
            None => "(there is no libfabric here; --fabric names a provider)".into(),
        };
        format!(" of {} nodes {over}", self.nodes)
    }

    /// Returns a text that says which algorithm the schedule has, and whether a setting or the table chose
    /// it.
    fn by(&self, algorithm: Algorithm, is_overruled: bool) -> String {
        let facts = algorithm.facts();
        let why = if is_overruled { "as the setting says" } else { "by the table" };
        let is_own = facts.collective.reduces() && facts.order != CombineOrder::InRanks;
        let order = if is_own { "; it combines in an order of its own" } else { "" };
        format!("a schedule, algorithm {} ({why}{order})", facts.name)
    }

    /// Returns the facts about the collective library that OUTBOARD_CCL names, as for a call whose operator
    /// the library has. Returns None if the setting is off.
    fn library(
        &self,
        collective: Collective,
        settings: &settings::Settings,
    ) -> Result<Option<LibraryFacts>, String> {
        if settings.ccl == "off" {
            return Ok(None);
        }
        let tuning = crate::tables::find(settings)?.tuning;
        let measured = tuning.library_bytes_min(&settings.ccl, collective.name(), self.ranks);
        Ok(Some(LibraryFacts { measured, has_operator: true, may_join: true }))
    }
}

/// Returns a table of the protocols of messages by length, with the settings and the tuning of this machine.
fn protocols() -> Result<String, String> {
    let settings = settings::load().map_err(|error| error.to_string())?;
    let tuning = boot::overruled(crate::tables::find(settings)?.tuning, settings);
    let mut text = String::new();
    for p2p::ProtocolRow { name, bytes_min, bytes_max, moves, needs } in
        p2p::protocols(&p2p::Config::of(settings, &tuning))
    {
        let most = if bytes_max == u64::MAX { "any".into() } else { short(bytes_max, Unit::Bytes) };
        let range = format!("{} to {most}", short(bytes_min, Unit::Bytes));
        writeln!(text, "{name:<20} {range:<19} {moves}; needs {needs}").expect("a String takes all");
    }
    let protocol = format!("{:?}", settings.large_protocol).to_lowercase();
    Ok(text
        + &format!(
            "\nThe sender chooses once. A synchronous send, and one without credit, goes by rendezvous at any length.\n\
             The receiver of a rendezvous chooses: within a host cells or read, between hosts cells or RDMA read\n\
             (OUTBOARD_LARGE_PROTOCOL={protocol}; `outboard info --tuning` shows the lengths that are read on this machine).\n\
             Where reading is faster, eager messages end earlier.\n"
        ))
}

/// The most ranks for which `choice` simulates the collective to find how many bytes one rank sends.
const RANKS_WEIGHED: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn which(collective: &str, algorithm: Option<&str>) -> Which {
        Which { collective: Some(collective.into()), algorithm: algorithm.map(String::from) }
    }

    #[test]
    fn names_in_every_spelling() {
        for name in ["reduce_scatter", "reduce-scatter", "MPI_Reduce_scatter"] {
            let found = which(name, Some("pairwise")).algorithms().unwrap();
            assert_eq!(found[0].algorithm, Algorithm::ReduceScatterPairwise);
        }
        assert!(which("allreduce", None).algorithms().unwrap().len() >= 3);
        assert!(which("allreduce", Some("x")).algorithms().err().unwrap().contains("ring"));
        assert!(which("x", None).algorithms().err().unwrap().contains("alltoallw"));
    }

    #[test]
    fn a_plan_is_printed_with_its_steps() {
        let plan = Plan {
            which: which("barrier", Some("dissemination")),
            list: false,
            ranks: 8,
            nodes: 1,
            round_robin: false,
            rank: 3,
            root: 0,
            bytes: None,
            in_place: false,
            ordered: false,
            dpu: false,
            fabric: None,
            p2p: false,
        };
        let text = plan.run().unwrap();
        assert!(text.contains("rank 3 of 8") && text.matches("recv").count() == 3, "{text}");
        // Rank 3 has rank 2 on its node, ranks 1 and 5 elsewhere, and the same distances the other way.
        let divided = Plan { nodes: 4, dpu: true, ..plan };
        let text = divided.run().unwrap();
        let of = |side: &str, action: &str| {
            text.lines().filter(|line| line.starts_with(side) && line.contains(action)).count()
        };
        assert_eq!((of("host ", "recv"), of("dpu ", "recv")), (1, 2), "{text}");
        assert_eq!((of("host ", "send"), of("dpu ", "send")), (0, 3), "{text}");
        assert!(Plan { rank: 8, ..divided }.run().unwrap_err().contains("below 8"));
    }

    #[test]
    fn short_blocks_between_nodes_stay_with_the_ranks_over_tcp() {
        let told = |fabric: &str, bytes| {
            let plan = Plan {
                which: which("ialltoall", None),
                list: false,
                ranks: 4,
                nodes: 2,
                round_robin: false,
                rank: 0,
                root: 0,
                bytes: None,
                fabric: Some(fabric.into()),
                in_place: false,
                ordered: false,
                dpu: false,
                p2p: false,
            };
            let settings = settings::parse(&[]).unwrap();
            plan.choice(collective("ialltoall").unwrap(), bytes, &settings).unwrap()
        };
        let short = told("tcp;ofi_rxm", 64 << 10);
        assert!(
            short.contains(telemetry::Choice::OtherHosts.why()) && !short.contains("a proxy, by"),
            "{short}"
        );
        assert!(
            short.starts_with("ialltoall of 64.0KiB on 4 ranks of 2 nodes over tcp;ofi_rxm\n"),
            "{short}"
        );
        assert!(told("tcp", 512 << 10).contains("with proxies:    a proxy, by"));
        assert!(told("verbs", 64 << 10).contains("with proxies:    a proxy, by"));
    }

    #[test]
    fn what_auto_chooses_is_told() {
        let told = |name: &str, bytes: u64, variables: &[(&str, &str)]| {
            let plan = Plan {
                which: which(name, None),
                list: false,
                ranks: 8,
                nodes: 1,
                round_robin: false,
                rank: 0,
                root: 0,
                bytes: None,
                fabric: None,
                in_place: false,
                ordered: false,
                dpu: false,
                p2p: false,
            };
            let variables: Vec<_> = variables.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
            let settings = settings::parse(&variables).unwrap();
            plan.choice(collective(name).unwrap(), bytes, &settings).unwrap()
        };
        let long = told("ialltoall", 64 << 10, &[]);
        assert!(long.starts_with("ialltoall of 64.0KiB on 8 ranks\n"), "{long}");
        assert!(
            long.contains("with proxies:    a proxy, by a schedule, algorithm linear")
                && long.contains("OUTBOARD_OFFLOAD_BYTES_MIN, 16.0KiB: a rank moves 448KiB)"),
            "{long}"
        );
        assert!(long.contains("over slots in the comm's queue"), "{long}");
        let short = told("MPI_Ialltoall", 8, &[]);
        assert!(short.contains("with proxies:    the ranks, inside MPI calls, by"), "{short}");
        let blocking = told("alltoall", 8 << 20, &[("OUTBOARD_ALLTOALL", "pairwise")]);
        assert!(
            blocking.contains("with proxies and without: the ranks, inside MPI calls, by a schedule, algorithm pairwise (as the setting says)"),
            "{blocking}"
        );
        assert!(!blocking.contains("a proxy, by") && !blocking.contains("slots"), "{blocking}");
        assert!(told("alltoall", 8, &[("OUTBOARD_OFFLOAD", "on")]).contains("a proxy, by"));
        let library = [("OUTBOARD_CCL", "oneccl"), ("OUTBOARD_TUNING", "off")];
        let long = told("allreduce", 1 << 20, &library);
        assert!(
            long.contains("with proxies and without: oneccl (OUTBOARD_CCL takes") && !long.contains("slots"),
            "{long}"
        );
        assert!(told("allreduce", 8, &library).contains("over slots"));
        // The reasons are those that `outboard explain` gives for such calls.
        for (text, why) in [
            (&long, telemetry::Choice::LibraryLong),
            (&told("allreduce", 8, &[]), telemetry::Choice::Slots),
            (&told("ialltoall", 8, &[]), telemetry::Choice::Short),
            (&told("ialltoall", 64 << 10, &[]), telemetry::Choice::ProxyLong),
            (&told("alltoall", 8 << 20, &[]), telemetry::Choice::Blocking),
            (&told("ialltoall", 8, &[("OUTBOARD_OFFLOAD", "off")]), telemetry::Choice::Slots),
            (&told("ialltoall", 8 << 20, &[("OUTBOARD_OFFLOAD", "off")]), telemetry::Choice::Off),
        ] {
            assert!(text.contains(why.why()), "{text}");
        }
    }
}
