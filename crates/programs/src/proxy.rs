//! `outboard-proxy`: a process that carries out collectives for the ranks of a job. `mpirun --proxies` starts it.

use std::time::Duration;

use executor::Config;
use executor::proxy::Proxy;
use sys::clock::{now, process_cpu};
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
    let settings = settings::get();
    let config = Config {
        chunk_bytes: settings.chunk_bytes,
        inline_bytes_max: settings.inline_bytes_max,
        proxy_poll_us: settings.proxy_poll_us,
        ..Config::default()
    };
    serve(&membership, &config);
    telemetry::set(Counter::ProxyCpuNs, process_cpu());
    if let Err(error) = telemetry::event::write() {
        eprintln!("outboard-proxy {}: cannot write the trace: {error}", membership.proxy);
        return 1;
    }
    0
}

fn serve(membership: &boot::ProxyMembership, config: &Config) {
    let page = membership.segment.proxy(membership.proxy);
    let mut proxy = Proxy::new(membership.segment.clone(), membership.proxy, config);
    let mut awake_until = 0;
    while proxy.look_after_ranks() {
        let begun = now();
        if proxy.poll() {
            let ended = now();
            telemetry::count(Counter::ProxyBusyNs, ended - begun);
            awake_until = ended + config.proxy_poll_us * 1000;
        } else if begun >= awake_until && !proxy.is_busy() {
            telemetry::set(Counter::ProxyCpuNs, process_cpu());
            telemetry::count(Counter::Sleeps, 1);
            page.bell.sleep(Duration::from_millis(100), || !proxy.stirred());
        } else {
            sys::cpu::give_way();
        }
    }
}
