//! What ranks read and print.

pub mod input;
pub mod output;
