// SPDX-License-Identifier: BSD-3-Clause
//! Limits on what strangers may do at once (try passwords, send reports, ask the store), so that other people
//! need not wait.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

type Refusal = (StatusCode, String);

/// How many passwords are checked at once. Each check costs 19 MiB and many milliseconds of a core, or a
/// request to the directory.
const TRIALS: usize = 2;
/// How many requests may wait for their password to be checked. Further requests are refused for now.
const WAITING_MAX: usize = 16;
/// How many attempts to log in may come from one address in a burst, and then in each minute.
const OF_ADDRESS: u32 = 30;
/// How many attempts to log in to one account may come from all addresses in a burst, and then in each
/// minute.
const OF_ACCOUNT: u32 = 60;
/// How many KiB of the reports of hosts may be read at once.
const REPORTS_KIB: usize = 64 << 10;
/// How many requests the store answers at once. Each answer may have 256 MiB.
const QUESTIONS: usize = 8;
/// The most addresses or accounts whose attempts to log in are remembered. If there are more, those without
/// recent attempts are removed.
const KEYS_MAX: usize = 10_000;

pub struct RequestLimits {
    trials: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    addresses: DefaultKeyedRateLimiter<IpAddr>,
    accounts: DefaultKeyedRateLimiter<String>,
    reports: Arc<Semaphore>,
    questions: Arc<Semaphore>,
}

/// A permission to have a password checked. It counts against `TRIALS` until it is dropped.
pub struct TrialPermit {
    _trial: OwnedSemaphorePermit,
}

/// The names of the people for whom an export is being sent. Each person may have one export at a time.
#[derive(Clone, Default)]
pub struct Exports(Arc<Mutex<HashSet<String>>>);

pub struct Underway(Exports, String);

impl Exports {
    pub fn begin(&self, who: &str) -> Result<Underway, Refusal> {
        let is_new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(who.into());
        let busy =
            || (StatusCode::TOO_MANY_REQUESTS, "an export of yours is under way: one at a time".into());
        if is_new { Ok(Underway(self.clone(), who.into())) } else { Err(busy()) }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

fn minute(count: u32) -> Quota {
    Quota::per_minute(NonZeroU32::new(count).expect("it is no 0"))
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            trials: Arc::new(Semaphore::new(TRIALS)),
            waiting: Arc::new(Semaphore::new(TRIALS + WAITING_MAX)),
            addresses: RateLimiter::keyed(minute(OF_ADDRESS)),
            accounts: RateLimiter::keyed(minute(OF_ACCOUNT)),
            reports: Arc::new(Semaphore::new(REPORTS_KIB)),
            questions: Arc::new(Semaphore::new(QUESTIONS)),
        }
    }
}

impl RequestLimits {
    /// Waits for the permission to have a password checked, or to ask the OpenID issuer (`account` is None).
    /// Refuses it after too many attempts from this address or to this account.
    pub async fn trial(&self, address: IpAddr, account: Option<&str>) -> Result<TrialPermit, Refusal> {
        let often =
            |what: &str| (StatusCode::TOO_MANY_REQUESTS, format!("too many attempts {what}: wait a minute"));
        if self.addresses.len() > KEYS_MAX {
            self.addresses.retain_recent();
        }
        if self.accounts.len() > KEYS_MAX {
            self.accounts.retain_recent();
        }
        self.addresses.check_key(&network(address)).map_err(|_| often("from this address"))?;
        if let Some(account) = account {
            let name: String = account.chars().take(64).collect();
            self.accounts.check_key(&name).map_err(|_| often("for this account"))?;
        }
        let busy = || (StatusCode::SERVICE_UNAVAILABLE, "many people log in: try again".to_string());
        let _waiting = self.waiting.clone().try_acquire_owned().map_err(|_| busy())?;
        let trial = self.trials.clone().acquire_owned().await.map_err(|_| busy())?;
        Ok(TrialPermit { _trial: trial })
    }

    /// Waits until the body of a report of `bytes` bytes may be read, because the bodies that are read at
    /// once have a bound.
    pub async fn report(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let kib = (bytes / 1024 + 1).min(REPORTS_KIB) as u32;
        let wait =
            tokio::time::timeout(Duration::from_secs(30), self.reports.clone().acquire_many_owned(kib));
        let busy =
            || (StatusCode::SERVICE_UNAVAILABLE, "many hosts report: the next report will do".to_string());
        wait.await.map_err(|_| busy())?.map_err(|_| busy())
    }

    /// Waits until this request may use the store, because only `QUESTIONS` requests may do so at once.
    pub async fn question(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let wait = tokio::time::timeout(Duration::from_secs(30), self.questions.clone().acquire_owned());
        let busy =
            || (StatusCode::SERVICE_UNAVAILABLE, "the store has other questions: try again".to_string());
        wait.await.map_err(|_| busy())?.map_err(|_| busy())
    }
}

/// Returns the network of an address, by which attempts are counted. With IPv6 this is the first 64 bits,
/// because the owner of an address may use all addresses that begin with them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_bounded_by_address_account_and_together() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let limits = RequestLimits::default();
            let ip = |text: &str| text.parse::<IpAddr>().unwrap();
            for attempt in 0..OF_ADDRESS {
                // The addresses are in the same network.
                let from = ip(&format!("2001:db8::{attempt:x}"));
                assert!(limits.trial(from, Some(&format!("name{attempt}"))).await.is_ok());
            }
            let (code, why) = limits.trial(ip("2001:db8::ffff"), Some("ann")).await.err().unwrap();
            assert_eq!((code, why.contains("address")), (StatusCode::TOO_MANY_REQUESTS, true));
            for attempt in 0..OF_ACCOUNT {
                assert!(limits.trial(ip(&format!("10.0.0.{attempt}")), Some("bob")).await.is_ok());
            }
            let (code, why) = limits.trial(ip("10.0.1.1"), Some("bob")).await.err().unwrap();
            assert_eq!((code, why.contains("account")), (StatusCode::TOO_MANY_REQUESTS, true));
            // Two are tried, some wait, and the others are refused.
            let limits = Arc::new(limits);
            let held = [
                limits.trial(ip("10.0.2.1"), Some("a")).await,
                limits.trial(ip("10.0.2.2"), Some("b")).await,
            ];
            assert!(held.iter().all(Result::is_ok));
            let all: Vec<_> = (0..WAITING_MAX + 3)
                .map(|from| {
                    let (limits, from) = (limits.clone(), ip(&format!("10.0.3.{from}")));
                    tokio::spawn(async move { limits.trial(from, Some(&from.to_string())).await.err() })
                })
                .collect();
            tokio::task::yield_now().await;
            drop(held);
            let mut refused = 0;
            for one in all {
                refused += usize::from(
                    one.await.unwrap().is_some_and(|(code, _)| code == StatusCode::SERVICE_UNAVAILABLE),
                );
            }
            assert_eq!(refused, 3 - TRIALS, "those who are tried have left the queue");
        });
    }
}
