// SPDX-License-Identifier: BSD-3-Clause
//! The record in which the kernel passes a MAD (management datagram): `struct ib_user_mad`
//! (include/uapi/rdma/ib_user_mad.h). It has 64 bytes, and the MAD follows.

/// The number of bytes in a MAD, a management datagram of InfiniBand.
pub const MAD_BYTES: usize = 256;
/// A MAD (management datagram) in the form in which it is sent.
pub type Mad = [u8; MAD_BYTES];

const HEAD_BYTES: usize = 64;
pub const RECORD_BYTES: usize = HEAD_BYTES + MAD_BYTES;

/// The address to which a MAD is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadAddress {
    /// The node at the end of a path, which is in the MAD itself.
    Path,
    /// The port with this LID. There the MAD goes to queue pair 1, with the well-known key.
    Lid(u16),
}

/// The key with which every queue pair 1 accepts MADs (IBTA 3.5.3).
const WELL_KNOWN_KEY: u32 = 0x8001_0000;

pub fn write(to: MadAddress, mad: &Mad) -> [u8; RECORD_BYTES] {
    let (pair, key, lid): (u32, u32, u16) = match to {
        MadAddress::Path => (0, 0, 0xffff),
        MadAddress::Lid(lid) => (1, WELL_KNOWN_KEY, lid),
    };
    let mut record = [0; RECORD_BYTES];
    record[20..24].copy_from_slice(&pair.to_be_bytes());
    record[24..28].copy_from_slice(&key.to_be_bytes());
    record[28..30].copy_from_slice(&lid.to_be_bytes());
    record[HEAD_BYTES..].copy_from_slice(mad);
    record
}

/// Returns what a record of the kernel contains: a status (0 or an errno) and a MAD.
pub fn read(record: &[u8; RECORD_BYTES]) -> (u32, Box<Mad>) {
    let status = u32::from_ne_bytes(record[4..8].try_into().expect("four bytes"));
    let mut mad = Box::new([0; MAD_BYTES]);
    mad.copy_from_slice(&record[HEAD_BYTES..]);
    (status, mad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_addressed_in_network_order() {
        let mut mad = [0; MAD_BYTES];
        mad[255] = 7;
        let record = write(MadAddress::Lid(0x1234), &mad);
        assert_eq!(record[20..30], [0, 0, 0, 1, 0x80, 1, 0, 0, 0x12, 0x34]);
        assert_eq!(write(MadAddress::Path, &mad)[28..30], [0xff, 0xff]);
        assert_eq!(read(&record).1[255], 7);
    }
}
