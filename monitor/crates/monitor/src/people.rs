// SPDX-License-Identifier: BSD-3-Clause
//! Accounts, roles, and sessions.
//!
//! `control.rs` stores the accounts, with passwords as Argon2 hashes. At first there is no account and no
//! default password: whoever can read the file `key` in the data folder is the administrator. Programs use a
//! token of an account: 128 random bits, of which the hash is stored. A person whom a directory
//! (`directory.rs`) or an OpenID issuer (`issuer.rs`) knows gets an account without a password, once the
//! directory or issuer has confirmed who the person is.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use clap::ValueEnum;
use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::control::Control;
use crate::job::Job;
use crate::secret;
use crate::time::now_ms;

/// What a person may see. Each role sees all that the role before it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees the fabric, and the person's own jobs.
    User,
    /// Also sees the jobs of the projects that the person manages.
    Manager,
    /// Sees all jobs, and acknowledges alerts.
    Support,
    /// Sees and changes everything.
    Admin,
}

/// The person who sends a request to the web page, with the person's rights.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Who {
    pub name: String,
    pub role: Role,
    /// The projects whose jobs the person may see as a manager.
    pub projects: Vec<String>,
}

impl Who {
    /// Whether the person may see a job, by the person's role, name and projects.
    pub fn sees(&self, job: &Job) -> bool {
        let is_of_project = self.role == Role::Manager && self.projects.contains(&job.project);
        self.role >= Role::Support || self.name == job.user || is_of_project
    }
}

/// The rights that the members of one group in a directory or at an OpenID issuer get.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The group's name. An OpenID issuer uses a plain name; a directory uses the name of the group's entry,
    /// such as `cn=admins,ou=groups,dc=site`.
    pub group: String,
    role: Role,
    /// The projects whose jobs a member of the group may see as a manager.
    #[serde(default)]
    project: Vec<String>,
}

impl Who {
    /// Returns the rights of the person `name`, who is in the groups of `grants`. Somebody in several groups
    /// has the highest of their roles; somebody in no group is a user.
    pub fn of<'a>(name: &str, grants: impl IntoIterator<Item = &'a Grant>) -> Who {
        let mut who = Who { name: name.into(), role: Role::User, projects: Vec::new() };
        for grant in grants {
            who.role = who.role.max(grant.role);
            who.projects.extend(grant.project.iter().cloned());
        }
        who.projects.sort();
        who.projects.dedup();
        who
    }
}

/// The two places outside the monitor that know people and check who they are: a directory and an OpenID
/// issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    Directory,
    Issuer,
}

impl Elsewhere {
    /// Returns the text that the accounts from this directory or issuer have in place of a password's hash.
    /// It is no hash, so no password fits it.
    fn mark(self) -> &'static str {
        match self {
            Elsewhere::Directory => "directory",
            Elsewhere::Issuer => "issuer",
        }
    }
}

#[derive(Clone, PartialEq)]
struct Account {
    role: Role,
    projects: Vec<String>,
    hash: String,
}

impl Account {
    /// Returns where this account's password is: `here`, `directory` or `issuer`.
    fn kept(&self) -> &'static str {
        let elsewhere = [Elsewhere::Directory, Elsewhere::Issuer].map(Elsewhere::mark);
        elsewhere.into_iter().find(|mark| self.hash == *mark).unwrap_or(HERE)
    }
}

/// An account as the list of accounts in the web page shows it.
#[derive(Serialize)]
pub struct ListedAccount {
    #[serde(flatten)]
    pub who: Who,
    pub kept: &'static str,
}

/// The name of a person who logged in with the administrator's key. No account can have this name.
const KEY_HOLDER: &str = "admin (key)";
/// What `kept` returns for an account whose password the monitor itself stores.
const HERE: &str = "here";
/// The name that stands in the log for a person who used the command line.
pub const THIS_HOST: &str = "(this host)";
const SESSION: Duration = Duration::from_secs(12 * 3600);
const SESSIONS_MAX: usize = 10_000;
const NAME_CHARS_MAX: usize = 64;
const TOKEN_DAYS_MAX: u64 = 3660;
const TOKENS_MAX: i64 = 100;
pub const PASSWORD_CHARS_MIN: usize = 10;
const PASSWORD_CHARS_MAX: usize = 1024;

/// Whether `name` may be the name of an account: it has few and only certain characters.
pub fn is_name(name: &str) -> bool {
    let is_known = |char: char| char.is_ascii_alphanumeric() || "-_.@".contains(char);
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_known)
}

struct Session {
    who: Who,
    /// The account as it was when the session began. None if the session was begun with the administrator's
    /// key.
    account: Option<Account>,
    end: Instant,
}

pub struct People {
    control: Arc<Control>,
    key: String,
    sessions: Mutex<HashMap<String, Session>>,
    /// Tells the open web pages of each log-out. For each page it is then checked whether the page's session
    /// still exists.
    log_outs: watch::Sender<()>,
}

impl People {
    pub fn open(data: &Path, control: Arc<Control>) -> Result<People, String> {
        let key = secret::kept(&data.join("key"))?;
        Ok(People { control, key, sessions: Mutex::default(), log_outs: watch::Sender::new(()) })
    }

    /// Returns the administrator's key. Whoever has it may open the web page without an account.
    pub fn key(&self) -> &str {
        &self.key
    }

    fn account(&self, name: &str) -> Option<Account> {
        let found = self.control.read(|db| {
            let sql = "SELECT name, role, projects, hash FROM accounts WHERE name = ?";
            db.query_row(sql, [name], row).optional()
        });
        account(found.ok()??).map(|(_, account)| account)
    }

    /// Adds an account, or changes its role and password. With None as password an existing account keeps its
    /// password.
    pub fn add(&self, by: &str, who: &Who, password: Option<&str>) -> Result<(), String> {
        let name = &who.name;
        if !is_name(name) {
            return Err(format!("{name:?}: a name has letters, digits and -_.@, at most {NAME_CHARS_MAX}"));
        }
        let hash = match (password, self.account(name)) {
            (Some(password), _) => hash_of(password)?,
            (None, Some(account)) if account.kept() == HERE => account.hash,
            (None, Some(account)) => return Err(not_here(name, &account)),
            (None, None) => return Err(format!("{name:?} is new and needs a password")),
        };
        self.keep(by, name, &Account { role: who.role, projects: who.projects.clone(), hash })
    }

    fn keep(&self, by: &str, name: &str, account: &Account) -> Result<(), String> {
        let role = account.role.to_possible_value();
        let role = role.map_or_else(String::new, |role| role.get_name().into());
        self.control.with(|db| {
            let row = params![name, role, json!(account.projects).to_string(), account.hash];
            db.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?)", row)
        })?;
        self.control.audit(by, &format!("gives {name} the role {role}"));
        Ok(())
    }

    /// Returns all accounts in the order of their names.
    pub fn list(&self) -> Result<Vec<ListedAccount>, String> {
        let rows: Vec<AccountRow> = self.control.read(|db| {
            let mut found = db.prepare("SELECT name, role, projects, hash FROM accounts ORDER BY name")?;
            found.query_map([], row)?.collect()
        })?;
        let listed = |(name, account): (String, Account)| ListedAccount {
            kept: account.kept(),
            who: Who { name, role: account.role, projects: account.projects },
        };
        Ok(rows.into_iter().filter_map(account).map(listed).collect())
    }

    /// Whether there is an account `name` that does not come from `elsewhere`, a directory or an issuer.
    pub fn is_not_of(&self, elsewhere: Elsewhere, name: &str) -> bool {
        self.account(name).is_some_and(|account| account.hash != elsewhere.mark())
    }

    /// Begins a session for a person whom a directory or issuer (`by`) has checked. `who` has the role that
    /// `by` gave the person. Returns the session's id and the person.
    pub fn log_in_checked(&self, by: Elsewhere, who: Who) -> Result<(String, Who), String> {
        if self.is_not_of(by, &who.name) {
            return Err(format!("there is an account {:?} that is not of the {}", who.name, by.mark()));
        }
        self.follow(by, &who)?;
        Ok(self.begin(who))
    }

    /// Updates the account of a person whom a directory or issuer (`by`) has checked: the account gets the
    /// rights that the person has there now. Makes the account if it is missing.
    fn follow(&self, by: Elsewhere, who: &Who) -> Result<(), String> {
        let hash = by.mark().to_string();
        let now = Account { role: who.role, projects: who.projects.clone(), hash };
        let is_so = self.account(&who.name).as_ref() == Some(&now);
        if is_so { Ok(()) } else { self.keep(&format!("({})", by.mark()), &who.name, &now) }
    }

    /// Asks a directory or issuer, by calling `named`, for the present rights of all its people who have an
    /// account. A person whom it no longer knows loses account and tokens. If it does not answer, all
    /// accounts stay.
    pub fn refresh(
        &self,
        elsewhere: Elsewhere,
        named: impl Fn(&str) -> Result<Option<Who>, String>,
    ) -> Result<(), String> {
        let names: Vec<String> = self.control.read(|db| {
            let mut found = db.prepare("SELECT name FROM accounts WHERE hash = ?")?;
            found.query_map([elsewhere.mark()], |row| row.get(0))?.collect()
        })?;
        for name in names {
            match named(&name)? {
                Some(who) => self.follow(elsewhere, &who)?,
                None => self.remove(&format!("({})", elsewhere.mark()), &name)?,
            }
        }
        Ok(())
    }

    /// Removes an account and its tokens, on behalf of the person `by`.
    pub fn remove(&self, by: &str, name: &str) -> Result<(), String> {
        let removed = self.control.with(|db| {
            db.execute("DELETE FROM tokens WHERE account = ?", [name])?;
            db.execute("DELETE FROM accounts WHERE name = ?", [name])
        })?;
        if removed == 0 {
            return Err(format!("there is no account {name:?}"));
        }
        self.control.audit(by, &format!("removes the account {name}"));
        Ok(())
    }

    /// Begins a session for the person with this name and password. Returns the session's id and the person,
    /// or None if name or password is wrong.
    pub fn log_in(&self, name: &str, password: &str) -> Option<(String, Who)> {
        let account = self.checked(name, password)?;
        Some(self.begin(Who { name: name.into(), role: account.role, projects: account.projects }))
    }

    /// Returns the account that has this name and password, or None if name or password is wrong. An unknown
    /// name takes as long to check as a known one, so the time does not show which names exist.
    fn checked(&self, name: &str, password: &str) -> Option<Account> {
        // The hash of a password that nobody has.
        const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$\
                              AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let account = self.account(name);
        let hash = account.as_ref().map_or(NOBODY, |account| &account.hash);
        let is_right = password.len() <= 4 * PASSWORD_CHARS_MAX
            && PasswordHash::new(hash)
                .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
        account.filter(|_| is_right)
    }

    /// Begins a session for a person who has the administrator's key. Returns the session's id and the
    /// person, or None if the key is wrong.
    pub fn log_in_by_key(&self, key: &str) -> Option<(String, Who)> {
        let who = Who { name: KEY_HOLDER.into(), role: Role::Admin, projects: Vec::new() };
        secret::same(key, &self.key).then(|| self.begin(who))
    }

    fn begin(&self, who: Who) -> (String, Who) {
        let (id, account) = (secret::random(), self.account(&who.name));
        let mut sessions = self.sessions();
        sessions.retain(|_, session| session.end > Instant::now());
        if sessions.len() >= SESSIONS_MAX
            && let Some(oldest) =
                sessions.iter().min_by_key(|(_, session)| session.end).map(|(id, _)| id.clone())
        {
            sessions.remove(&oldest);
        }
        sessions.insert(id.clone(), Session { who: who.clone(), account, end: Instant::now() + SESSION });
        (id, who)
    }

    /// Returns the person of a session, or None if the session has ended. A session also ends when its
    /// account is removed or gets another role or password.
    pub fn session(&self, id: &str) -> Option<Who> {
        let (who, account) = {
            let sessions = self.sessions();
            let session = sessions.get(id).filter(|session| session.end > Instant::now())?;
            (session.who.clone(), session.account.clone())
        };
        (self.account(&who.name) == account).then_some(who)
    }

    /// Returns the person who has the account `name`, with the account's present rights, or None if there is
    /// no such account.
    fn named(&self, name: &str) -> Option<Who> {
        self.account(name).map(|now| Who { name: name.into(), role: now.role, projects: now.projects })
    }

    /// Returns the person to whom a token belongs, with the account's present rights. Returns None if the
    /// token is unknown or has ended.
    pub fn bearer(&self, token: &str) -> Option<Who> {
        let found = self.control.read(|db| {
            let sql = "SELECT account FROM tokens WHERE hash = ? AND ends > ?";
            db.query_row(sql, params![hashed(token), now_ms() as i64], |row| row.get::<_, String>(0))
                .optional()
        });
        self.named(&found.ok()??)
    }

    /// Makes a token for an account and returns it. The token ends after `days`. Nobody can read it later,
    /// because only its hash is stored.
    pub fn add_token(&self, who: &Who, name: &str, days: u64) -> Result<String, String> {
        if self.named(&who.name).is_none() {
            return Err("a token belongs to an account; the administrator's key has none".into());
        }
        if !(1..=TOKEN_DAYS_MAX).contains(&days) || name.is_empty() || name.chars().count() > NAME_CHARS_MAX {
            return Err(format!("a token has a name, and 1 to {TOKEN_DAYS_MAX} days"));
        }
        let token = format!("obm_{}", secret::random());
        let ends = now_ms() + days * 86_400_000;
        let is_added = self.control.with(|db| {
            let sql = "SELECT count(*) FROM tokens WHERE account = ?";
            if db.query_row(sql, [&who.name], |row| row.get::<_, i64>(0))? >= TOKENS_MAX {
                return Ok(false);
            }
            let id = &hashed(&token)[..12];
            let row = params![hashed(&token), id, who.name, name, now_ms() as i64, ends as i64];
            db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?)", row).map(|_| true)
        })?;
        if is_added { Ok(token) } else { Err(format!("an account has at most {TOKENS_MAX} tokens")) }
    }

    /// Returns what is stored about the tokens of an account, without the secrets themselves.
    pub fn tokens(&self, account: &str) -> Result<Vec<Value>, String> {
        self.control.read(|db| {
            let sql = "SELECT id, name, made, ends FROM tokens WHERE account = ? ORDER BY made";
            let mut found = db.prepare(sql)?;
            let rows = found.query_map([account], |row| {
                let (id, name): (String, String) = (row.get(0)?, row.get(1)?);
                let (made, ends): (i64, i64) = (row.get(2)?, row.get(3)?);
                Ok(json!({"id": id, "name": name, "made": made, "ends": ends}))
            })?;
            rows.collect()
        })
    }

    /// Removes a token of an account. Returns false if the account has no token with this id.
    pub fn remove_token(&self, account: &str, id: &str) -> Result<bool, String> {
        let sql = "DELETE FROM tokens WHERE account = ? AND id = ?";
        self.control.with(|db| db.execute(sql, [account, id])).map(|removed| removed > 0)
    }

    pub fn log_out(&self, id: &str) {
        self.sessions().remove(id);
        self.log_outs.send_replace(());
    }

    pub fn log_outs(&self) -> watch::Receiver<()> {
        self.log_outs.subscribe()
    }

    /// Gives an account another password. Its role stays the same.
    pub fn set_password(&self, by: &str, name: &str, password: &str) -> Result<(), String> {
        let Some(account) = self.account(name) else {
            return Err(format!("there is no account {name:?}; add-account makes one"));
        };
        if account.kept() != HERE {
            return Err(not_here(name, &account));
        }
        let Account { role, projects, .. } = account;
        self.add(by, &Who { name: name.into(), role, projects }, Some(password))
    }

    /// Changes the password of an account for a person who knows the old one. Ends all sessions of the
    /// account, and begins a new one. Returns the new session's id and the person.
    pub fn change_password(&self, name: &str, old: &str, new: &str) -> Result<(String, Who), String> {
        let Account { role, projects, .. } = self.checked(name, old).ok_or("the old password is wrong")?;
        let who = Who { name: name.into(), role, projects };
        self.add(name, &who, Some(new))?;
        Ok(self.begin(who))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type AccountRow = (String, String, String, String);

/// Reads an account's name, role, projects and hash of the password from a row of the table `accounts`.
fn row(row: &rusqlite::Row) -> rusqlite::Result<AccountRow> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

fn account((name, role, projects, hash): AccountRow) -> Option<(String, Account)> {
    let role = Role::from_str(&role, false).ok()?;
    Some((name, Account { role, projects: serde_json::from_str(&projects).ok()?, hash }))
}

fn not_here(name: &str, account: &Account) -> String {
    format!("{name:?} is of the {}, which has the password", account.kept())
}

fn hash_of(password: &str) -> Result<String, String> {
    if !(PASSWORD_CHARS_MIN..=PASSWORD_CHARS_MAX).contains(&password.chars().count()) {
        return Err(format!("a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters"));
    }
    let salt = SaltString::encode_b64(secret::random().as_bytes()).map_err(|error| error.to_string())?;
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
    hash.map(|hash| hash.to_string()).map_err(|error| format!("the password cannot be hashed: {error}"))
}

fn hashed(token: &str) -> String {
    Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn people() -> (tempfile::TempDir, People) {
        let folder = tempfile::tempdir().unwrap();
        let control = Arc::new(Control::open(folder.path()).unwrap());
        let people = People::open(folder.path(), control).unwrap();
        (folder, people)
    }

    fn add(people: &People, name: &str, role: Role, projects: &[&str], password: &str) -> Result<(), String> {
        let projects = projects.iter().map(|project| project.to_string()).collect();
        people.add(THIS_HOST, &Who { name: name.into(), role, projects }, Some(password))
    }

    fn job(user: &str, project: &str) -> Job {
        Job { user: user.into(), project: project.into(), ..Job::default() }
    }

    #[test]
    fn a_session_is_of_who_knows_the_password() {
        let (folder, people) = people();
        assert!(people.log_in("ann", "").is_none(), "there is no default account");
        assert!(add(&people, "ann", Role::User, &[], "short").unwrap_err().contains("10 to"));
        assert!(add(&people, "../ann", Role::User, &[], "long enough").is_err());
        add(&people, "ann", Role::User, &[], "long enough").unwrap();
        assert!(people.log_in("ann", "long enougH").is_none());
        let (id, who) = people.log_in("ann", "long enough").unwrap();
        assert!(who.sees(&job("ann", "")) && !who.sees(&job("bob", "")));
        assert_eq!(people.session(&id), Some(who));
        assert!(people.session(&secret::random()).is_none());
        add(&people, "ann", Role::Support, &[], "long enough").unwrap();
        assert!(people.session(&id).is_none(), "a session keeps no role that was taken away");
        let (id, who) = people.log_in("ann", "long enough").unwrap();
        assert!(who.sees(&job("bob", "")));
        people.sessions().get_mut(&id).unwrap().end = Instant::now();
        assert!(people.session(&id).is_none(), "a session ends");
        let (id, _) = people.log_in("ann", "long enough").unwrap();
        people.log_out(&id);
        assert!(people.session(&id).is_none());
        let (id, _) = people.log_in("ann", "long enough").unwrap();
        people.remove("ann", "ann").unwrap();
        assert!(people.session(&id).is_none());
        assert!(people.log_in_by_key("").is_none() && people.log_in_by_key(people.key()).is_some());
        let mode = std::fs::metadata(folder.path().join("key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }

    #[test]
    fn a_manager_sees_his_projects_only() {
        let (_folder, people) = people();
        add(&people, "eva", Role::Manager, &["cfd"], "long enough").unwrap();
        let (_, who) = people.log_in("eva", "long enough").unwrap();
        assert!(who.sees(&job("bob", "cfd")) && who.sees(&job("eva", "own")));
        assert!(!who.sees(&job("bob", "aero")) && !who.sees(&job("bob", "")));
        let user = Who { role: Role::User, ..who };
        assert!(!user.sees(&job("bob", "cfd")), "a user has no projects of others");
    }

    #[test]
    fn a_token_is_worth_its_account_until_its_end() {
        let (_folder, people) = people();
        add(&people, "ann", Role::User, &[], "long enough").unwrap();
        add(&people, "bob", Role::User, &[], "long enough").unwrap();
        let (_, ann) = people.log_in("ann", "long enough").unwrap();
        let token = people.add_token(&ann, "script", 1).unwrap();
        assert_eq!(people.bearer(&token), Some(ann.clone()));
        assert!(people.bearer(&token[..35]).is_none() && people.bearer("").is_none());
        let id = people.tokens("ann").unwrap()[0]["id"].as_str().unwrap().to_string();
        assert!(!token.contains(&id), "a list of tokens tells none");
        assert!(!people.remove_token("bob", &id).unwrap(), "another's token stays");
        add(&people, "ann", Role::Support, &[], "long enough").unwrap();
        assert_eq!(people.bearer(&token).unwrap().role, Role::Support);
        assert!(people.remove_token("ann", &id).unwrap() && people.bearer(&token).is_none());
        let token = people.add_token(&ann, "script", 1).unwrap();
        people.control.with(|db| db.execute("UPDATE tokens SET ends = ?", [now_ms() as i64 - 1])).unwrap();
        assert!(people.bearer(&token).is_none(), "a token ends");
        assert!(people.add_token(&ann, "script", 0).is_err());
        let (_, admin) = people.log_in_by_key(people.key()).unwrap();
        assert!(people.add_token(&admin, "script", 1).is_err());
    }

    #[test]
    fn another_password_ends_sessions_and_other_changes_keep_it() {
        let (_folder, people) = people();
        add(&people, "ann", Role::User, &[], "long enough").unwrap();
        let (before, mut ann) = people.log_in("ann", "long enough").unwrap();
        assert!(people.change_password("ann", "wrong", "another one").is_err());
        assert!(people.change_password("ann", "long enough", "short").unwrap_err().contains("10 to"));
        assert!(people.session(&before).is_some());
        let (after, _) = people.change_password("ann", "long enough", "another one").unwrap();
        assert_eq!((people.session(&before), people.session(&after)), (None, Some(ann.clone())));
        ann.role = Role::Support;
        people.add("eva", &ann, None).unwrap();
        assert!(people.session(&after).is_none());
        assert_eq!(people.log_in("ann", "another one").unwrap().1, ann);
        let bob = Who { name: "bob".into(), ..ann };
        assert!(people.add("eva", &bob, None).unwrap_err().contains("needs a password"));
        let log = people.control.log().unwrap();
        assert_eq!((&log[0]["who"], &log[0]["what"]), (&json!("eva"), &json!("gives ann the role support")));
    }

    #[test]
    fn nobody_takes_an_account_over_by_its_name() {
        let (_folder, people) = people();
        add(&people, "ann", Role::Admin, &[], "long enough").unwrap();
        let who = |name: &str| Who::of(name, []);
        assert!(people.log_in_checked(Elsewhere::Issuer, who("ann")).is_err());
        let (id, bob) = people.log_in_checked(Elsewhere::Issuer, who("bob")).unwrap();
        assert_eq!(people.session(&id), Some(bob.clone()));
        assert!(people.log_in_checked(Elsewhere::Directory, who("bob")).is_err());
        assert!(people.log_in("bob", "issuer").is_none(), "a mark is no password");
        assert!(people.change_password("bob", "issuer", "long enough").is_err());
        assert!(people.set_password("ann", "bob", "long enough").unwrap_err().contains("of the issuer"));
        assert!(people.add("ann", &bob, None).is_err());
        let kept: Vec<_> =
            people.list().unwrap().iter().map(|one| (one.who.name.clone(), one.kept)).collect();
        assert_eq!(kept, [("ann".into(), "here"), ("bob".into(), "issuer")]);
        people.refresh(Elsewhere::Directory, |_| Ok(None)).unwrap();
        assert!(people.session(&id).is_some());
        people.refresh(Elsewhere::Issuer, |_| Ok(None)).unwrap();
        assert!(people.session(&id).is_none() && people.list().unwrap().len() == 1);
    }
}
