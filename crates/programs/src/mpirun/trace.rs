//! Joins the parts of a trace that ranks and proxies wrote into the one file that the user asked for.

use std::path::Path;

use telemetry::chrome;
use telemetry::event::{Who, part};

/// Writes `file` from the parts of all `ranks` and `proxies` and removes the parts. Returns how many parts were missing (of
/// processes that were killed) or broken; if all were missing, no file is written.
pub fn merge(file: &Path, ranks: u32, proxies: u32) -> std::io::Result<u32> {
    let mut events = Vec::new();
    let mut missing = 0;
    for who in (0..ranks).map(Who::Rank).chain((0..proxies).map(Who::Proxy)) {
        let part = part(file, who);
        let read = std::fs::read_to_string(&part).map_err(|error| error.to_string());
        match read.and_then(|text| chrome::parse(&text)) {
            Ok(more) => events.extend(more),
            Err(_) => missing += 1,
        }
        // A part that was never written cannot be removed.
        let _ = std::fs::remove_file(&part);
    }
    if missing < ranks + proxies {
        std::fs::write(file, chrome::file(&events))?;
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_one_valid_file() {
        let file = std::env::temp_dir().join(format!("outboard-merge-{}.json", std::process::id()));
        for who in [Who::Rank(0), Who::Proxy(0)] {
            std::fs::write(part(&file, who), chrome::file(&chrome::records(who, &[]))).unwrap();
        }
        std::fs::write(part(&file, Who::Rank(1)), "{\"traceEvents\":[").unwrap();
        assert_eq!(merge(&file, 3, 1).unwrap(), 2);
        let events = chrome::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        chrome::check(&events).unwrap();
        assert_eq!(events.len(), 4);
        assert!(!part(&file, Who::Rank(0)).exists() && !part(&file, Who::Rank(1)).exists());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(merge(&file, 1, 0).unwrap(), 1);
        assert!(!file.exists());
    }
}
