//! Lists of hosts (`-hosts`, `-f`): all ranks run on this machine, so its names are what they may hold, with numbers of slots.

use std::net::{IpAddr, UdpSocket};

/// What a list of hosts comes to: how many ranks it has slots for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots(pub u32);

/// The name of this machine.
pub fn own_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string()
}

/// Whether a host is this machine, `own` being its name.
pub fn is_here(host: &str, own: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    match host.parse::<IpAddr>() {
        // Only an address of our own can be bound to.
        Ok(address) => address.is_loopback() || UdpSocket::bind((address, 0)).is_ok(),
        Err(_) => host == "localhost" || (!host.is_empty() && short(host) == short(own)),
    }
}

/// The slots of `HOST[:SLOTS],...`.
pub fn list(text: &str) -> Result<Slots, String> {
    sum(text.split(',').map(|host| entry(host, "")))
}

/// The slots of a file with a host a line: `HOST[:SLOTS]` or `HOST slots=SLOTS`.
pub fn file(path: &str) -> Result<Slots, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    sum(lines.filter(|line| !line.is_empty()).map(|line| {
        let (host, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        entry(host, rest)
    }))
}

fn sum(slots: impl Iterator<Item = Result<u32, String>>) -> Result<Slots, String> {
    let sum = slots.sum::<Result<u32, String>>()?;
    if sum == 0 { Err("it names no host".into()) } else { Ok(Slots(sum)) }
}

fn entry(host: &str, rest: &str) -> Result<u32, String> {
    let (name, glued) = match host.trim().rsplit_once(':') {
        // An IPv6 address has colons of its own.
        Some((name, slots)) if !name.contains(':') => (name, Some(slots)),
        _ => (host.trim(), None),
    };
    let own = own_name();
    if !is_here(name, &own) {
        return Err(format!(
            "{name} is not this machine, {own}, and Outboard starts ranks on this machine only"
        ));
    }
    match glued.or(rest.split_whitespace().find_map(|word| word.strip_prefix("slots="))) {
        None => Ok(1),
        Some(slots) => match slots.parse() {
            Ok(slots @ 1..=4096) => Ok(slots),
            _ => Err(format!("{slots:?} is no number of slots from 1 to 4096")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_and_its_slots() {
        let own = own_name();
        assert_eq!(list("localhost"), Ok(Slots(1)));
        assert_eq!(list(&format!("127.0.0.1:3, {own}.example.org:2,::1")), Ok(Slots(6)));
        for (wrong, word) in [
            ("localhost,node7", "node7 is not this machine"),
            ("192.0.2.77", "192.0.2.77"),
            ("localhost:x", "slots"),
            ("", "not this machine"),
        ] {
            assert!(list(wrong).unwrap_err().contains(word), "{wrong}");
        }
        let path = std::env::temp_dir().join(format!("outboard-hosts-{}", std::process::id()));
        std::fs::write(&path, "# ours\nlocalhost slots=4 max_slots=8\n\nlocalhost:2 # more\n").unwrap();
        assert_eq!(file(path.to_str().unwrap()), Ok(Slots(6)));
        std::fs::remove_file(&path).unwrap();
        assert!(file("/no/such/file").unwrap_err().contains("cannot read"));
    }
}
