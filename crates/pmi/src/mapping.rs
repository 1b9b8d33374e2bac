// SPDX-License-Identifier: BSD-3-Clause
//! Finds which rank is on which host, from the value of the key `PMI_process_mapping`.
//!
//! The form is `(vector,BLOCK,...)`. A block `(first host,hosts,ranks a host)` puts this many ranks on each
//! of its hosts, one host after the other. A block `host` is one rank on that host. `[BLOCK,...]xTIMES`
//! repeats blocks. If ranks are left over, all blocks begin again, as in MPICH.

/// Returns the number of each rank's host, for `size` ranks. None if the text has another form, or puts no
/// rank on any host.
pub(crate) fn read(text: &str, size: u32) -> Option<Vec<u32>> {
    let text = text.replace(' ', "");
    let mut rest = MappingText(text.strip_prefix("(vector,")?.strip_suffix(')')?);
    let groups = rest.list(MappingText::group)?;
    // The numbers may be huge, so nothing is made that `size` does not need.
    if !rest.0.is_empty() || groups.iter().all(|(blocks, times)| blocks.is_empty() || *times == 0) {
        return None;
    }
    let hosts = groups
        .iter()
        .filter(|(blocks, _)| !blocks.is_empty())
        .cycle()
        .flat_map(|(blocks, times)| (0..*times).flat_map(move |_| blocks))
        .flat_map(|[first, hosts, ranks]| {
            (0..*hosts).flat_map(move |host| std::iter::repeat_n(first.wrapping_add(host), *ranks as usize))
        });
    Some(hosts.take(size as usize).collect())
}

/// A block of the text that maps ranks to hosts: its first host, how many hosts it has, and how many ranks
/// are on each of these hosts.
type MappingBlock = [u32; 3];

/// The part of the text that maps ranks to hosts (`PMI_process_mapping`) which has not been read yet.
struct MappingText<'a>(&'a str);

impl MappingText<'_> {
    /// Reads a block, or `[BLOCK,...]xTIMES`. Returns the blocks that contain ranks, and how many times they
    /// are repeated. Returns None if the text has another form.
    fn group(&mut self) -> Option<(Vec<MappingBlock>, u32)> {
        let (mut blocks, times) = if self.eat('[') {
            let blocks = self.list(MappingText::block)?;
            let times = (self.eat(']') && self.eat('x')).then(|| self.number())??;
            (blocks, times)
        } else {
            (vec![self.block()?], 1)
        };
        blocks.retain(|[_, hosts, ranks]| *hosts > 0 && *ranks > 0);
        Some((blocks, times))
    }

    fn block(&mut self) -> Option<MappingBlock> {
        if !self.eat('(') {
            return Some([self.number()?, 1, 1]);
        }
        let numbers = self.list(MappingText::number)?;
        numbers.try_into().ok().filter(|_| self.eat(')'))
    }

    /// Reads one or more items with commas in between, each by `read`. Returns None if `read` does.
    fn list<T>(&mut self, read: fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = vec![read(self)?];
        while self.eat(',') {
            all.push(read(self)?);
        }
        Some(all)
    }

    fn number(&mut self) -> Option<u32> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits.parse().ok()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_launchers_say() {
        assert_eq!(read("(vector,(0,1,3))", 3).unwrap(), [0, 0, 0]);
        assert_eq!(read("(vector,(0,1,5),(1,3,1))", 8).unwrap(), [0, 0, 0, 0, 0, 1, 2, 3]);
        assert_eq!(read("(vector,(0,2,1))", 5).unwrap(), [0, 1, 0, 1, 0], "the blocks begin again");
        assert_eq!(read("(vector,(4,1,1),(2,1,1))", 2).unwrap(), [4, 2]);
        // As Hydra of MPICH 5.
        assert_eq!(read("(vector,[(0,2,1)]x2)", 4).unwrap(), [0, 1, 0, 1]);
        assert_eq!(read("(vector,0,(1,2,2),3)", 6).unwrap(), [0, 1, 1, 2, 2, 3]);
        assert_eq!(read("(vector,[0,(1,1,2)]x2,5)", 7).unwrap(), [0, 1, 1, 0, 1, 1, 5]);
        assert_eq!(read("(vector, (0,2,1))", 2).unwrap(), [0, 1]);
    }

    #[test]
    fn nonsense_places_nobody() {
        for text in [
            "",
            "(vector",
            "(vector,)",
            "(vector,())",
            "(vector,(0,1))",
            "(vector,(0,1,2,3))",
            "(vector,(0,-1,2))",
            "(vector,(0,0,5))",
            "(vector,(0,5,0))",
            "(vector,(0,99999999999,1))",
            "(matrix,(0,1,1))",
            "(vector,[(0,1,1)])",
            "(vector,[(0,1,1)]x)",
            "(vector,[(0,1,1)]x0)",
            "(vector,[(0,1,0)]x5)",
            "(vector,[[0]x2]x2)",
            "(vector,0,)",
            "(vector,0)x",
        ] {
            assert_eq!(read(text, 4), None, "{text}");
        }
    }

    #[test]
    fn huge_numbers_take_neither_memory_nor_time() {
        assert_eq!(read("(vector,(4294967295,4294967295,4294967295))", 2).unwrap(), [u32::MAX; 2]);
        assert_eq!(read("(vector,(0,4294967295,0),(1,1,1))", 2).unwrap(), [1, 1]);
        assert_eq!(read("(vector,[(0,4294967295,0)]x4294967295,7)", 2).unwrap(), [7, 7]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in "\\(vector,[(),\\[\\]x0-9 ]{0,40}\\)", size in 0u32..100) {
            if let Some(nodes) = read(&text, size) {
                assert_eq!(nodes.len(), size as usize);
            }
        }
    }
}
