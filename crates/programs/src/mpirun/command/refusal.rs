//! Why `mpirun` does not do what it was told, as a sentence and an exit code.

/// Why a program could not be started, with the exit code that a shell would give.
#[derive(Debug)]
pub struct Refusal {
    /// 127: not found; 126: found, but not to be executed; 1: anything else.
    pub code: u8,
    /// The sentence.
    pub message: String,
}

impl Refusal {
    /// A refusal with exit code 1.
    pub fn other(message: impl Into<String>) -> Refusal {
        Refusal { code: 1, message: message.into() }
    }
}
