// SPDX-License-Identifier: BSD-3-Clause
//! The program: its arguments, and who is started in which order.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};

use crate::agent::{self, Agent, Sources};
use crate::alerts::{self, Deliver, Links, Watcher};
use crate::config::Config;
use crate::control::Control;
use crate::directory::Directory;
use crate::live::Live;
use crate::people::{People, Role};
use crate::store::{Store, Writer};
use crate::web::{Files, Web, router};
use crate::{collect, hosts, jobs};

/// Show the fabric, its jobs, and what they do, in a page of this host.
#[derive(Parser)]
#[command(name = "outboard monitor", version, max_term_width = 110)]
struct Arguments {
    /// The configuration, in TOML (monitor/docs/monitor.md).
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The folder for everything that is kept; without it the configuration's, else
    /// ~/.local/state/outboard-monitor.
    #[arg(long, value_name = "FOLDER", global = true)]
    data: Option<PathBuf>,
    /// Where the page is served, as 127.0.0.1:8270.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<std::net::SocketAddr>,
    /// Check the configuration and end.
    #[arg(long)]
    check_config: bool,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Subcommand)]
enum Task {
    /// Add an account, or change its role and password; the password is the first line of the input.
    AddAccount {
        name: String,
        #[arg(long, value_enum, default_value = "user")]
        role: Role,
        /// A project (Slurm: account) whose jobs a manager sees; may be given more than once.
        #[arg(long)]
        project: Vec<String>,
    },
    /// Remove an account.
    RemoveAccount { name: String },
    /// Tell a collector on another host what this host does, for good.
    Agent {
        /// The collector, as `http://head:8270`; without it the configuration's.
        #[arg(long, value_name = "ADDRESS")]
        to: Option<String>,
        /// The file with this host's key.
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
    /// Print what a shell needs to complete command lines of outboard-monitor; an installation has it below
    /// share/, where bash, zsh and fish look.
    Completion { shell: clap_complete::Shell },
}

/// The program: `words` begin with its own name; returns the exit code.
pub fn run(words: Vec<OsString>) -> u8 {
    match carry_out(Arguments::parse_from(words)) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("outboard monitor: {why}");
            1
        }
    }
}

fn carry_out(arguments: Arguments) -> Result<(), String> {
    if let Some(Task::Completion { shell }) = arguments.task {
        let mut command = Arguments::command();
        clap_complete::generate(shell, &mut command, "outboard-monitor", &mut std::io::stdout());
        return Ok(());
    }
    let mut config = match &arguments.config {
        Some(file) => Config::read(file)?,
        None => Config { data: own_folder(), ..Config::default() },
    };
    config.data = arguments.data.unwrap_or(config.data);
    config.listen = arguments.listen.unwrap_or(config.listen);
    if arguments.check_config {
        println!("outboard monitor: the configuration is valid");
        return Ok(());
    }
    if let Some(Task::Agent { to, key_file, print }) = arguments.task {
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
        Some(Task::AddAccount { name, role, project }) => {
            if std::io::stdin().is_terminal() {
                eprintln!(
                    "the password of {name}, at least {} characters:",
                    crate::people::PASSWORD_CHARS_MIN
                );
            }
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map_err(|error| format!("no password: {error}"))?;
            people(&config)?.add(&name, role, &project, line.trim_end_matches(['\n', '\r']))
        }
        Some(Task::RemoveAccount { name }) => people(&config)?.remove(&name),
        Some(Task::AgentKey { host }) => {
            let secret = hosts::secret_of(&config.data)?;
            host.iter().for_each(|host| println!("{host} {}", agent::host_key(&secret, host)));
            Ok(())
        }
        Some(Task::Agent { .. } | Task::Completion { .. }) | None => serve(&config),
    }
}

fn people(config: &Config) -> Result<People, String> {
    People::open(&config.data, Arc::new(Control::open(&config.data)?))
}

/// Without a configuration: root's is the system's, a user's is in his home.
fn own_folder() -> PathBuf {
    match std::env::var_os("HOME") {
        Some(home) if !rustix::process::getuid().is_root() => {
            Path::new(&home).join(".local/state/outboard-monitor")
        }
        _ => Config::default().data,
    }
}

fn make_private(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| format!("{}: {error}", folder.display()))
}

/// How often the directory is asked what its people are now.
const DIRECTORY_EVERY: Duration = Duration::from_secs(600);

/// Accounts of the directory follow it, in a thread of their own.
fn follow_directory(people: &Arc<People>, directory: Option<Directory>) -> Result<(), String> {
    // Where there is none any more it has no people.
    let Some(directory) = directory else { return people.refresh(|_| Ok(None)) };
    let people = people.clone();
    std::thread::spawn(move || {
        loop {
            if let Err(why) = people.refresh(|name| directory.named(name)) {
                eprintln!("outboard monitor: {why}");
            }
            std::thread::sleep(DIRECTORY_EVERY);
        }
    });
    Ok(())
}

/// How often the store is asked how large its tables are.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// Starts everything and serves until it is told to end.
fn serve(config: &Config) -> Result<(), String> {
    let files = Files::read(&share()?)?;
    let control = Arc::new(Control::open(&config.data)?);
    let people = Arc::new(People::open(&config.data, control.clone())?);
    follow_directory(&people, config.ldap.clone())?;
    alerts::begin(&control)?;
    let listener = std::net::TcpListener::bind(config.listen)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| format!("{} cannot be served: {error}", config.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let store = Arc::new(Store::open(config)?);
    let spool = config.store.spool.clone().unwrap_or_else(|| config.data.join("spool"));
    let writer = Writer::start(store.clone(), &spool, config.store.spool_mb << 20)?;
    let measured = store.clone();
    std::thread::spawn(move || {
        loop {
            measured.measure();
            std::thread::sleep(MEASURE_EVERY);
        }
    });
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
    let links = Arc::new(Mutex::new(Links::read(&control)));
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
    println!("outboard monitor: http://{address}/#key={}", people.key());
    let web = Arc::new(Web {
        live,
        store,
        writer: writer.clone(),
        people,
        directory: config.ldap.clone(),
        files,
        control,
        links,
        channels: config.notify.clone(),
        delivered,
        agent_secret: hosts::secret_of(&config.data)?,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no event loop: {error}"))?;
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(|error| error.to_string())?;
        tokio::select! {
            served = axum::serve(listener, router(web.clone())) => served.map_err(|error| error.to_string()),
            () = ended() => Ok(()),
        }
    });
    // A question to a store that does not answer may take a minute.
    runtime.shutdown_background();
    writer.flush();
    served
}

/// SIGINT or SIGTERM.
async fn ended() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
}

/// Where the page's files are installed: beside the programs.
fn share() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let root = here.parent().and_then(Path::parent).ok_or("this program has no folder")?;
    Ok(root.join("share/outboard/monitor"))
}
