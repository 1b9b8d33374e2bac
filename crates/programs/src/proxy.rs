// SPDX-License-Identifier: BSD-3-Clause
//! `outboard-proxy`: a process that carries out collectives for the ranks of a job. `mpirun --proxies` starts
//! it; under another launcher a rank starts it.

use std::ffi::OsString;

use executor::{Config, Import};
use telemetry::Counter;
use transport::import::Importer;
use transport::route_fabric::{Port, ProviderChoice, set_sizes};
use transport::shm::{EndpointOwner, Segment};

const HELP: &str =
    "outboard-proxy: carries out collectives and messages for the ranks of a job while they compute

mpirun --proxies N starts N of them on each host; nobody starts one by hand. `man outboard-proxy` says more.

Options:
  -h, --help     Print help
  -V, --version  Print version";

/// Runs `outboard-proxy`: serves until the proxy's ranks have ended, and returns the exit code. `word` is the
/// first argument.
pub fn run(word: Option<OsString>) -> u8 {
    match word.as_ref().map(|word| word.to_string_lossy()).as_deref() {
        None => {}
        Some("-h" | "--help") => {
            println!("{HELP}");
            return 0;
        }
        Some("-V" | "--version") => {
            println!("outboard-proxy {}", env!("CARGO_PKG_VERSION"));
            return 0;
        }
        Some(word) => {
            eprintln!("outboard-proxy: unexpected argument {word}; mpirun --proxies starts proxies");
            return 2;
        }
    }
    sys::child::name_myself("outboard-proxy");
    set_sizes();
    // Ctrl-C goes to mpirun, which ends the ranks first, and the proxies when no rank needs them.
    sys::signal::ignore(libc::SIGINT);
    // A proxy that shares a core with a computing rank then gets the core as soon as it has work.
    sys::cpu::take_short_slices();
    let membership = match boot::join_proxy() {
        Ok(membership) => membership,
        Err(error) => {
            eprintln!("outboard-proxy: {error}");
            return 1;
        }
    };
    let (segment, settings) = (membership.segment, settings::get());
    let config = Config::of(settings, membership.tuning);
    let open = || Port::open(segment, EndpointOwner::Proxy(membership.proxy), &ProviderChoice::of(settings));
    let memory = match import(segment, settings) {
        Ok(memory) => memory,
        Err(error) => {
            eprintln!("outboard-proxy {}: {error}", membership.proxy);
            return 1;
        }
    };
    if let Err(error) =
        executor::proxy::run(segment, membership.proxy, &config, &membership.parent, memory, open)
    {
        eprintln!("outboard-proxy {}: {error}", membership.proxy);
        return 1;
    }
    telemetry::set(Counter::ProxyCpuNs, sys::clock::process_cpu());
    if let Err(error) = telemetry::write_trace() {
        eprintln!("outboard-proxy {}: cannot write the trace: {error}", membership.proxy);
        return 1;
    }
    0
}

/// Opens the memory of ranks on another computer, for a proxy on a DPU. None if the ranks are on this host.
fn import(segment: &Segment, settings: &settings::Settings) -> error::Result<Option<Box<dyn Import>>> {
    if !segment.has_dpu() {
        return Ok(None);
    }
    // A proxy sends several beats within the time after which a rank gives it up.
    let beat_ns = (settings.proxy_timeout_ms * 1_000_000 / 8).max(1_000_000);
    Ok(Some(Box::new(Importer::open(segment, &ProviderChoice::of(settings), beat_ns)?)))
}
