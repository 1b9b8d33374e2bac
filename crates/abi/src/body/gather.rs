//! Small exchanges that the library itself needs.

use crate::args::Handle;
use crate::process::Guard;
use error::{Class, Result, fail};

/// The words of all members, in order of rank. Collective.
pub(crate) fn gather_words(guard: &mut Guard, comm: Handle, words: &[i64]) -> Result<Vec<i64>> {
    let comm = guard.objects.comm(comm)?;
    if comm.size() == 1 {
        return Ok(words.to_vec());
    }
    fail!(Class::UnsupportedOperation, "words of {} ranks cannot be gathered yet", comm.size())
}
