// SPDX-License-Identifier: BSD-3-Clause
//! `outboard info --fabric`: which libfabric there is, what it offers on this host, and which offer a job on
//! several hosts takes.

use fabric::{Libfabric, Provider, ProviderChoice, RULE, choose, offers};
use serde_json::{Value, json};
use std::net::IpAddr;

/// What libfabric offers on this host, and which offer a job on several hosts would take.
pub struct FabricReport {
    /// The version and the path of libfabric, and why this file is taken, as text.
    library: String,
    /// The providers and interfaces that libfabric offers: first the one that a job takes, then the other
    /// suitable ones in the order of the rule, then the unsuitable ones.
    offers: Vec<Offer>,
}

struct Offer {
    provider: String,
    domain: String,
    address: Option<String>,
    bits_per_second: Option<u64>,
    reason: String,
    is_chosen: bool,
}

/// Returns what libfabric offers. `host` is the address by which a launcher would name this host. Fails if
/// there is no libfabric or no suitable offer, with the error that a job on several hosts would print.
pub fn find(host: Option<IpAddr>) -> Result<FabricReport, String> {
    let settings = settings::load().map_err(|error| error.to_string())?;
    let wanted = &ProviderChoice::of(settings);
    let with_library = |error: error::Error| {
        format!(
            "{}\nJobs on one host need no libfabric; jobs on several hosts cannot run here.",
            error.message
        )
    };
    let library = Libfabric::load(wanted.library).map_err(with_library)?;
    let described = |provider: &Provider, is_chosen| Offer {
        provider: provider.name(),
        domain: provider.domain(),
        address: provider.address().map(|address| address.to_string()),
        bits_per_second: provider.bits_per_second(),
        reason: provider.reason(wanted, host),
        is_chosen,
    };
    let suitable = choose(&library, wanted, host).map_err(with_library)?;
    let mut all: Vec<_> =
        suitable.iter().enumerate().map(|(place, provider)| described(provider, place == 0)).collect();
    let rest = offers(&library).map_err(with_library)?;
    all.extend(rest.iter().filter(|it| !it.suits(wanted)).map(|provider| described(provider, false)));
    // libfabric lists some offers twice, with other limits.
    let mut once: Vec<Offer> = Vec::new();
    for offer in all {
        if !once.iter().any(|other| other.is_same_route(&offer)) {
            once.push(offer);
        }
    }
    Ok(FabricReport { library: library.origin(), offers: once })
}

impl Offer {
    /// Whether both offers are of the same provider, with the same interface and address.
    fn is_same_route(&self, other: &Offer) -> bool {
        (&self.provider, &self.domain, &self.address) == (&other.provider, &other.domain, &other.address)
    }
}

impl FabricReport {
    pub fn text(&self) -> String {
        let mut text = format!("library          {}\nrule             {RULE}\n\n", self.library);
        for offer in &self.offers {
            let mark = if offer.is_chosen { "*" } else { " " };
            let address = offer.address.as_deref().unwrap_or("-");
            let speed = offer
                .bits_per_second
                .map_or(String::new(), |bits| format!(" {} Gbit/s", bits / 1_000_000_000));
            text += &format!(
                "{mark} {:<16} {:<12} {address}{speed}: {}\n",
                offer.provider, offer.domain, offer.reason
            );
        }
        text + "\n* is what a process of a job on several hosts takes here.\n"
    }

    pub fn json(&self) -> Value {
        let offers = self.offers.iter().map(|offer| {
            json!({"provider": offer.provider, "domain": offer.domain, "address": offer.address,
                "bits_per_second": offer.bits_per_second, "reason": offer.reason, "chosen": offer.is_chosen})
        });
        json!({"libfabric": self.library, "rule": RULE, "offers": offers.collect::<Value>()})
    }
}
