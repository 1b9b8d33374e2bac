// SPDX-License-Identifier: BSD-3-Clause
//! Connections to the page: how many there may be, from which addresses, and for how long they may be silent.
//!
//! The page gets at most half of this process's file descriptors, so that fabric and store have the rest. The
//! head of each request on a connection must arrive within a time limit. If all connections are taken, a new
//! connection closes the one that has been idle for longest.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tower::ServiceExt;

use super::proxy::{Asker, ConnectionPeer};
use super::state::Web;
use crate::tls::Tls;

/// The time after which a connection on which nothing arrives is closed. Hosts send a report every 10 s.
const HEAD_TIME: Duration = Duration::from_secs(30);
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// The time in milliseconds after which a client that accepts no byte of an answer counts as gone.
const UNTAKEN_MS: u32 = 60_000;

const TOO_MANY: &str = "so many requests of your address are being answered already";

struct OpenConnection {
    address: IpAddr,
    /// Since when the connection has been idle. None while a request on it is being answered.
    idle: Option<Instant>,
    end: Arc<Notify>,
}

/// The open connections to the page, each with a number. Numbers only grow.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<BTreeMap<u64, OpenConnection>>>);

/// An open connection to the page. It counts against the limits until it is dropped.
pub struct CountedConnection {
    all: Connections,
    number: u64,
    end: Arc<Notify>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, OpenConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection. If there are too many, closes an idle one. Returns None if there are too many
    /// and none of them is idle.
    fn one_more(&self, address: IpAddr, each_max: usize, all_max: usize) -> Option<CountedConnection> {
        let mut all = self.lock();
        let is_of_this = |one: &OpenConnection| one.address == address;
        let too_many = all.values().filter(|one| is_of_this(one)).count() >= each_max;
        if too_many || all.len() >= all_max {
            let may_go = all.iter().filter(|(_, one)| one.idle.is_some() && (!too_many || is_of_this(one)));
            let number = *may_go.min_by_key(|(_, one)| one.idle)?.0;
            all.remove(&number)?.end.notify_one();
        }
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        let end = Arc::new(Notify::new());
        all.insert(number, OpenConnection { address, idle: Some(Instant::now()), end: end.clone() });
        Some(CountedConnection { all: self.clone(), number, end })
    }
}

impl CountedConnection {
    /// Counts the connection for another address, on whose behalf a reverse proxy sends the request. Returns
    /// false if too many requests of that address are being answered.
    fn count_for(&self, address: IpAddr, each_max: usize) -> bool {
        let mut all = self.all.lock();
        let others = all.iter().filter(|(number, one)| **number != self.number && one.address == address);
        let is_one_more = others.count() < each_max;
        if let Some(one) = all.get_mut(&self.number).filter(|_| is_one_more) {
            one.address = address;
        }
        is_one_more
    }

    fn set_idle(&self, idle: Option<Instant>) {
        if let Some(one) = self.all.lock().get_mut(&self.number) {
            one.idle = idle;
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}

/// The most connections that all addresses together, and each address alone, may have open.
#[derive(Clone, Copy)]
pub struct ConnectionLimits {
    pub all: usize,
    pub each: usize,
}

impl ConnectionLimits {
    /// Returns the limits. Each address may have `each` connections; all addresses together may have half of
    /// the file descriptors that this process may open.
    pub fn of(each: usize) -> ConnectionLimits {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        ConnectionLimits { all: (limit.unwrap_or(1 << 16) / 2).clamp(16, 1 << 16) as usize, each }
    }
}

/// Serves the page for as long as the monitor runs. A trusted reverse proxy sends the requests of many
/// clients: its connections are limited only by the bound on all, and each request counts for the client's
/// address.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<Tls>>,
    limits: ConnectionLimits,
    web: Arc<Web>,
) {
    let connections = Connections::default();
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            // The client has gone already, or no descriptor is left.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let address = address.ip().to_canonical();
        let each = if web.proxies.contains(&address) { limits.all } else { limits.each };
        let Some(counted) = connections.one_more(address, each, limits.all) else { continue };
        // A socket that is gone already ends below.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNTAKEN_MS);
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let (router, tls, web) = (router.clone(), tls.clone(), web.clone());
        tokio::spawn(async move {
            let counted = Arc::new(counted);
            let end = counted.end.clone();
            let talked = async {
                let peer = ConnectionPeer { address, is_encrypted: tls.is_some() };
                match tls {
                    None => talk(stream, router, peer, web, counted, limits).await,
                    Some(tls) => {
                        let greeted = tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream)).await;
                        if let Ok(Ok(stream)) = greeted {
                            talk(stream, router, peer, web, counted, limits).await;
                        }
                    }
                }
            };
            tokio::select! { () = talked => {}, () = end.notified() => {} }
        });
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    peer: ConnectionPeer,
    web: Arc<Web>,
    counted: Arc<CountedConnection>,
    limits: ConnectionLimits,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        let asker = Asker::of(peer, request.headers(), &web.proxies);
        let asks_for = asker.address;
        request.extensions_mut().insert(asker);
        let is_below = strip(request.uri_mut(), &web.base_path);
        let (router, page) = (router.clone(), format!("{}/", web.base_path));
        let counted = counted.clone();
        // A connection that becomes a stream of frames keeps its count.
        request.extensions_mut().insert(counted.clone());
        async move {
            counted.set_idle(None);
            let is_too_much = asks_for != peer.address && !counted.count_for(asks_for, limits.each);
            let answer = match is_below {
                _ if is_too_much => Ok((StatusCode::TOO_MANY_REQUESTS, TOO_MANY).into_response()),
                true => router.oneshot(request.map(Body::new)).await,
                // Relative URLs of the page need the slash.
                false => Ok(Redirect::permanent(&page).into_response()),
            };
            // A connection that listens to frames is not idle.
            let is_upgraded =
                answer.as_ref().is_ok_and(|answer| answer.status() == StatusCode::SWITCHING_PROTOCOLS);
            if !is_upgraded {
                counted.set_idle(Some(Instant::now()));
                // A proxy may ask for another client the next time.
                counted.count_for(peer.address, usize::MAX);
            }
            answer
        }
    });
    // The result of the connection does not matter here.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

/// Removes the base path from the URL, if a reverse proxy has left it there. Returns false if the URL is the
/// base path without the slash at its end.
fn strip(uri: &mut Uri, base: &str) -> bool {
    let Some(below) = uri.path_and_query().and_then(|path| path.as_str().strip_prefix(base)) else {
        return true;
    };
    if base.is_empty() || !(below.is_empty() || below.starts_with(['/', '?'])) {
        return true;
    }
    match below.strip_prefix('/') {
        Some(_) => {
            // The part begins with a slash, so it is a valid path.
            below.parse().map(|below| *uri = below).is_ok()
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_gives_way_and_who_is_answered_does_not() {
        let all = Connections::default();
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let one = |last| all.one_more(ip(last), 3, 5);
        let mut held: Vec<_> = (0..3).map(|_| one(1).unwrap()).collect();
        held[0].set_idle(None);
        held.push(one(1).unwrap());
        let numbers = || all.lock().keys().copied().collect::<Vec<_>>();
        assert_eq!(numbers(), [0, 2, 3], "of its own address");
        held.extend([one(2).unwrap(), one(3).unwrap(), one(4).unwrap()]);
        assert_eq!(numbers(), [0, 3, 4, 5, 6], "of all");
        held.iter().for_each(|one| one.set_idle(None));
        assert!(one(9).is_none(), "all are answered");
        held.clear();
        assert!(numbers().is_empty() && one(1).is_some(), "who is gone costs nothing");
    }

    #[test]
    fn what_a_proxy_asks_for_one_address_is_limited() {
        let (all, ip) = (Connections::default(), |last| IpAddr::from([10, 0, 0, last]));
        let held: Vec<_> = (0..3).map(|_| all.one_more(ip(9), 9, 9).unwrap()).collect();
        let told: Vec<_> = held.iter().map(|one| one.count_for(ip(1), 2)).collect();
        assert_eq!((told, held[2].count_for(ip(2), 2)), (vec![true, true, false], true));
        assert!(held[0].count_for(ip(9), usize::MAX) && held[2].count_for(ip(1), 2), "one is answered");
    }

    #[test]
    fn the_base_path_is_taken_away_if_it_is_there() {
        let told = |base: &str, path: &str| {
            let mut uri: Uri = path.parse().unwrap();
            strip(&mut uri, base).then(|| uri.to_string())
        };
        assert_eq!(told("", "/api/me?a=1"), Some("/api/me?a=1".into()));
        assert_eq!(told("/m", "/m/api/me?a=1"), Some("/api/me?a=1".into()));
        assert_eq!(told("/m", "/api/me"), Some("/api/me".into()), "the proxy has taken it away");
        assert_eq!(told("/m", "/me"), Some("/me".into()));
        assert_eq!((told("/m", "/m/"), told("/m", "/m"), told("/m", "/m?a")), (Some("/".into()), None, None));
        assert_eq!(told("/m", "/m//x"), Some("//x".into()));
    }
}
