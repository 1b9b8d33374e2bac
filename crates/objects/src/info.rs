// SPDX-License-Identifier: BSD-3-Clause
//! Infos: lists of keys and values (MPI 5.0, chapter 10).

use crate::constants::{MAX_INFO_KEY, MAX_INFO_VAL};
use error::{Class, Result, fail};

/// Pairs of key and value, in the order in which the keys were first set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    entries: Vec<(String, String)>,
}

impl<const N: usize> From<[(&str, &str); N]> for Info {
    /// Makes an info of keys and values that the caller knows to be valid.
    fn from(entries: [(&str, &str); N]) -> Info {
        Info { entries: entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into() }
    }
}

impl Info {
    pub fn entries(&self) -> &[(String, String)] {
        &self.entries
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Sets the value of a key. Fails if the key is empty or has MPI_MAX_INFO_KEY bytes or more, or the value
    /// has MPI_MAX_INFO_VAL bytes or more.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        check_key(key)?;
        if value.len() >= MAX_INFO_VAL as usize {
            fail!(
                Class::InfoValue,
                "the value of key \"{key}\" has {} bytes, MPI_MAX_INFO_VAL allows {}",
                value.len(),
                MAX_INFO_VAL - 1
            );
        }
        match self.entries.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value.to_owned(),
            None => self.entries.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// Removes a key. Returns MPI_ERR_INFO_NOKEY if the info does not have the key.
    pub fn delete(&mut self, key: &str) -> Result<()> {
        check_key(key)?;
        match self.entries.iter().position(|(name, _)| name == key) {
            Some(at) => {
                self.entries.remove(at);
                Ok(())
            }
            None => fail!(Class::InfoNokey, "key \"{key}\" is not in the info"),
        }
    }

    pub fn key(&self, n: i32) -> Result<&str> {
        match usize::try_from(n).ok().and_then(|n| self.entries.get(n)) {
            Some((key, _)) => Ok(key),
            None => fail!(Class::Arg, "key number {n} of an info that has {}", self.entries.len()),
        }
    }
}

pub fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() >= MAX_INFO_KEY as usize {
        fail!(
            Class::InfoKey,
            "an info key of {} bytes; it must have 1 to {} (MPI_MAX_INFO_KEY)",
            key.len(),
            MAX_INFO_KEY - 1
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_limits_hold() {
        let mut info = Info::default();
        info.set("b", "1").unwrap();
        info.set("a", "2").unwrap();
        info.set("b", "3").unwrap();
        assert_eq!((info.key(0).unwrap(), info.key(1).unwrap()), ("b", "a"));
        assert_eq!(info.key(2).unwrap_err().class, Class::Arg);
        assert_eq!(info.get("b"), Some("3"));
        info.delete("b").unwrap();
        assert_eq!(info.delete("b").unwrap_err().class, Class::InfoNokey);
        assert_eq!(info.set("", "x").unwrap_err().class, Class::InfoKey);
        assert_eq!(info.set(&"k".repeat(256), "x").unwrap_err().class, Class::InfoKey);
        assert_eq!(info.set("k", &"v".repeat(1024)).unwrap_err().class, Class::InfoValue);
        info.set(&"k".repeat(255), &"v".repeat(1023)).unwrap();
    }
}
