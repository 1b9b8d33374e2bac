// SPDX-License-Identifier: BSD-3-Clause
//! Virtual topologies as data (MPI 5.0, chapter 8): grids and graphs that say which ranks are neighbours.

use error::{Class, Result, fail};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A Cartesian grid, which MPI_Cart_create makes.
    Cart(Cart),
    /// A graph that each process knows as a whole. MPI_Graph_create makes it.
    Graph(Graph),
    /// A graph of which each process knows its own edges. MPI_Dist_graph_create or
    /// MPI_Dist_graph_create_adjacent makes it.
    DistGraph(DistGraph),
}

/// The ranks of neighbours. None stands for MPI_PROC_NULL: this neighbour would lie outside the grid.
pub type NeighborList = Vec<Option<u32>>;

impl Topology {
    /// Returns the ranks to which `rank` sends in neighborhood collectives, and the ranks from which it
    /// receives, in the order of the blocks in its buffers (MPI 5.0, section 8.6).
    pub fn neighbors(&self, rank: u32) -> (NeighborList, NeighborList) {
        let known = |ranks: &[u32]| ranks.iter().copied().map(Some).collect();
        match self {
            Topology::Cart(cart) => {
                let both = |dim| [cart.neighbor(rank, dim, -1), cart.neighbor(rank, dim, 1)];
                let list: NeighborList = (0..cart.dims.len()).flat_map(both).collect();
                (list.clone(), list)
            }
            Topology::Graph(graph) => (known(graph.neighbors(rank)), known(graph.neighbors(rank))),
            Topology::DistGraph(graph) => (known(&graph.destinations), known(&graph.sources)),
        }
    }
}

/// A grid of ranks, in row-major order. In a periodic dimension it wraps around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cart {
    pub dims: Vec<u32>,
    /// For each dimension, whether it wraps around, so that its last place is next to its first.
    pub periods: Vec<bool>,
}

impl Cart {
    /// Makes a grid with `dims[i]` places in dimension i, which wraps around unless `periods[i]` is 0.
    /// Returns MPI_ERR_DIMS unless all `dims` are positive.
    pub fn new(dims: &[i32], periods: &[i32]) -> Result<Cart> {
        if let Some(dim) = dims.iter().position(|extent| *extent < 1) {
            fail!(Class::Dims, "dims[{dim}] is {}, which is not positive", dims[dim]);
        }
        let size = dims.iter().try_fold(1i32, |size, extent| size.checked_mul(*extent));
        if size.is_none() {
            fail!(Class::Dims, "a grid of dims {dims:?} has more than 2^31 places");
        }
        let dims = dims.iter().map(|extent| *extent as u32).collect();
        Ok(Cart { dims, periods: periods.iter().map(|period| *period != 0).collect() })
    }

    /// Returns how many places the grid has, each for one rank.
    pub fn size(&self) -> u32 {
        self.dims.iter().product()
    }

    /// Returns the coordinates of a rank in the grid.
    pub fn coords(&self, rank: u32) -> Vec<u32> {
        let mut rest = rank;
        let mut coords: Vec<u32> = self
            .dims
            .iter()
            .rev()
            .map(|extent| {
                let coord = rest % extent;
                rest /= extent;
                coord
            })
            .collect();
        coords.reverse();
        coords
    }

    /// Returns the rank at the coordinates `coords`. Returns MPI_ERR_ARG if a coordinate lies outside a
    /// dimension that does not wrap around.
    pub fn rank(&self, coords: &[i32]) -> Result<u32> {
        let mut rank = 0;
        for (dim, (coord, extent)) in coords.iter().zip(&self.dims).enumerate() {
            let inside = i64::from(*coord).rem_euclid(i64::from(*extent)) as u32;
            if i64::from(*coord) != i64::from(inside) && !self.periods[dim] {
                fail!(
                    Class::Arg,
                    "coords[{dim}] is {coord}, but the dimension is not periodic and has {extent} places"
                );
            }
            rank = rank * extent + inside;
        }
        Ok(rank)
    }

    /// Returns the rank that is `by` steps away from `rank` in dimension `dim`, or None outside the grid.
    pub fn neighbor(&self, rank: u32, dim: usize, by: i64) -> Option<u32> {
        let stride: u32 = self.dims[dim + 1..].iter().product();
        let extent = self.dims[dim];
        let here = rank / stride % extent;
        let there = i64::from(here) + by;
        let inside = there.rem_euclid(i64::from(extent)) as u32;
        let reached = self.periods[dim] || there == i64::from(inside);
        reached.then_some(rank - here * stride + inside * stride)
    }

    /// Makes the grid that keeps the dimensions for which `remain` is true, as MPI_Cart_sub does. Returns
    /// this new grid, and the ranks of the old grid that are in the same new grid as `rank`, in order.
    pub fn sub(&self, rank: u32, remain: &[bool]) -> (Cart, Vec<u32>) {
        let kept = |dim: &usize| remain[*dim];
        let dims = || (0..self.dims.len()).filter(kept);
        let sub = Cart {
            dims: dims().map(|dim| self.dims[dim]).collect(),
            periods: dims().map(|dim| self.periods[dim]).collect(),
        };
        let here = self.coords(rank);
        let mine = |other: &u32| {
            self.coords(*other)
                .iter()
                .zip(&here)
                .zip(remain)
                .all(|((there, here), remain)| *remain || there == here)
        };
        (sub, (0..self.size()).filter(mine).collect())
    }

    /// Lists the pairs of neighbours in the grid, each pair once, as edges with weight 1.
    pub fn edges(&self) -> Vec<GraphEdge> {
        let next =
            |rank| (0..self.dims.len()).filter_map(move |dim| Some((rank, self.neighbor(rank, dim, 1)?, 1)));
        (0..self.size()).flat_map(next).collect()
    }
}

/// An edge of a graph: the rank from which it leads, the rank to which it leads, and its weight.
pub type GraphEdge = (u32, u32, u64);

/// A graph that each process knows as a whole (MPI_Graph_create).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// For each node, the index in `edges` behind its last neighbour, where the next node's neighbours begin.
    pub index: Vec<i32>,
    /// The neighbours of all nodes, node after node.
    pub edges: Vec<u32>,
}

impl Graph {
    /// Makes a graph from the arguments of MPI_Graph_create. Returns MPI_ERR_ARG if `index` decreases, or if
    /// an edge leads to a node that does not exist.
    pub fn new(index: Vec<i32>, edges: &[i32]) -> Result<Graph> {
        let nodes = index.len();
        if index.first().is_some_and(|first| *first < 0) || !index.is_sorted() {
            fail!(Class::Arg, "indx must not fall: it counts the edges of the nodes up to each");
        }
        Ok(Graph { edges: ranks(edges, nodes, "edges")?, index })
    }

    pub fn neighbors(&self, rank: u32) -> &[u32] {
        let rank = rank as usize;
        let first = if rank == 0 { 0 } else { self.index[rank - 1] };
        &self.edges[first as usize..self.index[rank] as usize]
    }

    pub fn all_edges(&self) -> Vec<GraphEdge> {
        let of = |rank| self.neighbors(rank).iter().map(move |neighbor| (rank, *neighbor, 1));
        (0..self.index.len() as u32).flat_map(of).collect()
    }
}

/// Converts ranks that the program passes as the argument `name`. Returns MPI_ERR_ARG unless all ranks are
/// below `size`.
pub fn ranks(given: &[i32], size: usize, name: &str) -> Result<Vec<u32>> {
    match given.iter().position(|rank| *rank < 0 || *rank as usize >= size) {
        Some(at) => fail!(Class::Arg, "{name}[{at}] is {}, which is none of the {size} ranks", given[at]),
        None => Ok(given.iter().map(|rank| *rank as u32).collect()),
    }
}

/// A graph of which each process knows its own edges (MPI_Dist_graph_create).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistGraph {
    /// The ranks from which edges lead to this process.
    pub sources: Vec<u32>,
    /// The ranks to which edges lead from this process.
    pub destinations: Vec<u32>,
    /// The weights of the edges from `sources`, and of the edges to `destinations`. None if the program
    /// passed MPI_UNWEIGHTED.
    pub weights: Option<(Vec<i32>, Vec<i32>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids() {
        let cart = Cart::new(&[2, 3, 2], &[0, 1, 0]).unwrap();
        for rank in 0..cart.size() {
            let coords: Vec<i32> = cart.coords(rank).iter().map(|coord| *coord as i32).collect();
            assert_eq!(cart.rank(&coords), Ok(rank));
            assert_eq!(cart.rank(&[coords[0], coords[1] - 3, coords[2]]), Ok(rank));
        }
        assert_eq!(cart.coords(7), [1, 0, 1]);
        assert_eq!(cart.rank(&[2, 0, 0]).unwrap_err().class, Class::Arg);
        assert_eq!((cart.neighbor(7, 0, 1), cart.neighbor(7, 0, -1)), (None, Some(1)));
        assert_eq!((cart.neighbor(7, 1, -1), cart.neighbor(7, 1, 4)), (Some(11), Some(9)));
        assert_eq!(cart.neighbor(7, 0, i64::from(i32::MIN)), None);
        let (sub, ranks) = cart.sub(7, &[false, true, false]);
        assert_eq!((sub.dims, sub.periods, ranks), (vec![3], vec![true], vec![7, 9, 11]));
        let (point, alone) = cart.sub(7, &[false; 3]);
        assert_eq!((point.size(), alone), (1, vec![7]));
        assert_eq!(Cart::new(&[2, 0], &[0, 0]).unwrap_err().class, Class::Dims);
        assert_eq!(Cart::new(&[1 << 16, 1 << 16], &[0, 0]).unwrap_err().class, Class::Dims);
    }

    #[test]
    fn graphs() {
        let graph = Graph::new(vec![2, 3, 4, 6], &[1, 3, 0, 3, 0, 2]).unwrap();
        assert_eq!((graph.neighbors(0), graph.neighbors(3)), (&[1, 3][..], &[0, 2][..]));
        assert_eq!(graph.all_edges().len(), 6);
        assert!(Graph::new(vec![2, 1], &[0, 0]).is_err() && Graph::new(vec![1], &[1]).is_err());
    }
}
