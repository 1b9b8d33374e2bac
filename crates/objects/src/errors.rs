// SPDX-License-Identifier: BSD-3-Clause
//! Error classes, error codes and their texts: the standard's, and those that the program adds (MPI 5.0,
//! sections 9.4 and 9.5).

use crate::constants::{ERR_LASTCODE, SUCCESS};
use error::{Class, Result, fail};
use std::collections::BTreeMap;

/// The error classes and codes that the program has added. No number is used twice, since MPI_LASTUSEDCODE
/// only grows.
#[derive(Debug)]
pub struct Errors {
    added: BTreeMap<i32, Added>,
    last: i32,
}

#[derive(Debug)]
struct Added {
    /// The class of an added code. For an added class, its own number.
    class: i32,
    text: String,
    has_text: bool,
}

impl Default for Errors {
    fn default() -> Errors {
        Errors { added: BTreeMap::new(), last: ERR_LASTCODE }
    }
}

impl Errors {
    /// Returns the greatest number that a class or code has had so far: the value of the attribute
    /// MPI_LASTUSEDCODE.
    pub fn last_used(&self) -> i32 {
        self.last
    }

    pub fn add_class(&mut self) -> i32 {
        self.last += 1;
        self.added.insert(self.last, Added { class: self.last, text: String::new(), has_text: false });
        self.last
    }

    /// Adds an error code to the class `class`, which may be predefined. Returns the code's number.
    pub fn add_code(&mut self, class: i32) -> Result<i32> {
        if !self.is_class(class) {
            fail!(Class::Arg, "{class} is not an error class");
        }
        self.last += 1;
        self.added.insert(self.last, Added { class, text: String::new(), has_text: false });
        Ok(self.last)
    }

    /// Sets the text of a class or code that the program has added.
    pub fn add_text(&mut self, code: i32, text: &str) -> Result<()> {
        let Some(added) = self.added.get_mut(&code) else {
            fail!(Class::Arg, "{code} is no error class or code that the program added");
        };
        added.text = text.to_owned();
        added.has_text = true;
        Ok(())
    }

    /// Removes a class that the program has added. The class must have no codes.
    pub fn remove_class(&mut self, class: i32) -> Result<()> {
        if self.added.get(&class).is_none_or(|added| added.class != class) {
            fail!(Class::Arg, "{class} is no error class that the program added");
        }
        if let Some((code, _)) =
            self.added.iter().find(|(code, added)| added.class == class && **code != class)
        {
            fail!(Class::Arg, "error class {class} still has the code {code}");
        }
        if self.added[&class].has_text {
            fail!(Class::Arg, "error class {class} still has its text");
        }
        self.added.remove(&class);
        Ok(())
    }

    pub fn remove_code(&mut self, code: i32) -> Result<()> {
        match self.added.get(&code) {
            Some(added) if added.class == code => fail!(Class::Arg, "{code} is an error class, not a code"),
            Some(added) if added.has_text => fail!(Class::Arg, "error code {code} still has its text"),
            Some(_) => {
                self.added.remove(&code);
                Ok(())
            }
            None => fail!(Class::Arg, "{code} is no error code that the program added"),
        }
    }

    /// Removes the text of a class or code that the program has added.
    pub fn remove_text(&mut self, code: i32) -> Result<()> {
        match self.added.get_mut(&code) {
            Some(added) if added.has_text => {
                added.text.clear();
                added.has_text = false;
                Ok(())
            }
            _ => fail!(Class::Arg, "error {code} has no text that the program added"),
        }
    }

    pub fn class_of(&self, code: i32) -> Result<i32> {
        if let Some(added) = self.added.get(&code) {
            return Ok(added.class);
        }
        if text_of_class(code).is_none() {
            fail!(Class::Arg, "{code} is not an error code");
        }
        Ok(code)
    }

    pub fn text_of(&self, code: i32) -> Result<String> {
        if let Some(added) = self.added.get(&code) {
            return Ok(added.text.clone());
        }
        match text_of_class(code) {
            Some(text) => Ok(text),
            None => fail!(Class::Arg, "{code} is not an error code"),
        }
    }

    fn is_class(&self, class: i32) -> bool {
        match self.added.get(&class) {
            Some(added) => added.class == class,
            None => text_of_class(class).is_some(),
        }
    }
}

/// Returns the name and the meaning of an error class of the standard. Returns None for any other number.
pub fn text_of_class(class: i32) -> Option<String> {
    let (name, meaning) = match class {
        SUCCESS => ("MPI_SUCCESS", "no error"),
        ERR_LASTCODE => ("MPI_ERR_LASTCODE", "last error code"),
        _ => {
            let (_, name) = crate::constants::ERROR_CLASSES.iter().find(|(number, _)| *number == class)?;
            (*name, meaning(class))
        }
    };
    Some(format!("{name}: {meaning}"))
}

/// Returns the meaning of an error class of the standard, shortened from MPI 5.0, tables 9.2 and 15.3.
fn meaning(class: i32) -> &'static str {
    const MEANINGS: [&str; 63] = [
        "no error",
        "invalid buffer pointer",
        "invalid count argument",
        "invalid datatype argument",
        "invalid tag argument",
        "invalid communicator",
        "invalid rank",
        "invalid request handle",
        "invalid root",
        "invalid group",
        "invalid operation",
        "invalid topology",
        "invalid dimension argument",
        "invalid argument",
        "unknown error",
        "message truncated on receive",
        "known error not in this list",
        "internal error of the MPI library",
        "pending request",
        "error code is in status",
        "permission denied",
        "invalid file access mode",
        "invalid assert argument",
        "invalid file name",
        "invalid base argument",
        "error in a data conversion function",
        "invalid displacement argument",
        "data representation identifier already registered",
        "file exists",
        "file in use",
        "invalid file handle",
        "key longer than MPI_MAX_INFO_KEY",
        "invalid key passed to MPI_INFO_DELETE",
        "value longer than MPI_MAX_INFO_VAL",
        "invalid info argument",
        "other I/O error",
        "invalid keyval",
        "invalid locktype argument",
        "invalid service name",
        "memory is exhausted",
        "collective argument not identical on all processes",
        "not enough space",
        "file does not exist",
        "invalid port name",
        "quota exceeded",
        "read-only file or file system",
        "memory cannot be attached",
        "conflicting accesses to window",
        "target memory is not part of the window",
        "memory cannot be shared",
        "wrong synchronization of RMA calls",
        "invalid service name passed to MPI_UNPUBLISH_NAME",
        "invalid size argument",
        "error in spawning processes",
        "unsupported data representation",
        "unsupported operation",
        "invalid window argument",
        "passed window has the wrong flavor",
        "a process of the operation has aborted",
        "value is too large to store",
        "invalid session",
        "invalid error handler",
        "the ABI was asked for what it does not provide",
    ];
    usize::try_from(class)
        .ok()
        .and_then(|at| MEANINGS.get(at))
        .copied()
        .unwrap_or("error of the tool interface")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_codes_live_beside_the_standards() {
        let mut errors = Errors::default();
        assert_eq!(errors.last_used(), ERR_LASTCODE);
        let class = errors.add_class();
        let code = errors.add_code(class).unwrap();
        assert!(class > ERR_LASTCODE && code > class);
        assert_eq!(errors.class_of(code), Ok(class));
        assert_eq!(errors.text_of(code).unwrap(), "");
        errors.add_text(code, "no fuel").unwrap();
        assert_eq!(errors.text_of(code).unwrap(), "no fuel");
        assert_eq!(errors.remove_class(class).unwrap_err().class, Class::Arg);
        errors.remove_text(code).unwrap();
        errors.remove_code(code).unwrap();
        errors.remove_class(class).unwrap();
        assert_eq!(errors.class_of(class).unwrap_err().class, Class::Arg);
        assert_eq!(errors.text_of(15).unwrap(), "MPI_ERR_TRUNCATE: message truncated on receive");
        assert_eq!(
            errors.text_of(62).unwrap(),
            "MPI_ERR_ABI: the ABI was asked for what it does not provide"
        );
        assert!(errors.text_of(63).is_err() && errors.text_of(-1).is_err());
        let code = errors.add_code(15).unwrap();
        assert_eq!(errors.class_of(code), Ok(15));
    }
}
