// SPDX-License-Identifier: BSD-3-Clause
//! A schedule as text: a line for the whole, then a line for each step.
//!
//!     3 reduce  scratch0[1] op input[0..4] -> output[0..4]  after 1 2~
//!
//! This is step 3, which waits for steps 1 and 2. The `~` says that it follows step 2 byte by byte.
use crate::{Action, Blocks, BufferId, Schedule};
use std::fmt::{Display, Formatter, Result};

impl Display for BufferId {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            BufferId::Input => f.write_str("input"),
            BufferId::Output => f.write_str("output"),
            BufferId::Scratch(index) => write!(f, "scratch{index}"),
        }
    }
}

impl Display for Blocks {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.count {
            0 => f.write_str("nothing"),
            1 => write!(f, "{}[{}]", self.buffer, self.first),
            _ => write!(f, "{}[{}..{}]", self.buffer, self.first, self.first + self.count),
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Action::Send { to, edge, from } => write!(f, "send    {from} -> rank {to} edge {edge}"),
            Action::Recv { from, edge, into } => write!(f, "recv    rank {from} edge {edge} -> {into}"),
            Action::Copy { from, into } => write!(f, "copy    {from} -> {into}"),
            Action::Reduce { left, right, into } => write!(f, "reduce  {left} op {right} -> {into}"),
        }
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Schedule { rank, size, input_blocks, output_blocks, .. } = self;
        write!(f, "rank {rank} of {size}: input {input_blocks} blocks, output {output_blocks} blocks")?;
        for (index, scratch) in self.scratch.iter().enumerate() {
            write!(f, ", scratch{index} {} like {:?}[{}..]", scratch.blocks, scratch.like, scratch.first)?;
        }
        writeln!(f)?;
        for (index, step) in self.steps.iter().enumerate() {
            write!(f, "{index:5} {}", step.action)?;
            for (number, after) in self.after_of(step).iter().enumerate() {
                let (word, mark) =
                    (if number == 0 { "  after" } else { "" }, if after.streaming { "~" } else { "" });
                write!(f, "{word} {}{mark}", after.step)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Params};

    #[test]
    fn one_line_per_step() {
        let plan = Algorithm::ScanChain.plan(&Params::new(1, 3));
        let text = "\
rank 1 of 3: input 1 blocks, output 1 blocks, scratch0 1 like Input[0..]
    0 recv    rank 0 edge 0 -> scratch0[0]
    1 reduce  scratch0[0] op input[0] -> output[0]  after 0~
    2 send    output[0] -> rank 2 edge 0  after 1~
";
        assert_eq!(plan.to_string(), text);
    }
}
