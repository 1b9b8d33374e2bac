// SPDX-License-Identifier: BSD-3-Clause
//! Who sends a request, and for which host. The connection shows this, or the headers of a reverse proxy that
//! the configuration trusts.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};

/// The other end of a connection to the page: its address, and whether the connection is encrypted.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionPeer {
    pub address: IpAddr,
    pub is_encrypted: bool,
}

/// The client that sends a request, the host that the request names, and whether the request was encrypted on
/// its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Asker {
    pub address: IpAddr,
    /// The host (and port) in the URL that the browser shows.
    pub host: String,
    pub is_encrypted: bool,
}

impl Asker {
    /// Returns who sends a request. The headers count only if `peer` is one of the trusted `proxies`.
    pub fn of(peer: ConnectionPeer, headers: &HeaderMap, proxies: &[IpAddr]) -> Asker {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST.as_str()).unwrap_or_default().to_string();
        let own = Asker { address: peer.address, host, is_encrypted: peer.is_encrypted };
        if !proxies.contains(&peer.address) {
            return own;
        }
        // Each proxy adds the address that asked it. The last address that is not a trusted proxy is the
        // origin.
        let chain = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
        let chain: Vec<&str> = chain.flat_map(|value| value.split(',')).map(str::trim).collect();
        let forwarded = chain.iter().rev().map_while(|word| word.parse::<IpAddr>().ok());
        let address =
            forwarded.map(|address| address.to_canonical()).find(|address| !proxies.contains(address));
        Asker {
            address: address.unwrap_or(own.address),
            host: text("x-forwarded-host").map_or(own.host, String::from),
            is_encrypted: own.is_encrypted || text("x-forwarded-proto") == Some("https"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "inner:8270"),
            ("x-forwarded-for", "6.6.6.6, 9.9.9.9"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-host", "monitor.site"),
            ("x-forwarded-proto", "https"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let peer = ConnectionPeer { address: ip("10.0.0.1"), is_encrypted: false };
        let asker = |proxies: &[&str]| {
            let proxies: Vec<_> = proxies.iter().map(|text| ip(text)).collect();
            Asker::of(peer, &headers, &proxies)
        };
        let own = Asker { address: peer.address, host: "inner:8270".into(), is_encrypted: false };
        assert_eq!(asker(&[]), own);
        assert_eq!(asker(&["10.0.0.2"]), own, "it is not the one that asks us");
        let told = |address| Asker { address: ip(address), host: "monitor.site".into(), is_encrypted: true };
        assert_eq!(asker(&["10.0.0.1"]), told("10.0.0.2"));
        assert_eq!(
            asker(&["10.0.0.1", "10.0.0.2"]),
            told("9.9.9.9"),
            "what 9.9.9.9 says itself is not believed"
        );
    }
}
