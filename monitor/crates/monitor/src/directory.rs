// SPDX-License-Identifier: BSD-3-Clause
//! Accounts of an LDAP directory (RFC 4511): who may log in, and in which role.
//!
//! A person's entry is searched by name, and the password is checked by a bind. The person's groups decide
//! the role. The directory keeps the passwords; the monitor stores none.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ldap3::{LdapConn, LdapConnSettings, Scope, SearchEntry, ldap_escape};
use serde::Deserialize;

use crate::people::{Grant, Who};

/// The longest time that one request to the directory may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// LDAP's result code for a wrong password (RFC 4511, appendix A.1).
const INVALID_CREDENTIALS: u32 = 49;

/// The section `[ldap]` of the configuration: how the LDAP directory is asked, and which rights its groups
/// give.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// The directory's URL, such as `ldaps://ldap.site`, or `ldap://ldap.site` with `starttls`.
    url: String,
    #[serde(default)]
    starttls: bool,
    /// The directory's entry (DN) below which people are searched.
    people: String,
    /// The attribute of a person's entry that has the person's name, by default `uid`.
    #[serde(default = "uid")]
    name: String,
    /// A filter that a person's entry must match, besides having the right name, such as
    /// `(memberOf=cn=hpc,ou=groups,dc=site)`.
    #[serde(default)]
    filter: String,
    /// The directory's entry (DN) below which groups are searched. None is allowed only if no group has a
    /// `role`.
    groups: Option<String>,
    /// The entry (DN) as which the monitor logs in to search, with the password in `bind_password_file`. With
    /// None it searches without a login.
    bind_dn: Option<String>,
    pub bind_password_file: Option<PathBuf>,
    /// The roles that groups of the directory give their members. A person in several groups gets the highest
    /// role; a person in none is a user.
    #[serde(default)]
    role: Vec<Grant>,
}

fn uid() -> String {
    "uid".into()
}

impl Directory {
    /// Checks the fields of the section `[ldap]`. An error says what is wrong with a field.
    pub fn check(&self) -> Result<(), String> {
        if !["ldap://", "ldaps://", "ldapi://"].iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(format!(
                "ldap.url: {:?} does not begin with ldap://, ldaps:// or ldapi://",
                self.url
            ));
        }
        let in_clear = self.url.strip_prefix("ldap://").filter(|_| !self.starttls);
        let host = in_clear.and_then(|rest| rest.split([':', '/']).next());
        let is_here = |host: &str| {
            host == "localhost" || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        };
        if host.is_some_and(|host| !is_here(host)) {
            return Err(
                "ldap.url: passwords would cross the network in clear; use ldaps://, or starttls = true"
                    .into(),
            );
        }
        if !self.role.is_empty() && self.groups.is_none() {
            return Err("ldap.groups: it is needed where a group has a role".into());
        }
        if self.bind_dn.is_some() != self.bind_password_file.is_some() {
            return Err("ldap.bind_dn and ldap.bind_password_file belong together".into());
        }
        Ok(())
    }

    /// Returns the person with this name and password, or None if there is no such person. An error says why
    /// the directory gave no answer.
    pub fn log_in(&self, name: &str, password: &str) -> Result<Option<Who>, String> {
        // A bind without a password is an anonymous bind, which succeeds (RFC 4513, 5.1.2).
        if password.is_empty() {
            return Ok(None);
        }
        let mut asked = self.connect()?;
        let Some((dn, who)) = self.find(&mut asked, name)? else { return Ok(None) };
        let bound = asked.with_timeout(PATIENCE).simple_bind(&dn, password).map_err(named)?;
        match bound.rc {
            0 => Ok(Some(who)),
            INVALID_CREDENTIALS => Ok(None),
            _ => Err(format!("the directory refuses {dn}: {bound}")),
        }
    }

    /// Returns the person who has this name in the directory now, or None if nobody has it.
    pub fn named(&self, name: &str) -> Result<Option<Who>, String> {
        let mut asked = self.connect()?;
        Ok(self.find(&mut asked, name)?.map(|(_, who)| who))
    }

    fn connect(&self) -> Result<LdapConn, String> {
        let settings = LdapConnSettings::new().set_conn_timeout(PATIENCE).set_starttls(self.starttls);
        let mut asked = LdapConn::with_settings(settings, &self.url).map_err(named)?;
        if let (Some(dn), Some(file)) = (&self.bind_dn, &self.bind_password_file) {
            let password =
                std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            let bound = asked.with_timeout(PATIENCE).simple_bind(dn, password.trim_end_matches(['\n', '\r']));
            bound.and_then(|bound| bound.success()).map_err(named)?;
        }
        Ok(asked)
    }

    /// Searches the directory for a person. Returns the DN of the person's entry and the person's rights, or
    /// None if nobody has this name or two people have it.
    fn find(&self, asked: &mut LdapConn, name: &str) -> Result<Option<(String, Who)>, String> {
        let filter = format!("(&({}={}){})", self.name, ldap_escape(name), self.filter);
        let found = search(asked, &self.people, &filter, &self.name)?;
        let [entry] = found.as_slice() else {
            // Two people have this name, so it is unknown whose the password is.
            return Ok(None);
        };
        // Directories compare names without case; jobs and roles here do not.
        let mut names =
            entry.attrs.iter().filter(|(attribute, _)| attribute.eq_ignore_ascii_case(&self.name));
        if !names.any(|(_, names)| names.iter().any(|own| own == name)) {
            return Ok(None);
        }
        let who = Who::of(name, self.granted(asked, &entry.dn, name)?);
        Ok(Some((entry.dn.clone(), who)))
    }

    /// Returns the elements of `role` that name a group of which this person is a member.
    fn granted(&self, asked: &mut LdapConn, dn: &str, name: &str) -> Result<Vec<&Grant>, String> {
        let Some(groups) = self.groups.as_ref().filter(|_| !self.role.is_empty()) else {
            return Ok(Vec::new());
        };
        let (dn, name) = (ldap_escape(dn), ldap_escape(name));
        // groupOfNames and Active Directory, groupOfUniqueNames, posixGroup.
        let filter = format!("(|(member={dn})(uniqueMember={dn})(memberUid={name}))");
        let found = search(asked, groups, &filter, "cn")?;
        let is_of = |grant: &&Grant| found.iter().any(|group| plain(&group.dn) == plain(&grant.group));
        Ok(self.role.iter().filter(is_of).collect())
    }
}

fn search(
    asked: &mut LdapConn,
    base: &str,
    filter: &str,
    attribute: &str,
) -> Result<Vec<SearchEntry>, String> {
    let found = asked.with_timeout(PATIENCE).search(base, Scope::Subtree, filter, [attribute]);
    let (rows, _) = found.and_then(|found| found.success()).map_err(named)?;
    Ok(rows.into_iter().filter(|row| !row.is_ref()).map(SearchEntry::construct).collect())
}

/// Returns an entry's DN without what LDAP ignores: case, and blanks after a comma.
fn plain(dn: &str) -> String {
    dn.split(',').map(|part| part.trim().to_ascii_lowercase()).collect::<Vec<_>>().join(",")
}

fn named(error: ldap3::LdapError) -> String {
    format!("the directory does not answer as it should: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_in_the_section_is_named() {
        let check = |text: &str| toml::from_str::<Directory>(text).unwrap().check();
        let url = "url = 'ldaps://ldap.site'\npeople = 'ou=people,dc=site'\n";
        assert_eq!(check(url), Ok(()));
        for (more, word) in [
            ("[[role]]\ngroup = 'cn=admins'\nrole = 'admin'", "ldap.groups"),
            ("bind_dn = 'cn=reader'", "bind_password_file"),
        ] {
            assert!(check(&format!("{url}{more}")).unwrap_err().contains(word));
        }
        assert!(check("url = 'https://x'\npeople = ''").unwrap_err().contains("ldap.url"));
        let plain = "url = 'ldap://ldap.site'\npeople = 'dc=site'\n";
        assert!(check(plain).unwrap_err().contains("in clear"));
        assert_eq!(check(&format!("{plain}starttls = true")), Ok(()));
        assert_eq!(check("url = 'ldap://127.0.0.1:389'\npeople = 'dc=site'"), Ok(()));
        assert!(toml::from_str::<Directory>("url = 'ldap://x'").unwrap_err().to_string().contains("people"));
    }

    #[test]
    fn a_group_is_known_however_it_is_written() {
        assert_eq!(plain("CN=Admins, ou=groups,dc=site"), plain("cn=admins,ou=Groups,DC=site"));
        assert_ne!(plain("cn=a,dc=b"), plain("cn=ab"));
    }

    #[test]
    fn no_password_is_no_question() {
        let nobody = "url = 'ldap://127.0.0.1:1'\npeople = 'dc=site'";
        let directory: Directory = toml::from_str(nobody).unwrap();
        assert_eq!(directory.log_in("ann", ""), Ok(None));
        assert!(directory.log_in("ann", "secret").unwrap_err().contains("does not answer"));
    }
}
