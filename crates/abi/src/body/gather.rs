//! Small exchanges that the library itself needs.

use crate::args::Handle;
use crate::collective::{Planned, to_bytes, to_words};
use crate::process::Guard;
use error::Result;

/// The words of all members, in order of rank. Collective.
pub(crate) fn gather_words(guard: &mut Guard, comm: Handle, words: &[i64]) -> Result<Vec<i64>> {
    let mut mine = to_bytes(words);
    let mut all = vec![0u8; mine.len() * guard.objects.comm(comm)?.size() as usize];
    let work = Planned::gathering_bytes(comm, &mut mine, &mut all).blocking().start(guard)?.1;
    guard.finish(work).error.map_or(Ok(()), Err)?;
    Ok(to_words(&all))
}
