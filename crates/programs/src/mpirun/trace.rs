//! Joins the parts of a trace that ranks and proxies wrote into the one file that the user asked for.

use std::path::Path;

use telemetry::chrome;
use telemetry::event::part;
use telemetry::{Who, decode};

/// Writes `file` from the parts of all `ranks` and `proxies` and removes the parts. Returns how many parts
/// were missing (of processes that never came to MPI_Init); if all were missing, no file is written.
pub fn merge(file: &Path, ranks: u32, proxies: u32) -> std::io::Result<u32> {
    let mut processes = Vec::new();
    let mut missing = 0;
    for who in (0..ranks).map(Who::Rank).chain((0..proxies).map(Who::Proxy)) {
        let part = part(file, who);
        match std::fs::read(&part) {
            Ok(bytes) => processes.push((who, decode(&bytes))),
            Err(_) => missing += 1,
        }
        // A part that was never written cannot be removed.
        let _ = std::fs::remove_file(&part);
    }
    if missing < ranks + proxies {
        std::fs::write(file, chrome::file(&processes))?;
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_one_valid_file() {
        let file = std::env::temp_dir().join(format!("outboard-merge-{}.json", std::process::id()));
        let parts = [Who::Rank(0), Who::Proxy(0)];
        parts.iter().for_each(|who| std::fs::write(part(&file, *who), []).unwrap());
        // Nothing was written behind a record that is not whole.
        std::fs::write(part(&file, Who::Rank(1)), [1; 7]).unwrap();
        assert_eq!(merge(&file, 4, 1).unwrap(), 2);
        let events = chrome::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        chrome::check(&events).unwrap();
        assert_eq!(events.len(), 6);
        assert!(!part(&file, Who::Rank(0)).exists() && !part(&file, Who::Rank(1)).exists());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(merge(&file, 1, 0).unwrap(), 1);
        assert!(!file.exists());
    }
}
