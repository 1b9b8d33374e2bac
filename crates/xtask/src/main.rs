//! `cargo run -p outboard-xtask -- gen`: writes every generated file anew.

mod gen_settings;

use std::path::Path;
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/xtask lies two below the root");
    match std::env::args().nth(1).as_deref() {
        Some("gen") => {
            if let Err(error) = generate(root) {
                eprintln!("xtask gen: {error}");
                std::process::exit(1);
            }
        }
        _ => {
            eprintln!("usage: cargo run -p outboard-xtask -- gen");
            std::process::exit(2);
        }
    }
}

fn generate(root: &Path) -> Result<(), String> {
    let (path, text) = gen_settings::generate(root)?;
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    let formatted = Command::new("rustfmt").args(["--edition", "2024"]).arg(&path).status();
    match formatted {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("rustfmt {}: {other:?}", path.display())),
    }
}
