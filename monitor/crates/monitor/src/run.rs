// SPDX-License-Identifier: BSD-3-Clause
//! The monitor's program: its arguments, and the order in which it starts its parts.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::acme::Asking;
use crate::agent::{self, Agent, Sources};
use crate::alerts::{self, Deliver, Delivered, Links, Watcher};
use crate::config::MonitorConfig;
use crate::control::Control;
use crate::live::Live;
use crate::people::{Elsewhere, ListedAccount, People, Role, THIS_HOST, Who};
use crate::store::{Store, Writer};
use crate::tls::Tls;
use crate::web::{ConnectionLimits, Files, Web, router, serve as serve_pages};
use crate::{collect, hosts, jobs, tls};

/// Show the fabric, its jobs, and what they do, in a page of this host.
#[derive(Parser)]
#[command(name = "outboard monitor", version, max_term_width = 110)]
struct MonitorArguments {
    /// The configuration, in TOML (monitor/docs/monitor.md).
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The folder for everything that the monitor stores; without it the configuration's, else
    /// ~/.local/state/outboard-monitor.
    #[arg(long, value_name = "FOLDER", global = true)]
    data: Option<PathBuf>,
    /// Where the page is served, as 127.0.0.1:8270.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<std::net::SocketAddr>,
    /// The path below which a proxy serves the page, as /monitor.
    #[arg(long, value_name = "PATH")]
    base_path: Option<String>,
    /// Check the configuration and end.
    #[arg(long)]
    check_config: bool,
    #[command(subcommand)]
    task: Option<MonitorTask>,
}

#[derive(Subcommand)]
enum MonitorTask {
    /// Add an account, or change its role and password; the password is the first line of the input.
    AddAccount {
        name: String,
        #[arg(long, value_enum, default_value = "user")]
        role: Role,
        /// With --role manager: a project (Slurm: account) whose jobs this account sees besides its own; may
        /// be given more than once.
        #[arg(long)]
        project: Vec<String>,
    },
    /// Give an account another password, which is the first line of the input; the role stays.
    Passwd { name: String },
    /// Remove an account.
    RemoveAccount { name: String },
    /// Report to a collector on another host what this host does, until stopped.
    Agent {
        /// The collector, as `http://head:8270`; without it the configuration's.
        #[arg(long, value_name = "ADDRESS")]
        to: Option<String>,
        /// The file with the key by which this host signs its reports.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// Print one report and end.
        #[arg(long)]
        print: bool,
    },
    /// Print the keys with which agents on these hosts sign, from the collector's data folder.
    AgentKey {
        #[arg(required = true)]
        host: Vec<String>,
    },
    /// List the accounts: name, role, projects, and whether the monitor, a directory or an issuer has the
    /// password.
    Accounts,
    /// Print the requirements file from which pip installs chDB, for a machine without a network.
    ChdbRequirements,
    /// Print what a shell needs to complete command lines of outboard-monitor; an installation has it below
    /// share/, where bash, zsh and fish look.
    Completion { shell: clap_complete::Shell },
}

/// Runs the monitor's program with its command line, which begins with the program's name. Returns the exit
/// code.
pub fn run(words: Vec<OsString>) -> u8 {
    match carry_out(MonitorArguments::parse_from(words)) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("outboard monitor: {why}");
            1
        }
    }
}

fn carry_out(arguments: MonitorArguments) -> Result<(), String> {
    if let Some(MonitorTask::Completion { shell }) = arguments.task {
        let mut command = MonitorArguments::command();
        clap_complete::generate(shell, &mut command, "outboard-monitor", &mut std::io::stdout());
        return Ok(());
    }
    if let Some(MonitorTask::ChdbRequirements) = arguments.task {
        print!("{}", crate::store::WHEELS);
        return Ok(());
    }
    let mut config = match &arguments.config {
        Some(file) => MonitorConfig::read(file)?,
        None => MonitorConfig { data: own_folder(), ..MonitorConfig::default() },
    };
    config.data = arguments.data.unwrap_or(config.data);
    config.listen = arguments.listen.unwrap_or(config.listen);
    config.base_path = arguments.base_path.unwrap_or(config.base_path);
    config.check_page()?;
    if arguments.check_config {
        config.check_places()?;
        println!("outboard monitor: the configuration is valid");
        return Ok(());
    }
    if let Some(MonitorTask::Agent { to, key_file, print }) = arguments.task {
        config.agent.to = to.or(config.agent.to);
        config.agent.key_file = key_file.or(config.agent.key_file);
        if !print {
            Agent::of(&config.agent)?.run();
        }
        println!("{}", agent::print(&config.agent)?);
        return Ok(());
    }
    make_private(&config.data)?;
    match arguments.task {
        Some(MonitorTask::AddAccount { name, role, project }) => {
            let password = password_of(&name)?;
            people(&config)?.add(THIS_HOST, &Who { name, role, projects: project }, Some(&password))
        }
        Some(MonitorTask::Passwd { name }) => {
            let people = people(&config)?;
            people.set_password(THIS_HOST, &name, &password_of(&name)?)
        }
        Some(MonitorTask::Accounts) => {
            for ListedAccount { who: Who { name, role, projects }, kept } in people(&config)?.list()? {
                let role = role.to_possible_value();
                let role = role.as_ref().map_or("", |role| role.get_name());
                println!("{name}\t{role}\t{}\t{kept}", projects.join(","));
            }
            Ok(())
        }
        Some(MonitorTask::RemoveAccount { name }) => people(&config)?.remove(THIS_HOST, &name),
        Some(MonitorTask::AgentKey { host }) => {
            let secret = hosts::secret_of(&config.data)?;
            host.iter().for_each(|host| println!("{host} {}", agent::host_key(&secret, host)));
            Ok(())
        }
        Some(MonitorTask::Agent { .. } | MonitorTask::Completion { .. } | MonitorTask::ChdbRequirements)
        | None => serve(&config),
    }
}

/// Reads the password of the account `name` from the first line of standard input. At a terminal, asks for
/// it.
fn password_of(name: &str) -> Result<String, String> {
    if std::io::stdin().is_terminal() {
        eprintln!("the password of {name}, at least {} characters:", crate::people::PASSWORD_CHARS_MIN);
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|error| format!("no password: {error}"))?;
    Ok(line.trim_end_matches(['\n', '\r']).into())
}

fn people(config: &MonitorConfig) -> Result<People, String> {
    People::open(&config.data, Arc::new(Control::open(&config.data)?))
}

/// Returns the data folder that is used if nobody names one: for root the system's, for others a folder in
/// their home.
fn own_folder() -> PathBuf {
    match std::env::var_os("HOME") {
        Some(home) if !rustix::process::getuid().is_root() => {
            Path::new(&home).join(".local/state/outboard-monitor")
        }
        _ => MonitorConfig::default().data,
    }
}

/// Makes the data folder if it is missing. Checks that only its owner can read it, because it holds keys and
/// hashes of passwords.
fn make_private(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let named = |why: String| format!("{}: {why}", folder.display());
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| named(error.to_string()))?;
    let found = std::fs::metadata(folder).map_err(|error| named(error.to_string()))?;
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o777;
        return Err(named(format!(
            "others may read it (mode {mode:o}): `chmod 700` it, or name another folder"
        )));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(named(format!("it belongs to the user {}, and this is another", found.uid())));
    }
    Ok(())
}

/// Locks the data folder, so that only one monitor uses it. The lock ends when the returned file is closed.
fn lock(folder: &Path) -> Result<std::fs::File, String> {
    let path = folder.join("lock");
    let named = |why: String| format!("{}: {why}", path.display());
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| named(error.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(format!(
            "another monitor runs with the data folder {}; each has one of its own",
            folder.display()
        )),
        Err(std::fs::TryLockError::Error(error)) => Err(named(error.to_string())),
    }
}

/// How often the LDAP directory is asked which rights its people have now.
const DIRECTORY_EVERY: Duration = Duration::from_secs(600);

/// Updates, in a thread of its own, the accounts of the people whom the LDAP directory knows. If the
/// configuration names no directory or no issuer any more, removes the accounts that came from there.
fn follow(people: &Arc<People>, config: &MonitorConfig) -> Result<(), String> {
    if config.oidc.is_none() {
        people.refresh(Elsewhere::Issuer, |_| Ok(None))?;
    }
    let Some(directory) = config.ldap.clone() else {
        return people.refresh(Elsewhere::Directory, |_| Ok(None));
    };
    let people = people.clone();
    std::thread::spawn(move || {
        loop {
            if let Err(why) = people.refresh(Elsewhere::Directory, |name| directory.named(name)) {
                eprintln!("outboard monitor: {why}");
            }
            std::thread::sleep(DIRECTORY_EVERY);
        }
    });
    Ok(())
}

/// Returns where the web page's certificate comes from. With ACME also returns the work that requests
/// certificates. Both are None if the page is served in plain HTTP.
fn tls(config: &MonitorConfig) -> Result<(Option<Tls>, Option<Asking>), String> {
    match (&config.tls, &config.acme) {
        (Some(tls), _) => {
            tls::Files::open(&tls.certificate, &tls.key).map(|files| (Some(Tls::Files(files)), None))
        }
        (None, Some(acme)) => {
            acme.check()?;
            let (served, asking) = acme.open(&config.data.join("acme"))?;
            Ok((Some(Tls::Acme(served)), Some(asking)))
        }
        (None, None) => Ok((None, None)),
    }
}

/// Prints the address of the web page. At the monitor's first start the address contains the administrator's
/// key.
fn print_page(config: &MonitorConfig, address: std::net::SocketAddr, is_first: bool, key: &str) {
    let scheme = if config.tls.is_some() || config.acme.is_some() { "https" } else { "http" };
    let page = format!("{scheme}://{address}{}/", config.base_path);
    if is_first {
        println!("outboard monitor: {page}#key={key}");
    } else {
        println!("outboard monitor: {page} (the administrator's key is in {}/key)", config.data.display());
    }
}

/// Starts the threads that watch for alerts and deliver them. Returns two things for the web page: the known
/// links, and how many messages about alerts were delivered or failed.
fn start_alerts(
    config: &MonitorConfig,
    control: &Arc<Control>,
    live: &Arc<Live>,
    writer: &Writer,
) -> (Arc<Mutex<Links>>, Arc<Mutex<Delivered>>) {
    let links = Arc::new(Mutex::new(Links::read(control)));
    let (live_, writer_) = (live.clone(), writer.clone());
    let watcher = Watcher { control: control.clone(), live: live_, writer: writer_, links: links.clone() };
    std::thread::spawn(|| watcher.run());
    let delivered = Arc::default();
    let deliver = Deliver {
        control: control.clone(),
        channels: config.notify.clone(),
        mail: config.mail.clone(),
        delivered: Arc::clone(&delivered),
    };
    std::thread::spawn(|| deliver.run());
    (links, delivered)
}

/// How often the store is asked for the sizes of its tables.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

fn measure(store: Arc<Store>) {
    std::thread::spawn(move || {
        loop {
            store.measure();
            std::thread::sleep(MEASURE_EVERY);
        }
    });
}

/// Starts all parts of the monitor, and serves the web page until SIGINT or SIGTERM ends the program.
fn serve(config: &MonitorConfig) -> Result<(), String> {
    let _lock = lock(&config.data)?;
    let files = Files::read(&share()?)?;
    let (tls, asking) = tls(config)?;
    let is_first = !config.data.join("key").exists();
    let control = Arc::new(Control::open(&config.data)?);
    let people = Arc::new(People::open(&config.data, control.clone())?);
    follow(&people, config)?;
    alerts::begin(&control)?;
    let listener = std::net::TcpListener::bind(config.listen)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| format!("{} cannot be served: {error}", config.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let store = Arc::new(Store::open(config)?);
    let spool = config.store.spool.clone().unwrap_or_else(|| config.data.join("spool"));
    let writer = Writer::start(store.clone(), &spool, config.store.spool_mb << 20)?;
    measure(store.clone());
    let live = Arc::new(Live::default());
    let fabric = collect::Collector::new(config.fabric.clone(), live.clone(), writer.clone());
    std::thread::spawn(|| fabric.run());
    let collector = jobs::Collector {
        interval_s: config.jobs.interval_s,
        kubeconfig: config.jobs.kubeconfig.clone(),
        slurm: jobs::Slurm::of(&config.jobs),
        store: store.clone(),
        live: live.clone(),
        writer: writer.clone(),
        sources: Sources::start(&config.agent.skip),
    };
    std::thread::spawn(|| collector.run());
    let (links, delivered) = start_alerts(config, &control, &live, &writer);
    print_page(config, address, is_first, people.key());
    let web = Arc::new(Web {
        live,
        store,
        writer: writer.clone(),
        people,
        directory: config.ldap.clone(),
        issuer: config.oidc.clone(),
        files,
        control,
        links,
        channels: config.notify.clone(),
        delivered,
        agent_secret: hosts::secret_of(&config.data)?,
        limits: Default::default(),
        exports: Default::default(),
        proxies: config.proxies.clone(),
        base_path: config.base_path.clone(),
        private_hosts: config.jobs.private_hosts,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no event loop: {error}"))?;
    let limits = ConnectionLimits::of(config.connections_each);
    asking.map(std::thread::spawn);
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(|error| error.to_string())?;
        tokio::select! {
            () = serve_pages(listener, router(web.clone()), tls.map(Arc::new), limits, web) => {},
            () = ended() => {},
        }
        Ok(())
    });
    // A question to a store that does not answer may take a minute.
    runtime.shutdown_background();
    writer.flush();
    served
}

/// Waits until the process gets SIGINT or SIGTERM.
async fn ended() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
}

/// Returns the folder with the files of the web page, which is installed beside the programs.
fn share() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let root = here.parent().and_then(Path::parent).ok_or("this program has no folder")?;
    Ok(root.join("share/outboard/monitor"))
}
