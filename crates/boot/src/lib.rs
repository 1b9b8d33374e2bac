//! How a process learns which rank of which job it is.
