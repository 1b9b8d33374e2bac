// SPDX-License-Identifier: BSD-3-Clause
//! The lines of PMI-1, `cmd=NAME key=value ...`, and how values with any bytes are written in them.

use error::{Class, Result, fail};
use std::io::{ErrorKind, Read};

/// The longest line that is accepted, in bytes. The longest lines of launchers have about a thousand.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The longest value that is put together from its parts, in bytes.
const VALUE_BYTES_MAX: usize = 256 << 20;
/// How many hexadecimal digits give the length in bytes of a value. They come before the value's own digits.
const LENGTH_DIGITS: usize = 8;

/// A line that the launcher has sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PmiLine(String);

impl PmiLine {
    /// Returns the text of the field `name` of this line. None if the line has no such field. The field
    /// `value` goes to the end of the line, any other field to the next space.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut rest = self.0.as_str();
        loop {
            rest = rest.trim_start_matches(' ');
            let (key, after) = rest.split_once('=')?;
            let value = match key {
                "value" => after,
                _ => after.split(' ').next().unwrap_or_default(),
            };
            if key == name {
                return Some(value);
            }
            rest = &after[value.len()..];
        }
    }

    /// Returns the field `name` of this line as a number. None if the line has no such field, or it is no
    /// number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.field(name)?.parse().ok()
    }

    /// Returns the whole line as text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// The bytes that the launcher has sent and that `next` has not returned in a line yet.
#[derive(Debug, Default)]
pub(crate) struct PmiLines {
    rest: Vec<u8>,
}

impl PmiLines {
    /// Reads the launcher's next line from `from`. Errors (MPI_ERR_OTHER): the stream has ended or failed, or
    /// the line is too long or is not text.
    pub fn next(&mut self, from: &mut impl Read) -> Result<PmiLine> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return match String::from_utf8(line) {
                    Ok(line) => Ok(PmiLine(line.trim_end().to_owned())),
                    Err(_) => fail!(Class::Other, "the launcher (PMI_FD) sent a line that is no text"),
                };
            }
            if self.rest.len() > LINE_BYTES_MAX {
                fail!(Class::Other, "the launcher (PMI_FD) sent a line of more than {LINE_BYTES_MAX} bytes");
            }
            let mut bytes = [0; 4096];
            match from.read(&mut bytes) {
                Ok(0) => fail!(Class::Other, "the launcher has closed its connection (PMI_FD): it has ended"),
                Ok(read) => self.rest.extend(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    fail!(Class::Other, "the connection to the launcher (PMI_FD) is broken: {error}")
                }
            }
        }
    }
}

/// Returns a value as one or more texts of at most `most` characters: the value's length, then its bytes, all
/// in hexadecimal digits.
pub(crate) fn texts(value: &[u8], most: usize) -> Vec<String> {
    let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    let all = format!("{:0width$x}{digits}", value.len(), width = LENGTH_DIGITS);
    let texts = all.as_bytes().chunks(most.max(LENGTH_DIGITS));
    texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

/// Returns the value from which [`texts`] made texts. Each call of `next` returns one of the texts, in order.
/// None if the texts do not form a value.
pub(crate) fn value(mut next: impl FnMut() -> Result<Option<String>>) -> Result<Option<Vec<u8>>> {
    let Some(mut all) = next()? else { return Ok(None) };
    let length = all.get(..LENGTH_DIGITS).and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let Some(length) = length.filter(|length| *length <= VALUE_BYTES_MAX) else { return Ok(None) };
    while all.len() < LENGTH_DIGITS + 2 * length {
        match next()? {
            Some(text) if !text.is_empty() => all += &text,
            _ => return Ok(None),
        }
    }
    let byte = |at: usize| u8::from_str_radix(all.get(at..at + 2)?, 16).ok();
    Ok((0..length).map(|index| byte(LENGTH_DIGITS + 2 * index)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mut bytes: &[u8]) -> Vec<Result<PmiLine>> {
        let mut lines = PmiLines::default();
        let mut all = Vec::new();
        while all.last().is_none_or(|last: &Result<PmiLine>| last.is_ok()) {
            all.push(lines.next(&mut bytes));
        }
        all
    }

    #[test]
    fn fields() {
        let line = PmiLine("cmd=get_result rc=0 msg=success value=(vector, (0,1,3)) rc=5".into());
        assert_eq!((line.field("cmd"), line.number("rc")), (Some("get_result"), Some(0)));
        assert_eq!(line.field("value"), Some("(vector, (0,1,3)) rc=5"), "to the end");
        assert_eq!(
            (line.field("msg"), line.field("key"), line.number::<u32>("cmd")),
            (Some("success"), None, None)
        );
        for nonsense in ["", "=", " ", "cmd", "cmd cmd", "==", "a= =b"] {
            assert_eq!(PmiLine(nonsense.into()).field("cmd"), None, "{nonsense:?}");
        }
        assert_eq!(PmiLine("cmd=".into()).field("cmd"), Some(""));
    }

    #[test]
    fn a_line_is_whole_text_of_some_length() {
        let all = lines(b"cmd=a\ncmd=b x=1\r\ncut short");
        assert_eq!(all[0].as_ref().unwrap().text(), "cmd=a");
        assert_eq!(all[1].as_ref().unwrap().number("x"), Some(1));
        assert!(all[2].as_ref().unwrap_err().message.contains("has ended"));
        assert!(lines(b"\xff\xfe\n")[0].as_ref().unwrap_err().message.contains("no text"));
        let endless = vec![b'x'; 1 << 20];
        assert!(lines(&endless)[0].as_ref().unwrap_err().message.contains("more than"));
    }

    #[test]
    fn values_of_any_bytes_come_back() {
        for length in [0, 1, 3, 4, 5, 300, 5000] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            for most in [0, 9, 10, 1024] {
                let mut texts = texts(&bytes, most).into_iter();
                assert_eq!(value(|| Ok(texts.next())).unwrap().as_deref(), Some(&*bytes), "{length} {most}");
                assert_eq!(texts.next(), None);
            }
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for texts in [
            &[][..],
            &[""],
            &["0000000"],
            &["0000000z"],
            &["ffffffff"],
            &["00000002ab"],
            &["00000002ab", ""],
            &["00000001xy"],
            &["00000001é"],
        ] {
            let mut texts = texts.iter().map(|text| text.to_string());
            assert_eq!(value(|| Ok(texts.next())).unwrap(), None);
        }
    }
}
