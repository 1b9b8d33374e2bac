//! `outboard-proxy`: a process that carries out collectives for the ranks of a job. `mpirun --proxies` starts it.

use executor::Config;
use telemetry::Counter;

/// The program: serves until its ranks have gone, and returns the exit code.
pub fn run() -> u8 {
    sys::child::name_myself("outboard-proxy");
    // Ctrl-C is for mpirun, which ends the ranks first and us when they need us no more.
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
