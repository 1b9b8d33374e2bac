// SPDX-License-Identifier: BSD-3-Clause
//! MADs (management datagrams) as bytes: writes requests, and checks and reads answers. No field of an answer
//! is trusted. Offsets are those of IBTA's volume 1: 13.4 (header), 14.2 (subnet), 16.1 (performance).

use umad::{Class, MAD_BYTES, Mad, MadAddress};

/// A path through the fabric: for each hop the number of the port through which a MAD leaves the node.
pub type Path = Vec<u8>;
/// The most hops of a path: the hop count of a MAD has 6 bits (IBTA 14.2.1.2).
pub const PATH_HOPS_MAX: usize = 63;

/// The node that gets a request: the node at the end of a path, or the node that has a LID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MadTarget {
    Path(Path),
    Lid(u16),
}

/// The attribute that a request asks for. The number in a variant is a port's number; the number in
/// `Forwarding` is a block's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    NodeDescription,
    NodeInfo,
    PortInfo(u8),
    /// The forwarding table's block with this number: the ports through which a switch sends to 64 LIDs.
    Forwarding(u16),
    /// The attribute that says which counters a node has (ClassPortInfo).
    PerformanceInfo,
    Counters(u8),
    CountersExtended(u8),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadRequest {
    pub target: MadTarget,
    pub attribute: Attribute,
}

/// Why a request has no answer that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request got no answer, although it was sent several times.
    Silent,
    /// The node refused the request in its answer, with this status.
    Refused(u16),
}

const HEADER_BYTES: usize = 24;
const DATA_AT: usize = 64;
const PATH_AT: usize = 128;
const GET: u8 = 0x01;
const GET_ANSWER: u8 = 0x81;

impl Attribute {
    pub fn class(self) -> Class {
        match self {
            Attribute::PerformanceInfo | Attribute::Counters(_) | Attribute::CountersExtended(_) => {
                Class::Performance
            }
            _ => Class::Directed,
        }
    }

    fn number(self) -> u16 {
        match self {
            Attribute::NodeDescription => 0x10,
            Attribute::NodeInfo => 0x11,
            Attribute::PortInfo(_) => 0x15,
            Attribute::Forwarding(_) => 0x19,
            Attribute::PerformanceInfo => 0x01,
            Attribute::Counters(_) => 0x12,
            Attribute::CountersExtended(_) => 0x1d,
        }
    }
}

impl MadRequest {
    /// Returns the MAD (management datagram) for this request. The MAD that answers it will have the same
    /// `number`.
    pub fn mad(&self, number: u32) -> Mad {
        let mut mad = [0; MAD_BYTES];
        let class = match self.attribute.class() {
            Class::Directed => 0x81,
            Class::Performance => 0x04,
        };
        mad[..4].copy_from_slice(&[1, class, 1, GET]);
        // The kernel writes the upper half of the transaction's id.
        mad[12..16].copy_from_slice(&number.to_be_bytes());
        mad[16..18].copy_from_slice(&self.attribute.number().to_be_bytes());
        match self.attribute {
            Attribute::PortInfo(port) => mad[23] = port,
            Attribute::Forwarding(block) => mad[22..24].copy_from_slice(&block.to_be_bytes()),
            Attribute::Counters(port) | Attribute::CountersExtended(port) => mad[DATA_AT + 1] = port,
            _ => {}
        }
        if let MadTarget::Path(path) = &self.target {
            let hops = path.len().min(PATH_HOPS_MAX);
            mad[7] = hops as u8;
            // The permissive LID on both sides: the path contains the whole route.
            mad[32..36].fill(0xff);
            mad[PATH_AT + 1..PATH_AT + 1 + hops].copy_from_slice(&path[..hops]);
        }
        mad
    }

    pub fn to(&self) -> MadAddress {
        match &self.target {
            MadTarget::Path(_) => MadAddress::Path,
            MadTarget::Lid(lid) => MadAddress::Lid(*lid),
        }
    }

    /// Returns the data that `mad` has as the answer to this request, or None if `mad` does not answer it.
    pub fn answer<'m>(&self, mad: &'m Mad) -> Option<Result<&'m Data, Failure>> {
        let asked = self.mad(0);
        let is_answer = mad[..3] == asked[..3]
            && mad[3] == GET_ANSWER
            && mad[16..18] == asked[16..18]
            && mad[20..HEADER_BYTES] == asked[20..HEADER_BYTES];
        if !is_answer {
            return None;
        }
        // A directed answer has its direction in the upper bit.
        let status = u16_at(mad, 4) & if asked[1] == 0x81 { 0x7fff } else { 0xffff };
        if status != 0 {
            return Some(Err(Failure::Refused(status)));
        }
        let data: &Data = mad[DATA_AT..].try_into().expect("192 bytes");
        match self.attribute {
            Attribute::Counters(port) | Attribute::CountersExtended(port) if data[1] != port => None,
            _ => Some(Ok(data)),
        }
    }
}

/// Returns the number in a MAD. A request and its answer have the same number.
pub fn number(mad: &Mad) -> u32 {
    u32_at(mad, 12)
}

/// The data of an answer. In a MAD of subnet management only the first 64 bytes are data.
pub type Data = [u8; MAD_BYTES - DATA_AT];

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The number of LIDs in a block of a forwarding table.
pub const FORWARDING_BLOCK: usize = 64;

/// Returns the unsigned number in the `width` bytes that begin at byte `at`.
pub fn field(data: &Data, at: usize, width: usize) -> u64 {
    data[at..at + width].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Host,
    Switch,
    Router,
}

/// What a node reports about itself in the attribute NodeInfo (IBTA 14.2.5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    pub kind: NodeKind,
    pub guid: u64,
    pub ports: u8,
    /// The number of the node's port through which the request reached it.
    pub local_port: u8,
}

impl NodeInfo {
    /// Reads the attribute NodeInfo. Returns None if it describes a node that cannot exist.
    pub fn of(data: &Data) -> Option<NodeInfo> {
        let kind = match data[2] {
            1 => NodeKind::Host,
            2 => NodeKind::Switch,
            3 => NodeKind::Router,
            _ => return None,
        };
        let info = NodeInfo { kind, guid: field(data, 12, 8), ports: data[3], local_port: data[36] };
        let is_possible = info.guid != 0 && (1..=254).contains(&info.ports) && info.local_port <= info.ports;
        is_possible.then_some(info)
    }
}

/// Reads the attribute NodeDescription (IBTA 14.2.5.2), a node's text about itself. Leaves out characters
/// that cannot be printed, so that no name damages a page or a terminal.
pub fn description(data: &Data) -> String {
    let text = String::from_utf8_lossy(&data[..64]);
    let text = text.split('\0').next().unwrap_or_default();
    text.chars().filter(|char| !char.is_control() && *char != char::REPLACEMENT_CHARACTER).collect()
}

/// A port's LID, state and speed, from the attribute PortInfo (IBTA 14.2.5.6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortInfo {
    pub lid: u16,
    /// The logical state of the port: 1 down, 2 initialize, 3 armed, 4 active.
    pub state: u8,
    /// The physical state of the port. 5 means that the link is up.
    pub physical: u8,
    /// The number of lanes that the link uses, or 0 if it is unknown.
    pub lanes: u8,
    /// How much data one lane carries, in megabits a second, without the bits of its encoding. It is 0 if
    /// unknown.
    pub lane_megabits: u32,
}

impl PortInfo {
    pub fn of(data: &Data) -> PortInfo {
        let lanes = match data[31] {
            1 => 1,
            2 => 4,
            4 => 8,
            8 => 12,
            16 => 2,
            _ => 0,
        };
        PortInfo {
            lid: u16_at(data, 16),
            state: data[32] & 0xf,
            physical: data[33] >> 4,
            lanes,
            lane_megabits: lane_megabits(data[35] >> 4, data[62] >> 4),
        }
    }

    pub fn is_up(&self) -> bool {
        self.physical == 5 && self.state > 1
    }

    /// Returns the bytes of data that the link can carry in a second, in one direction.
    pub fn bytes_per_second(&self) -> f64 {
        f64::from(self.lanes) * f64::from(self.lane_megabits) * 1e6 / 8.0
    }

    /// Returns the link's lanes and speed as vendors write them, such as `4x EDR`.
    pub fn speed(&self) -> String {
        let name = match self.lane_megabits {
            2000 => "SDR",
            4000 => "DDR",
            8000 => "QDR",
            13636 => "FDR",
            25000 => "EDR",
            50000 => "HDR",
            100_000 => "NDR",
            200_000 => "XDR",
            _ => return "unknown speed".into(),
        };
        format!("{}x {name}", self.lanes)
    }
}

/// Returns how much data a lane carries, in megabits a second, from LinkSpeedActive (`basic`) and
/// LinkSpeedExtActive (`extended`). Up to QDR 8 of 10 bits are data, from FDR on 64 of 66. From HDR on a
/// lane's signalling rate includes the cost of error correction.
fn lane_megabits(basic: u8, extended: u8) -> u32 {
    match (extended, basic) {
        (1, _) => 13_636,
        (2, _) => 25_000,
        (4, _) => 50_000,
        (8, _) => 100_000,
        (0, 1) => 2_000,
        (0, 2) => 4_000,
        (0, 4) => 8_000,
        _ => 0,
    }
}

/// Which counters a node has, as its ClassPortInfo of performance management says (IBTA 16.1.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerformanceInfo {
    /// Whether the counters of bytes and packets have 64 bits.
    pub extended: bool,
    /// Whether the counters of errors and of PortXmitWait have 64 bits, too.
    pub extended_errors: bool,
    /// Whether the node has the counter PortXmitWait.
    pub waits: bool,
}

impl PerformanceInfo {
    pub fn of(data: &Data) -> PerformanceInfo {
        let capabilities = u16_at(data, 2);
        PerformanceInfo {
            extended: capabilities & (1 << 9 | 1 << 10) != 0,
            // CapabilityMask2 is the upper 27 of these 32 bits.
            extended_errors: u32_at(data, 4) >> 5 & 2 != 0,
            waits: capabilities & 1 << 12 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data_of(bytes: &[(usize, u8)]) -> Data {
        let mut data = [0; 192];
        for (at, byte) in bytes {
            data[*at] = *byte;
        }
        data
    }

    #[test]
    fn each_generation_has_its_rate() {
        let rates = [
            (2, 1 << 4, 0, "4x SDR", 1e9),
            (2, 4 << 4, 0, "4x QDR", 4e9),
            (2, 0, 1 << 4, "4x FDR", 6.818e9),
            (2, 0, 2 << 4, "4x EDR", 12.5e9),
            (16, 0, 4 << 4, "2x HDR", 12.5e9),
            (2, 0, 8 << 4, "4x NDR", 50e9),
        ];
        for (width, basic, extended, name, bytes) in rates {
            let port = PortInfo::of(&data_of(&[(31, width), (35, basic), (62, extended)]));
            assert_eq!((port.speed().as_str(), port.bytes_per_second()), (name, bytes));
        }
        assert_eq!(PortInfo::of(&data_of(&[(31, 2), (62, 0xf0)])).bytes_per_second(), 0.0);
    }

    #[test]
    fn only_the_answer_to_a_request_is_one() {
        let request = MadRequest { target: MadTarget::Path(vec![1, 2]), attribute: Attribute::PortInfo(3) };
        let mut mad = request.mad(7);
        assert_eq!(number(&mad), 7);
        assert_eq!((mad[7], &mad[129..131]), (2, &[1, 2][..]));
        assert!(request.answer(&mad).is_none(), "a request is no answer");
        mad[3] = GET_ANSWER;
        mad[4] = 0x80;
        assert!(matches!(request.answer(&mad), Some(Ok(_))));
        mad[5] = 0x0c;
        assert_eq!(request.answer(&mad), Some(Err(Failure::Refused(0x0c))));
        mad[23] = 4;
        assert!(request.answer(&mad).is_none(), "another port's");
    }

    #[test]
    fn a_name_cannot_break_a_page() {
        let mut data = [0; 192];
        data[..11].copy_from_slice(b"sw\x1b[2J<b>\xff.");
        assert_eq!(description(&data), "sw[2J<b>.");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in proptest::collection::vec(any::<u8>(), 256)) {
            let mad: Mad = bytes.try_into().unwrap();
            let data: &Data = mad[64..].try_into().unwrap();
            if let Some(node) = NodeInfo::of(data) {
                prop_assert!(node.local_port <= node.ports);
            }
            prop_assert!(PortInfo::of(data).bytes_per_second() < 1e12);
            description(data);
            for attribute in [Attribute::NodeInfo, Attribute::Counters(1), Attribute::PortInfo(1)] {
                MadRequest { target: MadTarget::Lid(1), attribute }.answer(&mad);
            }
        }
    }
}
