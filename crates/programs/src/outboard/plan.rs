// SPDX-License-Identifier: BSD-3-Clause
//! `outboard plan` and `outboard simulate`: a rank's schedule, and the time of a collective on many ranks.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use clap::Args;
use coll::Placement;
use coll::carrier::{
    self, Asked, Carrier, Facts as CallFacts, Library, Policy, Slots, Space, Terms, Way, Why, choose, execute,
};
use schedule::simulate::{Network, Proxies, Report, simulate};
use schedule::{ALGORITHMS, Algorithm, Collective, Facts, Growth, NodeMap, Order, Params};
use telemetry::Unit;
use telemetry::summary::short;

/// Print one rank's schedule of a collective, or what is chosen for a size.
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
    /// Print what is chosen for this size: executor and algorithm. The size is that of the vector, or of the
    /// block that one rank sends to one other.
    #[arg(short, long, value_name = "BYTES", requires = "collective")]
    bytes: Option<String>,
    /// Assume MPI_IN_PLACE.
    #[arg(long)]
    in_place: bool,
    /// Assume an operator that is not commutative.
    #[arg(long)]
    ordered: bool,
    /// Print the protocol of messages between two ranks of a node, by length.
    #[arg(long, conflicts_with_all = ["collective", "list", "bytes"])]
    p2p: bool,
}

/// Simulate collectives, and print time and memory by the number of ranks.
#[derive(Args)]
pub struct Simulate {
    #[command(flatten)]
    which: Which,
    /// The numbers of ranks, such as 4,64,1000. Default: powers of ten, as far as the algorithm allows.
    #[arg(short = 'n', long, value_name = "LIST")]
    ranks: Option<String>,
    /// The bytes of the vector, or of the block that one rank sends to one other.
    #[arg(short, long, value_name = "BYTES", default_value = "8,64KiB")]
    bytes: String,
    /// The numbers of nodes, such as 2,100,10000. Prints the time of what is chosen for the ranks of so many
    /// nodes, and what is chosen without a map of the nodes.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["ranks", "algorithm"])]
    nodes: Option<String>,
    /// The number of ranks on each of these nodes.
    #[arg(long, value_name = "COUNT", default_value_t = 8, requires = "nodes")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    per_node: u32,
    /// Print the time of computation and communication of equal length, when this many proxies of each node
    /// carry the communication out, and that of ranks which communicate inside MPI calls only.
    #[arg(long, value_name = "COUNT", requires = "nodes")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    proxies: Option<u32>,
    /// The proxies run on a data processing unit of the node.
    #[arg(long, requires = "proxies")]
    dpu: bool,
    /// Each rank starts at a random time before this, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 0)]
    skew_us: u64,
    /// The seed of those random times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Which {
    /// The collective, such as allreduce. Default: all.
    collective: Option<String>,
    /// One of its algorithms, such as ring. Default: all.
    algorithm: Option<String>,
}

/// A collective as settings (reduce_scatter), MPI (MPI_Reduce_scatter) and the tables (reduce-scatter) write
/// it, and whether it is the nonblocking one.
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
    /// The algorithms that the arguments name, at least one.
    fn algorithms(&self) -> Result<Vec<&'static Facts>, String> {
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
    /// The steps, or the list of algorithms.
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
        let right = |facts: &Facts| facts.algorithm.is_right(!self.ordered, params.nodes.as_deref());
        for facts in algorithms {
            writeln!(text, "{} {}: {}", facts.collective.name(), facts.name, facts.summary)
                .expect("a String takes all");
            match right(facts) {
                false => writeln!(text, "  not for operators that are not commutative"),
                true => writeln!(text, "{}", facts.algorithm.plan(&params)),
            }
            .expect("a String takes all");
        }
        Ok(text)
    }
}

impl Plan {
    /// Where the ranks are.
    fn placement(&self) -> Placement {
        let make = if self.round_robin { NodeMap::round_robin } else { NodeMap::by_node };
        Placement::of(make(self.ranks, self.nodes.min(self.ranks)))
    }

    /// What is chosen for a call of this size, with proxies and without.
    fn choice(
        &self,
        (collective, nonblocking): (Collective, bool),
        bytes: u64,
        settings: &settings::Settings,
    ) -> Result<String, String> {
        let choice = coll::Choice::from_settings(settings).map_err(|error| error.to_string())?;
        let placement = self.placement();
        let algorithm = choice.of(collective, bytes, self.ranks, !self.ordered, &placement);
        let policy = Policy::new(settings, &choice);
        let way = if nonblocking { Way::Nonblocking } else { Way::Blocking };
        let (members, has_nodes) = (self.ranks, self.nodes > 1);
        let asked = Asked { collective, bytes, members, way, everybody: true, imaged: false };
        let library = self.library(collective, settings)?;
        let by = self.by(algorithm, choice.is_overruled(collective));
        // The mean bytes that a rank sends. The executor compares these, plus reductions and copies.
        let simulated = self.ranks <= RANKS_WEIGHED;
        let report = || simulate(algorithm, self.ranks, bytes, placement.map(), &Network::default(), 1);
        let moved = simulated.then(|| report().message_bytes / u64::from(self.ranks));
        let terms = Terms {
            setting: policy.offload,
            start: carrier::schedule::offload(&policy, way),
            bytes: moved.unwrap_or(u64::MAX),
            bytes_min: policy.offload_bytes_min,
            has_steps: true,
            is_reached: !has_nodes
                || carrier::schedule::fetched_bytes_min(&policy, way, has_nodes, || asked) == 0,
        };
        let told = |has_proxies: bool| {
            // Members on several nodes share no slots, and those whose proxies take work no queue.
            let is_served = has_proxies && policy.offload != coll::Offload::Off;
            let is_refused = has_nodes || nonblocking && is_served;
            let slots = if is_refused { Slots::Refused } else { Slots::Attached(asked.moves(Space::FULL)) };
            let facts = CallFacts { policy: &policy, library, on_devices: false, slots };
            let (carrier, why) = choose(&asked, &facts);
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
        let nodes = if has_nodes { format!(" of {} nodes", self.nodes) } else { String::new() };
        let head = format!("{name} of {} on {} ranks{nodes}\n", short(bytes, Unit::Bytes), self.ranks);
        let (served, alone) = (told(true), told(false));
        if served == alone {
            return Ok(head + &format!("  with proxies and without: {alone}\n"));
        }
        Ok(head + &format!("  with proxies:    {served}\n  without proxies: {alone}\n"))
    }

    /// The schedule by an algorithm, in words.
    fn by(&self, algorithm: Algorithm, is_overruled: bool) -> String {
        let facts = algorithm.facts();
        let why = if is_overruled { "as the setting says" } else { "by the table" };
        let is_own = facts.collective.reduces() && facts.order != Order::InRanks;
        let order = if is_own { "; it combines in an order of its own" } else { "" };
        format!("a schedule, algorithm {} ({why}{order})", facts.name)
    }

    /// The library that OUTBOARD_CCL names, for a call by an operator that it has.
    fn library(
        &self,
        collective: Collective,
        settings: &settings::Settings,
    ) -> Result<Option<Library>, String> {
        if settings.ccl == "off" {
            return Ok(None);
        }
        let tuning = crate::tables::find(&settings.tuning)?.tuning;
        let measured = tuning.library_bytes_min(&settings.ccl, collective.name(), self.ranks);
        Ok(Some(Library { measured, has_operator: true, may_join: true }))
    }
}

/// The protocols of messages, with the settings and the table of this machine.
fn protocols() -> Result<String, String> {
    let settings = settings::load().map_err(|error| error.to_string())?;
    let tuning = boot::overruled(crate::tables::find(&settings.tuning)?.tuning, settings);
    let mut text = String::new();
    for p2p::Record { name, bytes_min, bytes_max, moves, needs } in
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

/// Most nodes, and about as many steps of all ranks as are simulated in some seconds.
const NODES_MAX: u32 = 100_000;
const STEPS_MAX: u64 = 30_000_000;

/// What a rank needs to hand an operation over (docs/measured/offload.md: 3 to 5 us), in picoseconds.
const HANDOVER_PS: u64 = 4_000_000;

/// The most ranks that are simulated to find what one of them sends.
const RANKS_WEIGHED: u32 = 4096;

impl Simulate {
    /// Prints a row as soon as it is known; large ones take seconds.
    pub fn run(&self) -> Result<String, String> {
        let network = Network { skew_ps: self.skew_us.saturating_mul(1_000_000), ..Network::default() };
        let sizes: Vec<u64> = self.bytes.split(',').map(settings::bytes).collect::<Result<_, _>>()?;
        let given = self.ranks.as_deref().map(settings::list).transpose()?;
        let mut out = std::io::stdout();
        if let Some(nodes) = &self.nodes {
            for row in self.over_nodes(settings::list(nodes)?, &sizes, &network)? {
                if writeln!(out, "{}", row?).and_then(|()| out.flush()).is_err() {
                    break;
                }
            }
            return Ok(String::new());
        }
        // A reader that closes the pipe is no failure, but ends the work.
        if writeln!(out, "{}", Report::HEADER).is_err() {
            return Ok(String::new());
        }
        for facts in self.which.algorithms()? {
            let largest = if facts.growth == Growth::Logarithmic { 1_000_000 } else { 10_000 };
            let decades = std::iter::successors(Some(10u64), |n| Some(n * 10)).take_while(|n| *n <= largest);
            for ranks in given.clone().unwrap_or_else(|| decades.collect()) {
                let ranks = u32::try_from(ranks).ok().filter(|ranks| (1..=1 << 24).contains(ranks));
                let ranks = ranks.ok_or("1 to 2^24 ranks can be simulated")?;
                for &bytes in &sizes {
                    let report = simulate(facts.algorithm, ranks, bytes, None, &network, self.seed);
                    if writeln!(out, "{report}").and_then(|()| out.flush()).is_err() {
                        return Ok(String::new());
                    }
                }
            }
        }
        Ok(String::new())
    }

    /// The lines of the table for nodes.
    fn over_nodes(
        &self,
        nodes: Vec<u64>,
        sizes: &[u64],
        network: &Network,
    ) -> Result<impl Iterator<Item = Result<String, String>>, String> {
        let settings = settings::load().map_err(|error| error.to_string())?;
        let choice = coll::Choice::from_settings(settings).map_err(|error| error.to_string())?;
        let collectives: Vec<Collective> = match &self.which.collective {
            Some(name) => vec![collective(name)?.0],
            None => Collective::ALL.to_vec(),
        };
        let calls = collectives.into_iter().flat_map(move |collective| {
            let nodes = nodes.clone();
            nodes
                .into_iter()
                .flat_map(move |nodes| sizes.iter().map(move |&bytes| (collective, nodes, bytes)))
        });
        let row = move |(collective, nodes, bytes)| {
            let nodes = u32::try_from(nodes).ok().filter(|nodes| (1..=NODES_MAX).contains(nodes));
            let nodes = nodes.ok_or(format!("1 to {NODES_MAX} nodes can be simulated"))?;
            let map = Arc::new(NodeMap::by_node(nodes * self.per_node, nodes));
            let call = Call { choice: choice.clone(), collective, bytes, map, network, seed: self.seed };
            let head =
                format!("{:<21} {nodes:>6} {:>7} {bytes:>9}", collective.name(), nodes * self.per_node);
            Ok(match self.proxies {
                Some(per_node) => head + &call.overlap(Proxies { per_node, is_dpu: self.dpu }),
                None => head + &call.gain(),
            })
        };
        let columns = if self.proxies.is_some() { Call::OVERLAP } else { Call::GAIN };
        let header = format!("collective             nodes   ranks     bytes{columns}");
        Ok(std::iter::once(Ok(header)).chain(calls.map(row)))
    }
}

/// A call on many nodes.
struct Call<'a> {
    choice: coll::Choice,
    collective: Collective,
    bytes: u64,
    map: Arc<NodeMap>,
    network: &'a Network,
    seed: u64,
}

impl Call<'_> {
    const GAIN: &'static str = "  over nodes        time us  without a map     time us   gain";
    const OVERLAP: &'static str = "  algorithm        ranks us  proxies us    without us   with us   less";

    /// What is chosen with a map of the nodes or without.
    fn algorithm(&self, is_known: bool) -> Algorithm {
        let known = if is_known { Placement::of((*self.map).clone()) } else { Placement::Apart };
        self.choice.of(self.collective, self.bytes, self.map.ranks(), true, &known)
    }

    /// In picoseconds; nothing: it would take minutes to find out.
    fn time(&self, algorithm: Algorithm, network: &Network) -> Option<u64> {
        let ranks = u64::from(self.map.ranks());
        let is_over = algorithm.facts().name.starts_with("nodes");
        let peers = if is_over { self.map.nodes().into() } else { ranks };
        let feasible = algorithm.facts().growth == Growth::Logarithmic || ranks * peers <= STEPS_MAX;
        feasible.then(|| {
            simulate(algorithm, self.map.ranks(), self.bytes, Some(&self.map), network, self.seed).time_ps
        })
    }

    /// What is chosen with the map and without, and their times.
    fn gain(&self) -> String {
        let run = |is_known| {
            let algorithm = self.algorithm(is_known);
            (algorithm.name(), self.time(algorithm, self.network))
        };
        let (over, flat) = (run(true), run(false));
        let gain = over.1.zip(flat.1).map(|(over, flat)| flat as f64 / over.max(1) as f64);
        format!(
            "  {:<14} {:>10}  {:<14} {:>10} {:>6}",
            over.0,
            us(over.1),
            flat.0,
            us(flat.1),
            gain.map_or("-".into(), |gain| format!("{gain:.2}"))
        )
    }

    /// The times of the communication by ranks and by proxies, and of computation that takes as long as the
    /// communication by ranks beside it: ranks communicate after it, proxies meanwhile.
    fn overlap(&self, proxies: Proxies) -> String {
        let algorithm = self.algorithm(true);
        let ranks = self.time(algorithm, self.network);
        let proxies = self.time(algorithm, &Network { proxies: Some(proxies), ..self.network.clone() });
        let without = ranks.map(|time| 2 * time);
        let with = ranks.zip(proxies).map(|(ranks, proxies)| HANDOVER_PS + ranks.max(proxies));
        let less = with.zip(without).map(|(with, without)| 1.0 - with as f64 / without.max(1) as f64);
        format!(
            "  {:<14} {:>10} {:>11} {:>13} {:>9} {:>6}",
            algorithm.name(),
            us(ranks),
            us(proxies),
            us(without),
            us(with),
            less.map_or("-".into(), |less| format!("{:.0} %", less * 100.0))
        )
    }
}

fn us(time: Option<u64>) -> String {
    time.map_or("-".into(), |time| format!("{:.1}", time as f64 / 1e6))
}

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
            p2p: false,
        };
        let text = plan.run().unwrap();
        assert!(text.contains("rank 3 of 8") && text.matches("recv").count() == 3, "{text}");
        assert!(Plan { rank: 8, ..plan }.run().unwrap_err().contains("below 8"));
    }

    #[test]
    fn what_proxies_save_is_told() {
        let network = Network::default();
        let map = Arc::new(NodeMap::by_node(16, 4));
        let choice = coll::Choice::from_settings(&settings::parse(&[]).unwrap()).unwrap();
        let call = Call {
            choice,
            collective: Collective::Alltoall,
            bytes: 64 << 10,
            map,
            network: &network,
            seed: 1,
        };
        let told = |is_dpu| {
            let text = call.overlap(Proxies { per_node: 2, is_dpu });
            let words: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            <[f64; 5]>::try_from(words).unwrap()
        };
        let [ranks, proxies, without, with, less] = told(false);
        assert!((without - 2.0 * ranks).abs() < 0.2 && proxies >= ranks, "{:?}", told(false));
        assert!((with - proxies - 4.0).abs() < 0.2, "what handing over costs");
        assert!((less - 100.0 * (1.0 - with / without)).abs() < 1.0);
        assert!(told(true)[1] > proxies, "a DPU is slower");
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
                in_place: false,
                ordered: false,
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
        // It says what `outboard explain` says of such calls.
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
