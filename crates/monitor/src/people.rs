//! Accounts, roles, and sessions.
//!
//! Accounts live in `accounts.json` of the data folder, which only the monitor's own user reads; passwords
//! are kept as Argon2 hashes. There is none at first, and no default password: who can read `key` in that
//! folder is the administrator.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::secret;

/// What a person may see. Each sees what the next one sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The fabric, and his own jobs.
    User,
    /// All jobs, and acknowledges notifications.
    Support,
    /// Everything.
    Admin,
}

/// Who asks.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Who {
    pub name: String,
    pub role: Role,
}

impl Who {
    /// Whether a job of this user may be shown.
    pub fn sees(&self, user: &str) -> bool {
        self.role >= Role::Support || self.name == user
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Account {
    role: Role,
    hash: String,
}

const SESSION: Duration = Duration::from_secs(12 * 3600);
const SESSIONS_MAX: usize = 10_000;
const NAME_CHARS_MAX: usize = 64;
pub const PASSWORD_CHARS_MIN: usize = 10;
const PASSWORD_CHARS_MAX: usize = 1024;

struct Session {
    who: Who,
    end: Instant,
}

pub struct People {
    file: PathBuf,
    key: String,
    sessions: Mutex<HashMap<String, Session>>,
    /// One password at a time is tried: each costs 19 MiB and many milliseconds.
    trial: Mutex<()>,
}

impl People {
    pub fn open(data: &Path) -> Result<People, String> {
        let path = data.join("key");
        let key = match std::fs::read_to_string(&path) {
            Ok(key) if key.trim().len() == 32 => key.trim().to_string(),
            _ => {
                let key = secret::random();
                write_private(&path, &format!("{key}\n"))?;
                key
            }
        };
        let people = People {
            file: data.join("accounts.json"),
            key,
            sessions: Mutex::default(),
            trial: Mutex::default(),
        };
        people.accounts()?;
        Ok(people)
    }

    /// The administrator's key, with which a page is opened without an account.
    pub fn key(&self) -> &str {
        &self.key
    }

    fn accounts(&self) -> Result<HashMap<String, Account>, String> {
        match std::fs::read(&self.file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| format!("{} cannot be read: {error}", self.file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(HashMap::new()),
            Err(error) => Err(format!("{}: {error}", self.file.display())),
        }
    }

    /// Adds an account, or gives it another role and password.
    pub fn add(&self, name: &str, role: Role, password: &str) -> Result<(), String> {
        let is_name = |char: char| char.is_ascii_alphanumeric() || "-_.@".contains(char);
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(is_name) {
            return Err(format!("{name:?}: a name has letters, digits and -_.@, at most {NAME_CHARS_MAX}"));
        }
        if !(PASSWORD_CHARS_MIN..=PASSWORD_CHARS_MAX).contains(&password.chars().count()) {
            return Err(format!("a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters"));
        }
        let salt = SaltString::encode_b64(secret::random().as_bytes()).map_err(|error| error.to_string())?;
        let hash = Argon2::default()
            .hash_password(password.as_bytes(), &salt)
            .map_err(|error| format!("the password cannot be hashed: {error}"))?
            .to_string();
        let mut accounts = self.accounts()?;
        accounts.insert(name.into(), Account { role, hash });
        self.save(&accounts)
    }

    pub fn remove(&self, name: &str) -> Result<(), String> {
        let mut accounts = self.accounts()?;
        accounts.remove(name).ok_or_else(|| format!("there is no account {name:?}"))?;
        self.save(&accounts)
    }

    fn save(&self, accounts: &HashMap<String, Account>) -> Result<(), String> {
        let text = serde_json::to_string_pretty(accounts).map_err(|error| error.to_string())?;
        let new = self.file.with_extension("new");
        write_private(&new, &text)?;
        std::fs::rename(&new, &self.file).map_err(|error| format!("{}: {error}", self.file.display()))
    }

    /// A new session for a name and password. Takes as long for a name that is not known.
    pub fn log_in(&self, name: &str, password: &str) -> Option<(String, Who)> {
        let _one = self.trial.lock().unwrap_or_else(PoisonError::into_inner);
        // Of nobody's password.
        const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$\
                              AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let account = self.accounts().ok()?.get(name).cloned();
        let hash = account.as_ref().map_or(NOBODY, |account| &account.hash);
        let is_right = password.len() <= 4 * PASSWORD_CHARS_MAX
            && PasswordHash::new(hash)
                .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
        let role = account.filter(|_| is_right)?.role;
        Some(self.begin(Who { name: name.into(), role }))
    }

    /// A new session for who has the administrator's key.
    pub fn log_in_by_key(&self, key: &str) -> Option<(String, Who)> {
        let who = Who { name: "admin (key)".into(), role: Role::Admin };
        secret::same(key, &self.key).then(|| self.begin(who))
    }

    fn begin(&self, who: Who) -> (String, Who) {
        let id = secret::random();
        let mut sessions = self.sessions();
        sessions.retain(|_, session| session.end > Instant::now());
        if sessions.len() >= SESSIONS_MAX
            && let Some(oldest) =
                sessions.iter().min_by_key(|(_, session)| session.end).map(|(id, _)| id.clone())
        {
            sessions.remove(&oldest);
        }
        sessions.insert(id.clone(), Session { who: who.clone(), end: Instant::now() + SESSION });
        (id, who)
    }

    /// Whose session this is. An account that was removed or changed its role since has none.
    pub fn session(&self, id: &str) -> Option<Who> {
        let who = self.sessions().get(id).filter(|session| session.end > Instant::now())?.who.clone();
        let is_key = who.name == "admin (key)";
        let is_valid = is_key || self.accounts().ok()?.get(&who.name).is_some_and(|now| now.role == who.role);
        is_valid.then_some(who)
    }

    pub fn log_out(&self, id: &str) {
        self.sessions().remove(id);
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a file that nobody else can read.
fn write_private(path: &Path, text: &str) -> Result<(), String> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_session_is_of_who_knows_the_password() {
        let folder = std::env::temp_dir().join(format!("outboard-people-{}", secret::random()));
        std::fs::create_dir(&folder).unwrap();
        let people = People::open(&folder).unwrap();
        assert!(people.log_in("ann", "").is_none(), "there is no default account");
        assert!(people.add("ann", Role::User, "short").unwrap_err().contains("10 to"));
        assert!(people.add("../ann", Role::User, "long enough").is_err());
        people.add("ann", Role::User, "long enough").unwrap();
        assert!(people.log_in("ann", "long enougH").is_none());
        let (id, who) = people.log_in("ann", "long enough").unwrap();
        assert!(who.sees("ann") && !who.sees("bob"));
        assert_eq!(people.session(&id), Some(who));
        assert!(people.session(&secret::random()).is_none());
        people.add("ann", Role::Support, "long enough").unwrap();
        assert!(people.session(&id).is_none(), "a session keeps no role that was taken away");
        let (id, who) = people.log_in("ann", "long enough").unwrap();
        assert!(who.sees("bob"));
        people.remove("ann").unwrap();
        assert!(people.session(&id).is_none());
        assert!(people.log_in_by_key("").is_none() && people.log_in_by_key(people.key()).is_some());
        for file in ["key", "accounts.json"] {
            let mode = std::fs::metadata(folder.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
