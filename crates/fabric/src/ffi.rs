// SPDX-License-Identifier: BSD-3-Clause
//! libfabric's structs and numbers, as far as this crate uses them (fabric.h, fi_domain.h, fi_endpoint.h,
//! fi_eq.h, fi_rma.h and fi_cm.h of libfabric 1.17; later versions only append fields). Most of libfabric's
//! calls are functions in tables to which its objects point; only the calls in `library.rs` are symbols.
//!
//! Fields that this crate does not read have names, too: they fix the offsets of the fields that follow. The
//! test below compares offsets and numbers with the C headers.
#![allow(missing_docs, reason = "the names are libfabric's")]
#![allow(dead_code, reason = "fields hold the places of others; tests alone read some numbers")]

use std::ffi::{c_char, c_int, c_void};

/// FI_VERSION(1, 17): the interface that this crate speaks.
pub const VERSION: u32 = 1 << 16 | 17;

pub const FI_MSG: u64 = 1 << 1;
pub const FI_RMA: u64 = 1 << 2;
pub const FI_READ: u64 = 1 << 8;
pub const FI_WRITE: u64 = 1 << 9;
pub const FI_RECV: u64 = 1 << 10;
pub const FI_SEND: u64 = 1 << 11;
pub const FI_REMOTE_READ: u64 = 1 << 12;
pub const FI_REMOTE_WRITE: u64 = 1 << 13;
pub const FI_MULTI_RECV: u64 = 1 << 16;
pub const FI_CONTEXT: u64 = 1 << 59;
pub const FI_CONTEXT2: u64 = 1 << 52;
pub const FI_ORDER_RAW: u64 = 1 << 1;
pub const FI_ORDER_WAW: u64 = 1 << 4;
pub const FI_ORDER_SAW: u64 = 1 << 7;
pub const FI_ORDER_SAS: u64 = 1 << 8;

pub const FI_MR_LOCAL: c_int = 1 << 2;
pub const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub const FI_MR_ALLOCATED: c_int = 1 << 5;
pub const FI_MR_PROV_KEY: c_int = 1 << 6;
pub const FI_MR_ENDPOINT: c_int = 1 << 9;

pub const FI_THREAD_DOMAIN: u32 = 3;
pub const FI_PROGRESS_MANUAL: u32 = 2;
pub const FI_RM_ENABLED: u32 = 2;
pub const FI_AV_TABLE: u32 = 2;
pub const FI_EP_RDM: u32 = 3;
pub const FI_CQ_FORMAT_DATA: u32 = 3;
pub const FI_WAIT_NONE: u32 = 0;
pub const FI_WAIT_FD: u32 = 3;
pub const FI_GETWAIT: c_int = 5;
pub const FI_ENABLE: c_int = 6;
pub const FI_OPT_ENDPOINT: c_int = 0;
pub const FI_OPT_MIN_MULTI_RECV: c_int = 0;
pub const FI_SOCKADDR_IN: u32 = 2;
pub const FI_SOCKADDR_IN6: u32 = 3;
pub const FI_ADDR_UNSPEC: u64 = u64::MAX;

pub const FI_EAGAIN: isize = 11;
pub const FI_EAVAIL: isize = 259;
pub const FI_ENODATA: c_int = 61;
pub const FI_ECANCELED: c_int = 125;

#[repr(C)]
pub struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

#[repr(C)]
pub struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

#[repr(C)]
pub struct EpAttr {
    pub kind: u32,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
}

#[repr(C)]
pub struct DomainAttr {
    pub domain: *mut c_void,
    pub name: *mut c_char,
    pub threading: u32,
    pub control_progress: u32,
    pub data_progress: u32,
    pub resource_mgmt: u32,
    pub av_type: u32,
    pub mr_mode: c_int,
    /// The length, in bytes, of the keys by which the provider names registered memory.
    pub mr_key_size: usize,
}

#[repr(C)]
pub struct FabricAttr {
    pub fabric: *mut c_void,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

#[repr(C)]
pub struct LinkAttr {
    pub address: *mut c_char,
    pub mtu: usize,
    /// The speed of the link in bits per second.
    pub speed: usize,
    pub state: u32,
}

#[repr(C)]
pub struct Nic {
    pub fid: Fid,
    pub device_attr: *mut c_void,
    pub bus_attr: *mut c_void,
    pub link_attr: *mut LinkAttr,
}

#[repr(C)]
pub struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut Fid,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
    pub nic: *mut Nic,
}

/// The struct with which the struct of every object of libfabric begins.
#[repr(C)]
pub struct Fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const Ops,
}

#[repr(C)]
pub struct Ops {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub struct FidFabric {
    pub fid: Fid,
    pub ops: *const OpsFabric,
    pub api_version: u32,
}

#[repr(C)]
pub struct OpsFabric {
    pub size: usize,
    pub domain: unsafe extern "C" fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void) -> c_int,
    pub passive_ep: *const c_void,
    pub eq_open: *const c_void,
    pub wait_open: *const c_void,
    pub trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
}

#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const OpsDomain,
    pub mr: *const OpsMr,
}

#[repr(C)]
pub struct OpsDomain {
    pub size: usize,
    pub av_open: unsafe extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub cq_open: unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub endpoint: unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
}

#[repr(C)]
pub struct OpsMr {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
}

#[repr(C)]
pub struct FidMr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
pub struct AvAttr {
    pub kind: u32,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub struct FidAv {
    pub fid: Fid,
    pub ops: *const OpsAv,
}

#[repr(C)]
pub struct OpsAv {
    pub size: usize,
    pub insert: unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
    pub insertsvc: *const c_void,
    pub insertsym: *const c_void,
    pub remove: unsafe extern "C" fn(*mut FidAv, *mut u64, usize, u64) -> c_int,
}

#[repr(C)]
pub struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: u32,
    pub wait_obj: u32,
    pub signaling_vector: c_int,
    pub wait_cond: u32,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub struct FidCq {
    pub fid: Fid,
    pub ops: *const OpsCq,
}

#[repr(C)]
pub struct OpsCq {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub readfrom: *const c_void,
    pub readerr: unsafe extern "C" fn(*mut FidCq, *mut CqErrEntry, u64) -> isize,
    pub sread: *const c_void,
    pub sreadfrom: *const c_void,
    pub signal: *const c_void,
    pub strerror: unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CqDataEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct CqErrEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    /// Bytes that libfabric 1.20 and newer append (the field `src_addr`), and that this crate does not read.
    pub later: [u64; 4],
}

#[repr(C)]
pub struct FidEp {
    pub fid: Fid,
    pub ops: *const OpsEp,
    pub cm: *const OpsCm,
    pub msg: *const OpsMsg,
    pub rma: *const OpsRma,
}

#[repr(C)]
pub struct OpsEp {
    pub size: usize,
    pub cancel: *const c_void,
    pub getopt: *const c_void,
    pub setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
}

#[repr(C)]
pub struct OpsCm {
    pub size: usize,
    pub setname: *const c_void,
    pub getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

#[repr(C)]
pub struct OpsMsg {
    pub size: usize,
    pub recv: *const c_void,
    pub recvv: *const c_void,
    pub recvmsg: unsafe extern "C" fn(*mut FidEp, *const Msg, u64) -> isize,
    pub send: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    pub sendv: *const c_void,
    pub sendmsg: *const c_void,
    pub inject: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64) -> isize,
}

#[repr(C)]
pub struct Msg {
    pub msg_iov: *const libc::iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct OpsRma {
    pub size: usize,
    pub read: unsafe extern "C" fn(
        *mut FidEp,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub readv: *const c_void,
    pub readmsg: *const c_void,
    pub write: unsafe extern "C" fn(
        *mut FidEp,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::io::Write as _;
    use std::mem::offset_of;
    use std::process::{Command, Stdio};

    /// Goal: the structs and numbers here are those of the installed headers. Method: a C compiler checks one
    /// line for each of them.
    #[test]
    fn records_are_those_of_the_headers() {
        let mut source = String::new();
        for header in ["", "_domain", "_endpoint", "_eq", "_rma", "_cm"] {
            let name = if header.is_empty() { "fabric".to_owned() } else { format!("fi{header}") };
            writeln!(source, "#include <rdma/{name}.h>").unwrap();
        }
        source += "#include <stddef.h>\n";
        macro_rules! same_offsets {
            ($($record:ident $c:literal: $($field:ident = $name:literal),*;)*) => {$($(
                let (c, name, ours) = ($c, $name, offset_of!($record, $field));
                writeln!(source, "_Static_assert(offsetof({c}, {name}) == {ours}, \"{c}.{name}\");").unwrap();
            )*)*};
        }
        same_offsets! {
            Info "struct fi_info": caps = "caps", mode = "mode", addr_format = "addr_format", src_addrlen = "src_addrlen",
                src_addr = "src_addr", tx_attr = "tx_attr", rx_attr = "rx_attr", ep_attr = "ep_attr",
                domain_attr = "domain_attr", fabric_attr = "fabric_attr", nic = "nic";
            TxAttr "struct fi_tx_attr": msg_order = "msg_order", inject_size = "inject_size", size = "size";
            RxAttr "struct fi_rx_attr": msg_order = "msg_order", size = "size";
            EpAttr "struct fi_ep_attr": kind = "type", max_msg_size = "max_msg_size";
            DomainAttr "struct fi_domain_attr": name = "name", threading = "threading",
                control_progress = "control_progress", data_progress = "data_progress", resource_mgmt = "resource_mgmt",
                av_type = "av_type", mr_mode = "mr_mode", mr_key_size = "mr_key_size";
            FabricAttr "struct fi_fabric_attr": prov_name = "prov_name";
            LinkAttr "struct fi_link_attr": speed = "speed";
            Nic "struct fid_nic": link_attr = "link_attr";
            Fid "struct fid": ops = "ops";
            Ops "struct fi_ops": close = "close", bind = "bind", control = "control";
            FidFabric "struct fid_fabric": ops = "ops";
            OpsFabric "struct fi_ops_fabric": domain = "domain", trywait = "trywait";
            FidDomain "struct fid_domain": ops = "ops", mr = "mr";
            OpsDomain "struct fi_ops_domain": av_open = "av_open", cq_open = "cq_open", endpoint = "endpoint";
            OpsMr "struct fi_ops_mr": reg = "reg";
            FidMr "struct fid_mr": mem_desc = "mem_desc", key = "key";
            AvAttr "struct fi_av_attr": kind = "type", count = "count", flags = "flags";
            FidAv "struct fid_av": ops = "ops";
            OpsAv "struct fi_ops_av": insert = "insert", remove = "remove";
            CqAttr "struct fi_cq_attr": size = "size", format = "format", wait_obj = "wait_obj", wait_set = "wait_set";
            FidCq "struct fid_cq": ops = "ops";
            OpsCq "struct fi_ops_cq": read = "read", readerr = "readerr";
            CqDataEntry "struct fi_cq_data_entry": flags = "flags", len = "len", buf = "buf", data = "data";
            CqErrEntry "struct fi_cq_err_entry": err = "err", prov_errno = "prov_errno", err_data_size = "err_data_size";
            FidEp "struct fid_ep": ops = "ops", cm = "cm", msg = "msg", rma = "rma";
            OpsEp "struct fi_ops_ep": setopt = "setopt";
            OpsCm "struct fi_ops_cm": getname = "getname";
            OpsMsg "struct fi_ops_msg": recvmsg = "recvmsg", send = "send", inject = "inject";
            Msg "struct fi_msg": iov_count = "iov_count", addr = "addr", context = "context", data = "data";
            OpsRma "struct fi_ops_rma": read = "read", write = "write";
        }
        macro_rules! same_numbers {
            ($($number:ident),*) => {$(
                let (name, ours) = (stringify!($number), $number);
                writeln!(source, "_Static_assert({name} == {ours}ull, \"{name}\");").unwrap();
            )*};
        }
        same_numbers! {
            FI_MSG, FI_RMA, FI_READ, FI_WRITE, FI_RECV, FI_SEND, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_MULTI_RECV, FI_CONTEXT,
            FI_CONTEXT2, FI_ORDER_RAW, FI_ORDER_WAW, FI_ORDER_SAW, FI_ORDER_SAS,
            FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY, FI_MR_ENDPOINT,
            FI_THREAD_DOMAIN, FI_PROGRESS_MANUAL, FI_RM_ENABLED, FI_AV_TABLE, FI_EP_RDM, FI_CQ_FORMAT_DATA, FI_WAIT_NONE, FI_WAIT_FD, FI_GETWAIT,
            FI_ENABLE, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_ADDR_UNSPEC, FI_EAGAIN,
            FI_EAVAIL, FI_ENODATA, FI_ECANCELED
        }
        let mut compiler = Command::new("cc")
            .args(["-x", "c", "-fsyntax-only", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a C compiler");
        compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        let compiled = compiler.wait_with_output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }
}
