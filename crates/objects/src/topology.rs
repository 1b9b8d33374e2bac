// SPDX-License-Identifier: BSD-3-Clause
//! Virtual topologies as data (MPI 5.0, chapter 8): the neighbours of each rank.

use error::{Class, Result, fail};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// MPI_Cart_create.
    Cart(Cart),
    /// MPI_Graph_create.
    Graph(Graph),
    /// MPI_Dist_graph_create and MPI_Dist_graph_create_adjacent.
    DistGraph(DistGraph),
}

/// A list of ranks; MPI_PROC_NULL where there is no neighbour.
pub type NeighborList = Vec<Option<u32>>;

impl Topology {
    /// The destinations and the sources of a rank's neighborhood collectives, in the order of their blocks
    /// (MPI 5.0, section 8.6).
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

/// A grid, or a torus in its periodic dimensions. Ranks are in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cart {
    pub dims: Vec<u32>,
    /// Whether a dimension wraps around.
    pub periods: Vec<bool>,
}

impl Cart {
    /// A grid; MPI_ERR_DIMS unless all extents are positive.
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

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.dims.iter().product()
    }

    /// The coordinates of a rank.
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

    /// The rank at some coordinates; MPI_ERR_ARG outside a dimension that is not periodic.
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

    /// The rank `by` steps away in a dimension, or None outside the grid.
    pub fn neighbor(&self, rank: u32, dim: usize, by: i64) -> Option<u32> {
        let stride: u32 = self.dims[dim + 1..].iter().product();
        let extent = self.dims[dim];
        let here = rank / stride % extent;
        let there = i64::from(here) + by;
        let inside = there.rem_euclid(i64::from(extent)) as u32;
        let reached = self.periods[dim] || there == i64::from(inside);
        reached.then_some(rank - here * stride + inside * stride)
    }

    /// MPI_Cart_sub: the grid of the remaining dimensions, and the ranks of this rank's grid in order.
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

    /// The pairs of neighbours.
    pub fn edges(&self) -> Vec<GraphEdge> {
        let next =
            |rank| (0..self.dims.len()).filter_map(move |dim| Some((rank, self.neighbor(rank, dim, 1)?, 1)));
        (0..self.size()).flat_map(next).collect()
    }
}

/// An edge: from, to, weight.
pub type GraphEdge = (u32, u32, u64);

/// A graph that every process knows as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// The end of the neighbours of each node in `edges`.
    pub index: Vec<i32>,
    /// The neighbours of all nodes.
    pub edges: Vec<u32>,
}

impl Graph {
    /// A graph; MPI_ERR_ARG if the index decreases or an edge leads nowhere.
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

/// Checks the ranks, below `size`, that the program gave as the argument `name`.
pub fn ranks(given: &[i32], size: usize, name: &str) -> Result<Vec<u32>> {
    match given.iter().position(|rank| *rank < 0 || *rank as usize >= size) {
        Some(at) => fail!(Class::Arg, "{name}[{at}] is {}, which is none of the {size} ranks", given[at]),
        None => Ok(given.iter().map(|rank| *rank as u32).collect()),
    }
}

/// A graph of which each process knows its own edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistGraph {
    /// The sources of this process's incoming edges.
    pub sources: Vec<u32>,
    /// The destinations of its outgoing edges.
    pub destinations: Vec<u32>,
    /// The weights in the same order, unless MPI_UNWEIGHTED was given.
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
