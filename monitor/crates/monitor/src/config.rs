// SPDX-License-Identifier: BSD-3-Clause
//! The monitor's configuration file (TOML). Every field has a default, so a machine without the file works,
//! too.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::acme::Acme;
use crate::directory::Directory;
use crate::fabric::exchange::ExchangeLimits;
use crate::fabric::names;
use crate::http::is_url;
use crate::issuer::Issuer;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MonitorConfig {
    /// The address and port at which the monitor serves its web page.
    pub listen: SocketAddr,
    /// The path in the URL below which a reverse proxy serves the web page, such as `/monitor`.
    pub base_path: String,
    /// The files with the web page's certificate and key. With None here and in `acme` the page is served in
    /// plain HTTP.
    pub tls: Option<TlsFiles>,
    /// How the web page gets certificates from a certificate authority (ACME). None if the certificate comes
    /// from the files in `tls`, or if the page is served in plain HTTP.
    pub acme: Option<Acme>,
    /// The addresses of reverse proxies whose headers are trusted (X-Forwarded-For, -Host, -Proto).
    pub proxies: Vec<IpAddr>,
    /// The most connections to the web page that one client address may have open at once. A reverse proxy
    /// may have more.
    pub connections_each: usize,
    /// The folder for everything that the monitor stores.
    pub data: PathBuf,
    pub fabric: FabricConfig,
    pub store: StoreConfig,
    pub jobs: JobsConfig,
    pub agent: AgentConfig,
    /// The LDAP directory whose people may log in, too. None if only the monitor's own accounts may.
    pub ldap: Option<Directory>,
    /// The OpenID issuer through which people may log in. None if there is none.
    pub oidc: Option<Issuer>,
    /// The channels by which alerts are sent. Each criterion names the channels for its own alerts.
    pub notify: Vec<Notify>,
    pub mail: MailConfig,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The PEM file with the certificate and its chain.
    pub certificate: PathBuf,
    /// The PEM file with the certificate's key.
    pub key: PathBuf,
}

/// A channel by which people are notified of alerts: mail, webhook, command, or several of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Notify {
    pub name: String,
    /// The mail addresses to which alerts are sent.
    pub mail: Vec<String>,
    /// A URL to which alerts are sent as JSON by POST, or None.
    pub webhook: Option<String>,
    /// A program with its arguments. It gets alerts as JSON on its standard input.
    pub command: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MailConfig {
    pub from: String,
    /// The mail server, such as `smtp://mail.site:25` or `smtps://name:password@mail.site`. With None mail is
    /// sent by `sendmail`.
    pub smtp: Option<String>,
    pub sendmail: PathBuf,
}

impl Default for MailConfig {
    fn default() -> MailConfig {
        let sendmail = PathBuf::from("/usr/sbin/sendmail");
        MailConfig { from: "outboard-monitor@localhost".into(), smtp: None, sendmail }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FabricConfig {
    /// The adapter through which the fabric is read, such as `mlx5_0`. With None it is the first adapter with
    /// an active port.
    pub device: Option<String>,
    /// The number of the adapter's port. With 0 it is the adapter's first active port.
    pub port: u8,
    pub discover_s: u64,
    pub sweep_s: u64,
    /// The site's map file, which has the names and racks of nodes by GUID. None if there is no such file.
    pub map: Option<PathBuf>,
    /// The GUIDs (hexadecimal) of nodes whose counters are not read.
    pub skip: Vec<String>,
    pub limits: ExchangeLimits,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// The URL of a ClickHouse server, such as `http://db.site:8123`. With None the store is chDB in the data
    /// folder.
    pub url: Option<String>,
    pub user: Option<String>,
    /// A file with the password of `user` at the ClickHouse server. None if there is no password.
    pub key_file: Option<PathBuf>,
    /// The folder of chDB's Python environment. It is made if it is missing. With None it is in the data
    /// folder.
    pub venv: Option<PathBuf>,
    /// The folder in which rows wait until the store takes them. With None it is in the data folder.
    pub spool: Option<PathBuf>,
    pub spool_mb: u64,
    /// The seconds after which a store that has not answered counts as away.
    pub answer_s: u64,
    pub keep: Keep,
}

/// For how many days the store keeps each kind of data.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keep {
    /// For how many days single samples of ports, hosts and ranks are kept.
    pub samples_days: u32,
    /// For how many days the sums of the samples of each minute are kept.
    pub minutes_days: u32,
    /// For how many days the sums of the samples of each ten minutes are kept.
    pub tens_days: u32,
    /// For how many days a job is kept after it was last seen.
    pub jobs_days: u32,
}

impl Default for Keep {
    fn default() -> Keep {
        Keep { samples_days: 30, minutes_days: 365, tens_days: 1826, jobs_days: 365 }
    }
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        let (url, user, key_file, venv, spool) = (None, None, None, None, None);
        StoreConfig { url, user, key_file, venv, spool, spool_mb: 1024, answer_s: 30, keep: Keep::default() }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobsConfig {
    pub interval_s: u64,
    /// The file with which `kubectl` reaches a Kubernetes whose MPIJobs are shown. With None no MPIJobs are
    /// shown.
    pub kubeconfig: Option<PathBuf>,
    /// The REST daemon that is asked for Slurm's jobs. With None `squeue` and `sacct` are run.
    pub slurmrestd: Option<Slurmrestd>,
    /// Whether Slurm's accounting is asked how a job ended, once Slurm no longer lists the job.
    pub accounting: bool,
    /// Whether a user sees only the hosts on which a job runs that the user may see (as with Slurm's
    /// PrivateData = nodes).
    pub private_hosts: bool,
}

/// The section of the configuration that says how Slurm's REST daemon is reached.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slurmrestd {
    /// The URL of Slurm's REST daemon, such as `http://head.site:6820`.
    pub url: String,
    /// The version of the REST daemon's interface, such as `v0.0.38`.
    pub version: String,
    /// The user to whom the token in `token_file` belongs.
    pub user: String,
    /// The file with a token, as `scontrol token` prints it. The file is read again before each request to
    /// the daemon.
    pub token_file: PathBuf,
}

/// How this host reports itself: what it leaves out, and to which collector it sends reports.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The URL of the collector to which this host sends reports, such as `http://head.site:8270`. None if
    /// this host sends no reports.
    pub to: Option<String>,
    /// A file with the key with which this host signs its reports. None if this host sends no reports.
    pub key_file: Option<PathBuf>,
    pub interval_s: u64,
    /// Sources and links that this host does not report, such as `gpu` or `eth1`.
    pub skip: Vec<String>,
    /// The name under which this host reports. The default is the host's own name.
    pub host: Option<String>,
    /// A PEM file with the root certificates that the collector's certificate is checked against. With None
    /// they are the certificates that browsers trust.
    pub trusted: Option<PathBuf>,
}

impl Default for AgentConfig {
    fn default() -> AgentConfig {
        AgentConfig { to: None, key_file: None, interval_s: 10, skip: Vec::new(), host: None, trusted: None }
    }
}

impl Default for MonitorConfig {
    fn default() -> MonitorConfig {
        MonitorConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 8270)),
            base_path: String::new(),
            tls: None,
            acme: None,
            proxies: Vec::new(),
            connections_each: 64,
            data: PathBuf::from("/var/lib/outboard-monitor"),
            fabric: FabricConfig::default(),
            store: StoreConfig::default(),
            jobs: JobsConfig::default(),
            agent: AgentConfig::default(),
            ldap: None,
            oidc: None,
            notify: Vec::new(),
            mail: MailConfig::default(),
        }
    }
}

impl Default for FabricConfig {
    fn default() -> FabricConfig {
        FabricConfig {
            device: None,
            port: 0,
            discover_s: 60,
            sweep_s: 10,
            map: None,
            skip: Vec::new(),
            limits: ExchangeLimits::default(),
        }
    }
}

impl Default for JobsConfig {
    fn default() -> JobsConfig {
        JobsConfig {
            interval_s: 5,
            kubeconfig: None,
            slurmrestd: None,
            accounting: true,
            private_hosts: false,
        }
    }
}

impl MonitorConfig {
    pub fn read(path: &Path) -> Result<MonitorConfig, String> {
        let named = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        MonitorConfig::parse(&text).map_err(named)
    }

    fn parse(text: &str) -> Result<MonitorConfig, String> {
        let config: MonitorConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        let times = [
            ("fabric.discover_s", config.fabric.discover_s),
            ("fabric.sweep_s", config.fabric.sweep_s),
            ("jobs.interval_s", config.jobs.interval_s),
            ("agent.interval_s", config.agent.interval_s),
        ];
        let times = times.into_iter().chain([("store.answer_s", config.store.answer_s)]);
        for (name, seconds) in times {
            if !(1..=86_400).contains(&seconds) {
                return Err(format!("{name} = {seconds}: a time between 1 and 86400 seconds is needed"));
            }
        }
        let Keep { samples_days, minutes_days, tens_days, jobs_days } = config.store.keep;
        let days = [
            ("samples_days", samples_days),
            ("minutes_days", minutes_days),
            ("tens_days", tens_days),
            ("jobs_days", jobs_days),
        ];
        for (name, days) in days {
            if !(2..=36_500).contains(&days) {
                return Err(format!("store.keep.{name} = {days}: 2 to 36500 days are needed"));
            }
        }
        config.check_page()?;
        if !(1..=1 << 24).contains(&config.store.spool_mb) {
            return Err("store.spool_mb: 1 to 16777216 MB are needed".into());
        }
        if !(1..=4096).contains(&config.fabric.limits.in_flight) {
            return Err("fabric.limits.in_flight: a number between 1 and 4096 is needed".into());
        }
        config.fabric.skipped()?;
        config.check_notify()?;
        config.ldap.as_ref().map_or(Ok(()), Directory::check)?;
        config.oidc.as_ref().map_or(Ok(()), Issuer::check)?;
        if config.tls.is_some() && config.acme.is_some() {
            return Err("[tls] and [acme]: one of them says where certificates come from".into());
        }
        Ok(config)
    }
}

impl MonitorConfig {
    /// Checks that each file and program that the configuration names exists, and that each file has the
    /// contents that its field needs. An error has a line for each fault.
    pub fn check_places(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        let mut file = |name: &str, path: Option<&PathBuf>| {
            let path = path?;
            std::fs::read(path)
                .map_err(|error| wrong.push(format!("{name}: {}: {error}", path.display())))
                .ok()
        };
        let map = file("fabric.map", self.fabric.map.as_ref());
        let rest = self.jobs.slurmrestd.as_ref();
        file("store.key_file", self.store.key_file.as_ref());
        file("jobs.kubeconfig", self.jobs.kubeconfig.as_ref());
        file("jobs.slurmrestd.token_file", rest.map(|rest| &rest.token_file));
        file("agent.key_file", self.agent.key_file.as_ref());
        file("agent.trusted", self.agent.trusted.as_ref());
        let oidc = self.oidc.as_ref();
        file("oidc.client_secret_file", oidc.and_then(|oidc| oidc.client_secret_file.as_ref()));
        file("oidc.trusted", oidc.and_then(|oidc| oidc.trusted.as_ref()));
        file("ldap.bind_password_file", self.ldap.as_ref().and_then(|ldap| ldap.bind_password_file.as_ref()));
        let (_, lines) = map.map_or_else(Default::default, |map| names::read(&String::from_utf8_lossy(&map)));
        wrong.extend(lines.into_iter().map(|why| format!("fabric.map: {why}")));
        if let Some(tls) = &self.tls {
            wrong.extend(
                crate::tls::Files::open(&tls.certificate, &tls.key).err().map(|why| format!("tls: {why}")),
            );
        }
        wrong.extend(self.acme.as_ref().and_then(|acme| acme.check().err()));
        let mut url = |name: String, url: Option<&String>| {
            wrong.extend(url.and_then(|url| is_url(url).err()).map(|why| format!("{name}: {why}")));
        };
        url("store.url".into(), self.store.url.as_ref());
        url("jobs.slurmrestd.url".into(), rest.map(|rest| &rest.url));
        url("agent.to".into(), self.agent.to.as_ref());
        for one in &self.notify {
            url(format!("notify {:?}: webhook", one.name), one.webhook.as_ref());
        }
        for one in self.notify.iter().filter(|one| !one.command.is_empty()) {
            if !is_program(&one.command[0]) {
                wrong.push(format!(
                    "notify {:?}: command: there is no program {:?}",
                    one.name, one.command[0]
                ));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }

    pub fn check_page(&self) -> Result<(), String> {
        let base = &self.base_path;
        let is_odd = |part: &str| {
            part.is_empty() || !part.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char))
        };
        if !base.is_empty() && base.strip_prefix('/').is_none_or(|path| path.split('/').any(is_odd)) {
            return Err(format!(
                "base_path = {base:?}: a path as /monitor is needed, without a slash at its end"
            ));
        }
        if self.connections_each == 0 {
            return Err("connections_each: at least 1 is needed".into());
        }
        Ok(())
    }

    fn check_notify(&self) -> Result<(), String> {
        let address = |text: &String| {
            text.parse::<lettre::message::Mailbox>()
                .map_err(|why| format!("{text:?} is no mail address: {why}"))
        };
        address(&self.mail.from).map_err(|why| format!("mail.from: {why}"))?;
        if let Some(url) = &self.mail.smtp {
            lettre::SmtpTransport::from_url(url).map_err(|why| format!("mail.smtp: {why}"))?;
        }
        for (at, one) in self.notify.iter().enumerate() {
            let named = |why: String| format!("notify {:?}: {why}", one.name);
            if one.name.is_empty() || self.notify[..at].iter().any(|other| other.name == one.name) {
                return Err(named("each has a name of its own".into()));
            }
            if one.mail.is_empty() && one.webhook.is_none() && one.command.is_empty() {
                return Err(named("mail, webhook or command says how to tell".into()));
            }
            one.mail.iter().try_for_each(|text| address(text).map(|_| ()).map_err(named))?;
        }
        Ok(())
    }
}

/// Whether there is a program `name`. `name` is a path to a file, or a name that is searched in PATH.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    name.contains('/') && Path::new(name).is_file()
        || !name.contains('/') && std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

impl FabricConfig {
    pub fn skipped(&self) -> Result<std::collections::BTreeSet<u64>, String> {
        let guid = |text: &String| {
            u64::from_str_radix(text.trim_start_matches("0x"), 16)
                .map_err(|_| format!("fabric.skip: {text:?} is no GUID in hexadecimal"))
        };
        self.skip.iter().map(guid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_and_not_there_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let map = folder.path().join("map");
        std::fs::write(&map, "0x1f \"leaf\"\nno guid\n").unwrap();
        let text = format!(
            "[fabric]\nmap = {map:?}\n[store]\nurl = 'db:8123'\nkey_file = '/nowhere/key'\n[tls]\ncertificate = '/nowhere/c'\n\
             key = '/nowhere/k'\n[[notify]]\nname = 'ops'\nwebhook = 'chat.site'\ncommand = ['/nowhere/page']\n"
        );
        let why = MonitorConfig::parse(&text).unwrap().check_places().unwrap_err();
        for word in [
            "fabric.map: line 2",
            "store.url",
            "store.key_file: /nowhere/key",
            "tls: /nowhere/c",
            "webhook: \"chat.site\"",
            "\"/nowhere/page\"",
        ] {
            assert!(why.contains(word), "{word}: {why}");
        }
        assert_eq!(why.lines().count(), 6, "{why}");
        assert_eq!(MonitorConfig::default().check_places(), Ok(()));
        assert!(is_program("sh") && is_program("/bin/sh") && !is_program("no-such-program"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(MonitorConfig::parse("[fabric]\nsweep_s = 1\nskip = ['0x1f', '20']").is_ok());
        let wrong = [
            ("[fabric]\nsweep_s = 0", "fabric.sweep_s"),
            ("[fabric]\nskip = ['leaf']", "\"leaf\""),
            ("[fabrik]\n", "fabrik"),
            ("listen = 'here'", "listen"),
            ("base_path = 'monitor'", "base_path"),
            ("base_path = '/monitor/'", "base_path"),
            ("proxies = ['head.site']", "proxies"),
            ("[tls]\ncertificate = '/c.pem'", "key"),
            ("[fabric.limits]\nin_flight = 0", "in_flight"),
            ("[store]\nanswer_s = 0", "store.answer_s"),
            ("[store.keep]\nsamples_days = 1", "store.keep.samples_days = 1"),
            ("[[notify]]\nname = 'ops'", "\"ops\": mail, webhook or command"),
            ("[[notify]]\nname = 'ops'\nmail = ['nobody']", "\"nobody\" is no mail address"),
            ("[[notify]]\ncommand = ['/bin/true']", "a name of its own"),
            ("[mail]\nsmtp = 'mail.site'", "mail.smtp"),
            ("[ldap]\nurl = 'ldap.site'\npeople = 'dc=site'", "ldap.url"),
            ("[jobs.slurmrestd]\nurl = 'http://head:6820'", "version"),
        ];
        for (text, name) in wrong {
            let error = MonitorConfig::parse(text).unwrap_err();
            assert!(error.contains(name), "{text}: {error}");
        }
    }
}
