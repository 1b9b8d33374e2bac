//! The standard ABI face.
