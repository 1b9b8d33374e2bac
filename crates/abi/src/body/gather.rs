//! Small exchanges that the library itself needs.

use crate::args::Handle;
use crate::process::Guard;
use error::Result;

/// The words of all members, in order of rank. Collective.
pub(crate) fn gather_words(guard: &mut Guard, comm: Handle, words: &[i64]) -> Result<Vec<i64>> {
    let mut mine: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut all = vec![0u8; mine.len() * guard.objects.comm(comm)?.size() as usize];
    let planned = guard.plan_gather_bytes(comm, &mut mine, &mut all)?;
    let work = planned.start(guard)?.1;
    guard.finish(work).error.map_or(Ok(()), Err)?;
    Ok(all.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect())
}
