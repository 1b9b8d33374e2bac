//! `outboard-proxy`: a process that carries out collectives for the ranks of a job; started by
//! `mpirun --proxies`.

use executor::Config;
use telemetry::Counter;
use transport::route_fabric::Port;
use transport::shm::Member;

/// The program: serves until its ranks have gone, and returns the exit code.
pub fn run() -> u8 {
    sys::child::name_myself("outboard-proxy");
    // Ctrl-C is for mpirun: it ends the ranks first, and the proxies when no rank needs them.
    sys::signal::ignore(libc::SIGINT);
    // Where it shares a core with a rank that computes, it gets that as soon as it has work.
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
    let open = || {
        let (library, provider) = (settings.fabric_lib.as_deref(), settings.fabric_provider.as_deref());
        Port::open(segment, Member::Proxy(membership.proxy), library, provider)
    };
    if let Err(error) = executor::proxy::run(segment, membership.proxy, &config, open) {
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
