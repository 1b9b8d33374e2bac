// SPDX-License-Identifier: BSD-3-Clause
//! A machine's table as a file of lines `name = value`. The first lines name the machine.

use crate::{Machine, ROWS, Tuning, ValueSource, read_text, shown};
use error::{Class, Result, fail};

/// The first line of a table's file.
const HEAD: &str = "# Outboard tuning of this machine; see docs/tuning.md";
/// The length in bytes of the longest file that is read as a table.
const BYTES_MAX: usize = 64 << 10;
/// The most bytes that a line of a table's file may have, since an error may quote the line.
const LINE_MAX: usize = 500;

/// The table of a machine: the values that were measured on it.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningTable {
    /// The machine on which the values were measured.
    pub machine: Machine,
    /// The measured values, each with the index of its row in `ROWS`.
    pub values: Vec<(usize, u64)>,
}

impl TuningTable {
    /// Returns the table as the text of its file, which `parse` reads.
    pub fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        self.machine.lines().iter().for_each(|(name, value)| text += &format!("{name} = {value}\n"));
        self.values.iter().for_each(|(row, value)| {
            text += &format!("{} = {}\n", ROWS[*row].name, shown(*row, *value));
        });
        text
    }

    /// Parses a table's file, `bytes`. The error has the class `Other` and names the line and what is wrong.
    pub fn parse(bytes: &[u8], path: &str) -> Result<TuningTable> {
        let again = "; `outboard tune` makes a new one";
        let Ok(text) = std::str::from_utf8(bytes) else {
            fail!(Class::Other, "the tuning table {path} is no text{again}")
        };
        if bytes.len() > BYTES_MAX {
            fail!(
                Class::Other,
                "the tuning table {path} has {} bytes, {BYTES_MAX} at most{again}",
                bytes.len()
            );
        }
        let mut machine = [None, None, None];
        let mut values: Vec<(usize, u64)> = Vec::new();
        for (at, line) in
            text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty())
        {
            let wrong = |what: String| {
                error::Error::new(
                    Class::Other,
                    format!("the tuning table {path}, line {}: {what}{again}", at + 1),
                )
            };
            if line.len() > LINE_MAX {
                return Err(wrong(format!("{} bytes, {LINE_MAX} at most", line.len())));
            }
            let Some((name, value)) = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()))
            else {
                return Err(wrong(format!("{line:?} is not `name = value`")));
            };
            if let Some(place) = ["processor", "kernel", "rights"].iter().position(|known| *known == name) {
                machine[place] = Some(value.to_owned());
                continue;
            }
            let Some(row) = ROWS.iter().position(|row| row.name == name) else {
                return Err(wrong(format!("there is no value {name:?}")));
            };
            if values.iter().any(|(known, _)| *known == row) {
                return Err(wrong(format!("{name} is there twice")));
            }
            values.push((row, read_text(row, value).map_err(|reason| wrong(format!("{name}: {reason}")))?));
        }
        let [Some(processor), Some(kernel), Some(rights)] = machine else {
            fail!(
                Class::Other,
                "the tuning table {path} does not name its processor, kernel and rights{again}"
            )
        };
        Ok(TuningTable { machine: Machine { processor, kernel, rights }, values })
    }

    /// Returns a `Tuning` with this table's values, and with defaults for the rows that the table lacks.
    pub fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        self.values.iter().for_each(|(row, value)| tuning.set(*row, *value, ValueSource::Table));
        tuning
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Distance, FLAT_BYTES_MAX, Load, VECTOR_COPIES, read_row};

    fn table() -> TuningTable {
        let machine =
            Machine { processor: "Invented 3000".into(), kernel: "9.9".into(), rights: "no Yama".into() };
        let row = read_row(Distance::Far, Load::Exchange);
        TuningTable { machine, values: vec![(row, 0b1_1100), (FLAT_BYTES_MAX, 64 << 10), (VECTOR_COPIES, 1)] }
    }

    #[test]
    fn a_table_survives_its_file() {
        let text = table().text();
        assert!(text.contains("read.far.exchange = 64KiB-256KiB\n"), "{text}");
        let read = TuningTable::parse(text.as_bytes(), "x").unwrap();
        assert_eq!(read, table());
        let tuning = read.tuning();
        assert!(tuning.read(Distance::Far, Load::Exchange).unwrap().has(65536));
        assert_eq!(tuning.get(FLAT_BYTES_MAX), 64 << 10);
        assert_eq!(tuning.read(Distance::Far, Load::Alone), None);
    }

    // Goal: whatever a file holds, it is a table or is refused by a sentence that names it.
    #[test]
    fn hostile_files_are_refused_in_a_sentence() {
        let text = table().text();
        let with = |more: &str| (text.clone() + more).into_bytes();
        for (bytes, wrong) in [
            (b"".to_vec(), "does not name its processor"),
            (b"\xff\xfe\x00".to_vec(), "is no text"),
            (vec![b'#'; BYTES_MAX + 1], "65536 at most"),
            (with(&"x".repeat(LINE_MAX + 1)), "line 8: 501 bytes, 500 at most"),
            (with("facts.l3.many = read: 64KiB-\n"), "has a length that is eager"),
            (with("nonsense\n"), "line 8: \"nonsense\" is not `name = value`"),
            (with("teapot = 1\n"), "there is no value \"teapot\""),
            (with("vector_copies = yes\n"), "vector_copies is there twice"),
            (with("inline_bytes_max = -1\n"), "inline_bytes_max: \"-1\" is no number of bytes"),
            (with("inline_bytes_max = 99999999999999999999GiB\n"), "is no number of bytes"),
            (with("read.l2.many = 3KiB-\n"), "read.l2.many: 3KiB is none of"),
        ] {
            let sentence = TuningTable::parse(&bytes, "/x/y.tuning").unwrap_err().to_string();
            let is_right = sentence.contains(wrong)
                && sentence.contains("/x/y.tuning")
                && sentence.contains("outboard tune");
            assert!(is_right, "{sentence}");
        }
        // A truncated or changed file is refused or read, without a panic.
        for end in 0..text.len() {
            let _ = TuningTable::parse(&text.as_bytes()[..end], "x");
            let mut changed = text.clone().into_bytes();
            changed[end] ^= 0x55;
            let _ = TuningTable::parse(&changed, "x");
        }
    }
}
