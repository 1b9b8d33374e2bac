// SPDX-License-Identifier: BSD-3-Clause
//! Virtual topologies (MPI 5.0, chapter 8).
//!
//! A topology is data that a comm holds (`objects::topology`). Processes exchange only two things: the edges
//! of a distributed graph, and, where ranks may be reordered, the cores on which they run.

use super::comm::{enter, group_of, intracomm};
use super::exchange::{exchange_words, gather_words};
use crate::args::{Array, Handle, In, Out, length};
use crate::process::Guard;
use error::{Class, Result, fail};
use objects::arrange::{ProcessLocality, arrange, matters};
use objects::topology::{Cart, DistGraph, Graph, GraphEdge, ranks};
use objects::{Comm, Context, Topology, constants as c};
use std::sync::Arc;

/// MPI_Topo_test
pub fn topo_test(guard: &mut Guard, comm: Handle, status: Out<i32>) -> Result<()> {
    status.set(match guard.objects.comm(comm)?.topology.as_deref() {
        Some(Topology::Cart(_)) => c::CART,
        Some(Topology::Graph(_)) => c::GRAPH,
        Some(Topology::DistGraph(_)) => c::DIST_GRAPH,
        None => c::UNDEFINED,
    })
}

/// MPI_Cart_create
#[rustfmt::skip]
pub fn cart_create(
    guard: &mut Guard, comm_old: Handle, ndims: i32, dims: In<i32>, periods: In<i32>, reorder: i32,
    comm_cart: Out<Handle>,
) -> Result<()> {
    // If the call fails, the program finds a null handle here.
    comm_cart.set(c::COMM_NULL)?;
    let cart = new_cart(guard, comm_old, ndims, dims, periods)?;
    let order = arranged(guard, comm_old, reorder, cart.size(), |_| Ok(cart.edges()))?;
    enter_ordered(guard, comm_old, cart.size(), order, Topology::Cart(cart), comm_cart)
}

/// MPI_Cart_map: stores the calling process's own rank, or MPI_UNDEFINED if the grid has no place with this
/// number. The call is local, so it cannot learn where the processes run.
#[rustfmt::skip]
pub fn cart_map(
    guard: &mut Guard, comm: Handle, ndims: i32, dims: In<i32>, periods: In<i32>, newrank: Out<i32>,
) -> Result<()> {
    let size = new_cart(guard, comm, ndims, dims, periods)?.size();
    let rank = guard.objects.comm(comm)?.rank;
    newrank.set(if rank < size { rank as i32 } else { c::UNDEFINED })
}

fn new_cart(guard: &Guard, comm: Handle, ndims: i32, dims: In<i32>, periods: In<i32>) -> Result<Cart> {
    let ndims = length(ndims, "ndims")?;
    let cart = Cart::new(&dims.read(ndims)?, &periods.read(ndims)?)?;
    check_fits(guard, comm, cart.size())?;
    Ok(cart)
}

/// Fails if `comm` is an intercommunicator, or if the topology has more places than the comm has processes.
fn check_fits(guard: &Guard, comm: Handle, places: u32) -> Result<()> {
    let old = intracomm(guard, comm)?;
    if places > old.size() {
        fail!(Class::Topology, "the topology has {places} places for the {} processes of {comm}", old.size());
    }
    Ok(())
}

/// MPI_Cart_sub: needs no traffic, because each process can compute the members of its subgrid.
pub fn cart_sub(guard: &mut Guard, comm: Handle, remain_dims: In<i32>, newcomm: Out<Handle>) -> Result<()> {
    newcomm.check()?;
    let cart = cart(guard, comm)?.clone();
    let remain: Vec<bool> = remain_dims.read(cart.dims.len())?.iter().map(|remain| *remain != 0).collect();
    let old = guard.objects.comms.get_mut(comm)?;
    let (sub, members) = cart.sub(old.rank, &remain);
    let context = old.child_context(members[0] as i32);
    let peers: Vec<u32> = members.iter().map(|rank| old.group.peers[*rank as usize]).collect();
    enter_with(guard, comm, context, peers, Topology::Cart(sub), newcomm)
}

/// MPI_Cartdim_get
pub fn cartdim_get(guard: &mut Guard, comm: Handle, ndims: Out<i32>) -> Result<()> {
    ndims.set(cart(guard, comm)?.dims.len() as i32)
}

/// MPI_Cart_get
#[rustfmt::skip]
pub fn cart_get(
    guard: &mut Guard, comm: Handle, maxdims: i32, dims: Array<i32>, periods: Array<i32>, coords: Array<i32>,
) -> Result<()> {
    let cart = cart(guard, comm)?;
    check_capacity(maxdims, cart.dims.len(), "maxdims")?;
    let here = cart.coords(guard.objects.comm(comm)?.rank);
    dims.write(&ints(&cart.dims))?;
    let periodic: Vec<i32> = cart.periods.iter().map(|period| i32::from(*period)).collect();
    periods.write(&periodic)?;
    coords.write(&ints(&here))
}

/// MPI_Cart_rank
pub fn cart_rank(guard: &mut Guard, comm: Handle, coords: In<i32>, rank: Out<i32>) -> Result<()> {
    let cart = cart(guard, comm)?;
    rank.set(cart.rank(&coords.read(cart.dims.len())?)? as i32)
}

/// MPI_Cart_coords
pub fn cart_coords(
    guard: &mut Guard,
    comm: Handle,
    rank: i32,
    maxdims: i32,
    coords: Array<i32>,
) -> Result<()> {
    let cart = cart(guard, comm)?;
    check_capacity(maxdims, cart.dims.len(), "maxdims")?;
    coords.write(&ints(&cart.coords(node(rank, cart.size())?)))
}

/// MPI_Cart_shift
#[rustfmt::skip]
pub fn cart_shift(
    guard: &mut Guard, comm: Handle, direction: i32, disp: i32, rank_source: Out<i32>, rank_dest: Out<i32>,
) -> Result<()> {
    let cart = cart(guard, comm)?;
    let dim = direction as usize;
    if direction < 0 || dim >= cart.dims.len() {
        fail!(Class::Dims, "direction is {direction}, but the grid has {} dimensions", cart.dims.len());
    }
    rank_source.check()?;
    let rank = guard.objects.comm(comm)?.rank;
    let at = |by: i64| cart.neighbor(rank, dim, by).map_or(c::PROC_NULL, |rank| rank as i32);
    rank_dest.set(at(disp.into()))?;
    rank_source.set(at(-i64::from(disp)))
}

/// MPI_Graph_create
#[rustfmt::skip]
pub fn graph_create(
    guard: &mut Guard, comm_old: Handle, nnodes: i32, indx: In<i32>, edges: In<i32>, reorder: i32,
    comm_graph: Out<Handle>,
) -> Result<()> {
    comm_graph.set(c::COMM_NULL)?;
    let graph = new_graph(guard, comm_old, nnodes, indx, edges)?;
    let order = arranged(guard, comm_old, reorder, nnodes as u32, |_| Ok(graph.all_edges()))?;
    enter_ordered(guard, comm_old, nnodes as u32, order, Topology::Graph(graph), comm_graph)
}

/// MPI_Graph_map: stores the calling process's own rank, or MPI_UNDEFINED if the graph has no node with this
/// number.
#[rustfmt::skip]
pub fn graph_map(
    guard: &mut Guard, comm: Handle, nnodes: i32, indx: In<i32>, edges: In<i32>, newrank: Out<i32>,
) -> Result<()> {
    new_graph(guard, comm, nnodes, indx, edges)?;
    let rank = guard.objects.comm(comm)?.rank as i32;
    newrank.set(if rank < nnodes { rank } else { c::UNDEFINED })
}

fn new_graph(guard: &Guard, comm: Handle, nnodes: i32, indx: In<i32>, edges: In<i32>) -> Result<Graph> {
    let index = indx.read(length(nnodes, "nnodes")?)?;
    check_fits(guard, comm, nnodes as u32)?;
    let count = length(index.last().copied().unwrap_or(0), "the last element of indx")?;
    Graph::new(index, &edges.read(count)?)
}

/// MPI_Graphdims_get
pub fn graphdims_get(guard: &mut Guard, comm: Handle, nnodes: Out<i32>, nedges: Out<i32>) -> Result<()> {
    let graph = graph(guard, comm)?;
    nnodes.check()?;
    nedges.set(graph.edges.len() as i32)?;
    nnodes.set(graph.index.len() as i32)
}

/// MPI_Graph_get
#[rustfmt::skip]
pub fn graph_get(
    guard: &mut Guard, comm: Handle, maxindex: i32, maxedges: i32, indx: Array<i32>, edges: Array<i32>,
) -> Result<()> {
    let graph = graph(guard, comm)?;
    check_capacity(maxindex, graph.index.len(), "maxindex")?;
    check_capacity(maxedges, graph.edges.len(), "maxedges")?;
    indx.write(&graph.index)?;
    edges.write(&ints(&graph.edges))
}

/// MPI_Graph_neighbors_count
pub fn graph_neighbors_count(guard: &mut Guard, comm: Handle, rank: i32, nneighbors: Out<i32>) -> Result<()> {
    let graph = graph(guard, comm)?;
    nneighbors.set(graph.neighbors(node(rank, graph.index.len() as u32)?).len() as i32)
}

/// MPI_Graph_neighbors
#[rustfmt::skip]
pub fn graph_neighbors(
    guard: &mut Guard, comm: Handle, rank: i32, maxneighbors: i32, neighbors: Array<i32>,
) -> Result<()> {
    let graph = graph(guard, comm)?;
    let found = graph.neighbors(node(rank, graph.index.len() as u32)?);
    check_capacity(maxneighbors, found.len(), "maxneighbors")?;
    neighbors.write(&ints(found))
}

/// MPI_Dist_graph_create_adjacent
#[rustfmt::skip]
pub fn dist_graph_create_adjacent(
    guard: &mut Guard, comm_old: Handle, indegree: i32, sources: In<i32>, sourceweights: In<i32>,
    outdegree: i32, destinations: In<i32>, destweights: In<i32>, info: Handle, reorder: i32,
    comm_dist_graph: Out<Handle>,
) -> Result<()> {
    comm_dist_graph.check()?;
    guard.objects.info_or_empty(info)?;
    check_fits(guard, comm_old, 0)?;
    let size = guard.objects.comm(comm_old)?.size();
    let (indegree, outdegree) = (length(indegree, "indegree")?, length(outdegree, "outdegree")?);
    let [into, out_of] = [weights(sourceweights, indegree)?, weights(destweights, outdegree)?];
    if into.is_some() != out_of.is_some() {
        fail!(Class::Arg, "only one of sourceweights and destweights is MPI_UNWEIGHTED");
    }
    let graph = DistGraph {
        sources: ranks(&sources.read(indegree)?, size as usize, "sources")?,
        destinations: ranks(&destinations.read(outdegree)?, size as usize, "destinations")?,
        weights: into.zip(out_of),
    };
    let rank = guard.objects.comm(comm_old)?.rank;
    let mut mine = Vec::new();
    for (at, to) in graph.destinations.iter().enumerate() {
        let weight = graph.weights.as_ref().map_or(1, |weights| weights.1[at]);
        mine.push((rank, *to, weight as u64));
    }
    let order = arranged(guard, comm_old, reorder, size, |guard| gather_edges(guard, comm_old, &mine))?;
    let graph = match &order {
        Some(order) => move_to(guard, comm_old, order, &graph)?,
        None => graph,
    };
    enter_ordered(guard, comm_old, size, order, Topology::DistGraph(graph), comm_dist_graph)
}

/// MPI_Dist_graph_create
#[rustfmt::skip]
pub fn dist_graph_create(
    guard: &mut Guard, comm_old: Handle, n: i32, sources: In<i32>, degrees: In<i32>, destinations: In<i32>,
    weights: In<i32>, info: Handle, reorder: i32, comm_dist_graph: Out<Handle>,
) -> Result<()> {
    comm_dist_graph.check()?;
    guard.objects.info_or_empty(info)?;
    check_fits(guard, comm_old, 0)?;
    let size = guard.objects.comm(comm_old)?.size();
    let n = length(n, "n")?;
    let sources = ranks(&sources.read(n)?, size as usize, "sources")?;
    let degrees = degrees.read(n)?;
    let degrees = degrees.into_iter().map(|degree| length(degree, "a degree")).collect::<Result<Vec<_>>>()?;
    let all = degrees.iter().sum();
    let destinations = ranks(&destinations.read(all)?, size as usize, "destinations")?;
    let given = self::weights(weights, all)?;
    let weight = |at: usize| given.as_ref().map_or(1, |weights| weights[at]);
    let repeated = |(source, degree): (&u32, &usize)| std::iter::repeat_n(*source, *degree);
    let from = sources.iter().zip(&degrees).flat_map(repeated);
    let edges: Vec<GraphEdge> =
        from.zip(&destinations).enumerate().map(|(at, (from, to))| (from, *to, weight(at) as u64)).collect();
    let order = arranged(guard, comm_old, reorder, size, |guard| gather_edges(guard, comm_old, &edges))?;
    let graph = deliver(guard, comm_old, order.as_deref(), &edges, given.is_some())?;
    enter_ordered(guard, comm_old, size, order, Topology::DistGraph(graph), comm_dist_graph)
}

/// Reads the weights of `edges` edges. Returns None for MPI_UNWEIGHTED.
fn weights(given: In<i32>, edges: usize) -> Result<Option<Vec<i32>>> {
    if given.is(c::UNWEIGHTED) {
        return Ok(None);
    }
    if given.is(c::WEIGHTS_EMPTY) && edges > 0 {
        fail!(Class::Arg, "MPI_WEIGHTS_EMPTY is given for {edges} edges");
    }
    let weights = given.read(edges)?;
    if let Some(negative) = weights.iter().find(|weight| **weight < 0) {
        fail!(Class::Arg, "the weight {negative} is negative");
    }
    Ok(Some(weights))
}

/// MPI_Dist_graph_neighbors_count
#[rustfmt::skip]
pub fn dist_graph_neighbors_count(
    guard: &mut Guard, comm: Handle, indegree: Out<i32>, outdegree: Out<i32>, weighted: Out<i32>,
) -> Result<()> {
    let graph = dist_graph(guard, comm)?;
    indegree.check()?;
    outdegree.check()?;
    weighted.set(i32::from(graph.weights.is_some()))?;
    indegree.set(graph.sources.len() as i32)?;
    outdegree.set(graph.destinations.len() as i32)
}

/// MPI_Dist_graph_neighbors: stores as much of each list of neighbours as the program's array has room for.
#[rustfmt::skip]
pub fn dist_graph_neighbors(
    guard: &mut Guard, comm: Handle, maxindegree: i32, sources: Array<i32>, sourceweights: Array<i32>,
    maxoutdegree: i32, destinations: Array<i32>, destweights: Array<i32>,
) -> Result<()> {
    let graph = dist_graph(guard, comm)?;
    let into = length(maxindegree, "maxindegree")?.min(graph.sources.len());
    let out_of = length(maxoutdegree, "maxoutdegree")?.min(graph.destinations.len());
    sources.write(&ints(&graph.sources[..into]))?;
    destinations.write(&ints(&graph.destinations[..out_of]))?;
    let wanted = |weights: Array<i32>| !weights.is(c::UNWEIGHTED) && !weights.is(c::WEIGHTS_EMPTY);
    if let Some((of_sources, of_destinations)) = &graph.weights {
        if wanted(sourceweights) {
            sourceweights.write(&of_sources[..into])?;
        }
        if wanted(destweights) {
            destweights.write(&of_destinations[..out_of])?;
        }
    }
    Ok(())
}

/// Makes a comm of those processes of `parent` that `order` lists, or, without an order, of its first
/// `places` processes. The other processes get MPI_COMM_NULL.
#[rustfmt::skip]
fn enter_ordered(
    guard: &mut Guard, parent: Handle, places: u32, order: Option<Vec<u32>>, topology: Topology,
    newcomm: Out<Handle>,
) -> Result<()> {
    let old = guard.objects.comms.get_mut(parent)?;
    let context = old.child_context(0);
    let order = order.unwrap_or_else(|| (0..places).collect());
    let peers: Vec<u32> = order.iter().map(|rank| old.group.peers[*rank as usize]).collect();
    if !peers.contains(&guard.objects.me) {
        return newcomm.set(c::COMM_NULL);
    }
    enter_with(guard, parent, context, peers, topology, newcomm)
}

#[rustfmt::skip]
fn enter_with(
    guard: &mut Guard, parent: Handle, context: Context, peers: Vec<u32>, topology: Topology,
    newcomm: Out<Handle>,
) -> Result<()> {
    let mut new = Comm::new(context, group_of(guard, peers), "");
    new.topology = Some(Arc::new(topology));
    enter(guard, parent, new, newcomm)
}

/// Returns, for each place of the topology, the rank of the process that takes it. Returns None if the ranks
/// keep their order: reordering is not allowed, some process is not bound to a core, or no order brings
/// neighbours closer together. Collective if the program allows reordering.
#[rustfmt::skip]
fn arranged(
    guard: &mut Guard, comm: Handle, reorder: i32, places: u32,
    edges: impl FnOnce(&mut Guard) -> Result<Vec<GraphEdge>>,
) -> Result<Option<Vec<u32>>> {
    if reorder == 0 || places < 2 {
        return Ok(None);
    }
    let words = gather_words(guard, comm, &core().unwrap_or([-1; 3]))?;
    let place = |words: &[i64]| -> ProcessLocality { std::array::from_fn(|level| words[level] as u32) };
    let known: Vec<ProcessLocality> = words.chunks_exact(3).take(places as usize).map(place).collect();
    if words.contains(&-1) || !matters(&known) {
        return Ok(None);
    }
    Ok(arrange(&known, &edges(guard)?))
}

/// Returns the numbers of the package, the cache and the core to which this process is bound, or None if it
/// is not bound to one core. Where the cores of a package share no cache, the package stands for the cache.
fn core() -> Option<[i64; 3]> {
    let cpus = sys::cpu::allowed().ok()?;
    let within = |kind| match sys::topology::locality(kind, &cpus) {
        Some(sys::topology::Locality::Within(first)) => Some(first as i64),
        _ => None,
    };
    let package = within("Package")?;
    Some([package, within("L3Cache").unwrap_or(package), within("Core")?])
}

/// Sends the edges that this process has specified to all members, and returns the edges of all members.
/// Collective.
fn gather_edges(guard: &mut Guard, comm: Handle, mine: &[GraphEdge]) -> Result<Vec<GraphEdge>> {
    let words: Vec<i64> =
        mine.iter().flat_map(|edge| [edge.0.into(), edge.1.into(), edge.2 as i64]).collect();
    let size = guard.objects.comm(comm)?.size() as usize;
    let all = exchange_words(guard, comm, &vec![words; size])?.concat();
    Ok(all.chunks_exact(3).map(|edge| (edge[0] as u32, edge[1] as u32, edge[2] as u64)).collect())
}

/// Sends each edge to the processes at its two ends, and returns the edges that begin or end at this process.
/// If two processes have several edges between them, both get the edges in the same order. Collective.
#[rustfmt::skip]
fn deliver(
    guard: &mut Guard, comm: Handle, order: Option<&[u32]>, edges: &[GraphEdge], weighted: bool,
) -> Result<DistGraph> {
    let size = guard.objects.comm(comm)?.size() as usize;
    let mut outgoing = vec![Vec::new(); size];
    let process = |node: u32| order.map_or(node, |order| order[node as usize]) as usize;
    for (from, to, weight) in edges {
        outgoing[process(*to)].extend([0, i64::from(*from), *weight as i64]);
        outgoing[process(*from)].extend([1, i64::from(*to), *weight as i64]);
    }
    let mut graph = DistGraph::default();
    let (mut into, mut out_of) = (Vec::new(), Vec::new());
    for words in exchange_words(guard, comm, &outgoing)?.concat().chunks_exact(3) {
        let (node, weight) = (words[1] as u32, words[2] as i32);
        let (nodes, weights) = match words[0] {
            0 => (&mut graph.sources, &mut into),
            _ => (&mut graph.destinations, &mut out_of),
        };
        nodes.push(node);
        weights.push(weight);
    }
    graph.weights = weighted.then_some((into, out_of));
    Ok(graph)
}

/// Sends the neighbours and weights `graph` of this process's place to the process that gets this place.
/// Returns the neighbours and weights of the place that this process gets. Collective.
fn move_to(guard: &mut Guard, comm: Handle, order: &[u32], graph: &DistGraph) -> Result<DistGraph> {
    let rank = guard.objects.comm(comm)?.rank;
    let (into, out_of) = graph.weights.clone().unwrap_or_default();
    let mut words = vec![graph.sources.len() as i64, graph.destinations.len() as i64];
    words.extend(graph.sources.iter().chain(&graph.destinations).map(|rank| i64::from(*rank)));
    words.extend(into.iter().chain(&out_of).map(|weight| i64::from(*weight)));
    let mut outgoing = vec![Vec::new(); order.len()];
    outgoing[order[rank as usize] as usize] = words;
    let words = exchange_words(guard, comm, &outgoing)?.concat();
    let (sources, destinations) = (words[0] as usize, words[1] as usize);
    let mut rest = words[2..].iter().map(|word| *word as i32);
    let mut take = |many: usize| -> Vec<i32> { rest.by_ref().take(many).collect() };
    let (from, to) = (take(sources), take(destinations));
    let weights = graph.weights.is_some().then(|| (take(sources), take(destinations)));
    let nodes = |list: Vec<i32>| list.into_iter().map(|rank| rank as u32).collect();
    Ok(DistGraph { sources: nodes(from), destinations: nodes(to), weights })
}

fn topology<'a>(guard: &'a Guard, comm: Handle, kind: &str) -> Result<&'a Topology> {
    match guard.objects.comm(comm)?.topology.as_deref() {
        Some(topology) => Ok(topology),
        None => fail!(Class::Topology, "{comm} has no topology; this call needs a {kind} one"),
    }
}

fn cart(guard: &Guard, comm: Handle) -> Result<&Cart> {
    match topology(guard, comm, "Cartesian")? {
        Topology::Cart(cart) => Ok(cart),
        _ => fail!(Class::Topology, "the topology of {comm} is not Cartesian"),
    }
}

fn graph(guard: &Guard, comm: Handle) -> Result<&Graph> {
    match topology(guard, comm, "graph")? {
        Topology::Graph(graph) => Ok(graph),
        _ => fail!(Class::Topology, "the topology of {comm} is not a graph"),
    }
}

fn dist_graph(guard: &Guard, comm: Handle) -> Result<&DistGraph> {
    match topology(guard, comm, "distributed graph")? {
        Topology::DistGraph(graph) => Ok(graph),
        _ => fail!(Class::Topology, "the topology of {comm} is not a distributed graph"),
    }
}

/// Returns `rank` as the number of a place in the topology, or MPI_ERR_RANK if there are only `size` places.
fn node(rank: i32, size: u32) -> Result<u32> {
    match u32::try_from(rank) {
        Ok(node) if node < size => Ok(node),
        _ => fail!(Class::Rank, "rank is {rank}, but the topology has {size} processes"),
    }
}

/// Returns MPI_ERR_ARG if the program's array, with room for `given` elements, has no room for `needed`.
fn check_capacity(given: i32, needed: usize, name: &str) -> Result<()> {
    if length(given, name)? < needed {
        fail!(Class::Arg, "{name} is {given}, but there are {needed} elements");
    }
    Ok(())
}

fn ints(ranks: &[u32]) -> Vec<i32> {
    ranks.iter().map(|rank| *rank as i32).collect()
}

/// MPI_Dims_create: fills in the elements of `dims` that are 0.
pub fn dims_create(_: &mut Guard, nnodes: i32, ndims: i32, dims: Array<i32>) -> Result<()> {
    if nnodes < 1 {
        fail!(Class::Arg, "nnodes is {nnodes}, which is not positive");
    }
    let given = dims.read(length(ndims, "ndims")?)?;
    if let Some(dim) = given.iter().position(|extent| *extent < 0) {
        fail!(Class::Dims, "dims[{dim}] is {}, which is negative", given[dim]);
    }
    let fixed =
        given.iter().filter(|extent| **extent > 0).fold(1i64, |all, dim| all.saturating_mul((*dim).into()));
    if i64::from(nnodes) % fixed != 0 {
        fail!(
            Class::Dims,
            "{nnodes} processes cannot be divided by the given dimensions, whose product is {fixed}"
        );
    }
    let rest = (i64::from(nnodes) / fixed) as u64;
    let free = given.iter().filter(|extent| **extent == 0).count();
    if free == 0 && rest != 1 {
        fail!(Class::Dims, "the given dimensions have {fixed} places, not {nnodes}");
    }
    let mut found = balanced(rest, free).into_iter();
    for (dim, extent) in given.iter().enumerate() {
        if *extent == 0 {
            dims.set(dim, found.next().expect("as many as free dimensions") as i32)?;
        }
    }
    Ok(())
}

/// Divides `number` into `parts` factors, the largest first, as close to each other as possible (MPI 5.0,
/// section 8.5.2). The largest and the smallest factor differ as little as possible. Among such divisions,
/// the smallest factor is as large as possible, then the second smallest, and so on.
fn balanced(number: u64, parts: usize) -> Vec<u64> {
    let small = (1..).take_while(|d| d * d <= number).filter(|d| number.is_multiple_of(*d));
    let mut divisors: Vec<u64> = small.flat_map(|d| [d, number / d]).collect();
    divisors.sort_unstable_by_key(|d| std::cmp::Reverse(*d));
    divisors.dedup();
    // At most 31 factors are above 1; the others are ones.
    let factors = parts.min(31);
    let mut found = Vec::new();
    let mut spread = Some(number);
    while let Some(closer) = spread.and_then(|spread| rising(number, factors, None, spread, &divisors)) {
        // The next solution must be strictly closer.
        spread = closer.last().zip(closer.first()).and_then(|(last, first)| (last - first).checked_sub(1));
        found = closer;
    }
    found.reverse();
    found.resize(parts, 1);
    found
}

/// Finds `parts` factors of `number` in rising order. All factors lie within `range`. If `range` is None, no
/// factor is larger than the first plus `spread`. The first factor is as large as possible, then the second,
/// and so on. Returns None if there are no such factors.
fn rising(
    number: u64,
    parts: usize,
    range: Option<(u64, u64)>,
    spread: u64,
    divisors: &[u64],
) -> Option<Vec<u64>> {
    let (least, most) = range.unwrap_or((1, number));
    let power = |factor: u64| factor.checked_pow(parts as u32).unwrap_or(u64::MAX);
    if parts <= 1 {
        let fits = if parts == 0 { number == 1 } else { (least..=most).contains(&number) };
        return fits.then(|| vec![number; parts]);
    }
    if power(most) < number {
        return None;
    }
    let firsts = divisors.iter().copied().skip_while(|d| power(*d) > number).take_while(|d| *d >= least);
    firsts.filter(|d| number.is_multiple_of(*d)).find_map(|first| {
        let within = (first, range.map_or(first + spread, |_| most));
        let rest = rising(number / first, parts - 1, Some(within), spread, divisors)?;
        Some([vec![first], rest].concat())
    })
}

#[cfg(test)]
mod tests {
    use super::balanced;

    #[test]
    fn factors_are_balanced_and_fall() {
        assert_eq!(balanced(72, 2), [9, 8]);
        assert_eq!(balanced(6, 3), [3, 2, 1]);
        assert_eq!(balanced(27, 3), [3, 3, 3]);
        assert_eq!(balanced(7, 2), [7, 1]);
        assert_eq!(balanced(1, 2), [1, 1]);
        assert_eq!(balanced(1 << 30, 3), [1 << 10; 3]);
        assert_eq!(balanced(7488, 3), [26, 18, 16]);
        assert_eq!(balanced(5040, 3), [21, 16, 15]);
        assert_eq!(balanced(98784, 5), [14, 14, 9, 8, 7]);
        assert_eq!((balanced(1, 0), balanced(12, 1)), (vec![], vec![12]));
        // Many divisors, many parts, and large primes: the search must stay short.
        for number in [735_134_400, 2_095_133_040, 2_147_483_647] {
            for parts in 1..12 {
                assert_eq!(balanced(number, parts).iter().product::<u64>(), number);
            }
        }
        for number in 1..500 {
            for parts in 1..5 {
                let found = balanced(number, parts);
                assert_eq!(found.iter().product::<u64>(), number);
                assert!(found.is_sorted_by(|a, b| a >= b));
            }
        }
    }
}
