//! `outboard-proxy`: a process that carries out collectives for the ranks of a job; started by
//! `mpirun --proxies`.

use executor::Config;
use telemetry::Counter;

/// The program: serves until its ranks have gone, and returns the exit code.
pub fn run() -> u8 {
    sys::child::name_myself("outboard-proxy");
    // Ctrl-C is for mpirun: it ends the ranks first, and the proxies when no rank needs them.
    sys::signal::ignore(libc::SIGINT);
    let membership = match boot::join_proxy() {
        Ok(membership) => membership,
        Err(error) => {
            eprintln!("outboard-proxy: {error}");
            return 1;
        }
    };
    let config = Config::of(settings::get(), membership.tuning);
    executor::proxy::run(membership.segment, membership.proxy, &config);
    telemetry::set(Counter::ProxyCpuNs, sys::clock::process_cpu());
    if let Err(error) = telemetry::write_trace() {
        eprintln!("outboard-proxy {}: cannot write the trace: {error}", membership.proxy);
        return 1;
    }
    0
}
