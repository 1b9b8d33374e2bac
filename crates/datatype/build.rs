//! Compiles what stable Rust cannot say: arithmetic on `long double`.
fn main() {}
