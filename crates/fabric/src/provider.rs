// SPDX-License-Identifier: BSD-3-Clause
//! Chooses a provider and an interface among those that libfabric offers on this host, by one rule (`RULE`),
//! which `outboard info --fabric` prints.
//!
//! Only providers with reliable datagrams, messages in order, receive buffers for many messages, and RMA are
//! considered.
//!
//! Read next: `endpoint.rs`, which opens an endpoint of a provider.

use crate::ffi;
use crate::library::{Libfabric, text_of};
use error::{Class, Result, fail};
use settings::Settings;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// The rule by which `choose` orders the providers, as text for people.
pub const RULE: &str = "the fabric of a host before its tcp (cxi, verbs, efa, opx, psm3, tcp); then the interface with the \
    address by which the launcher named this host; then libfabric's own order";

/// The core names of the providers that `choose` takes if the user names none, best first. Other providers
/// are for one host (shm), unreliable (udp), replaced (sockets, psm, psm2), or not ready: libfabric 1.17's
/// `net` stops delivering between four processes.
const RANKING: [&str; 6] = ["cxi", "verbs", "efa", "opx", "psm3", "tcp"];

/// The library, provider and interface that the user has chosen. A field is None if Outboard chooses.
#[derive(Clone, Copy, Default)]
pub struct ProviderChoice<'a> {
    /// The file of libfabric that the user has named; None if Outboard chooses the file.
    pub library: Option<&'a Path>,
    /// The provider that the user has named, with its layers (`tcp;ofi_rxm`) or without; None if Outboard
    /// chooses it.
    pub provider: Option<&'a str>,
    /// The interfaces, devices, addresses or networks that the user has named, separated by commas. The
    /// provider must use one of them. None if it may use any.
    pub interface: Option<&'a str>,
}

impl<'a> ProviderChoice<'a> {
    /// Returns what the user has chosen by settings (OUTBOARD_FABRIC_...).
    pub fn of(settings: &'a Settings) -> ProviderChoice<'a> {
        ProviderChoice {
            library: settings.fabric_lib.as_deref(),
            provider: settings.fabric_provider.as_deref(),
            interface: settings.fabric_interface.as_deref(),
        }
    }

    /// Makes the choice of the provider with the name `name`, on any interface, in a library that Outboard
    /// chooses.
    pub fn provider(name: &'a str) -> ProviderChoice<'a> {
        ProviderChoice { provider: Some(name), ..ProviderChoice::default() }
    }
}

/// The facts that must be equal at two endpoints, else they wait for each other for ever: libfabric's major
/// version, and how many layers the provider has (tcp lies under ofi_rxm in 1.17, but is alone in later
/// versions). The three bytes, major, minor and layers, begin an endpoint's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compatibility([u8; 3]);

impl Compatibility {
    /// Returns the name of an endpoint as peers get it: the three bytes of this compatibility, then `name`,
    /// which libfabric has given the endpoint.
    pub fn prefix_to(self, name: &[u8]) -> Vec<u8> {
        [&self.0[..], name].concat()
    }

    /// Splits the name of an endpoint, as peers get it, into its first three bytes (the compatibility) and
    /// the name that libfabric has given the endpoint. Returns None if `name` is too short.
    pub fn split(name: &[u8]) -> Option<(Compatibility, &[u8])> {
        let (kin, name) = name.split_first_chunk()?;
        Some((Compatibility(*kin), name))
    }

    /// Whether an endpoint with this compatibility can communicate with one that has `other`.
    pub fn suits(self, other: Compatibility) -> bool {
        let ([major, _, layers], [its_major, _, its_layers]) = (self.0, other.0);
        (major, layers) == (its_major, its_layers)
    }
}

impl fmt::Display for Compatibility {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "libfabric {}.{}", self.0[0], self.0[1])
    }
}

/// A provider of libfabric, together with one interface of this host that it uses.
pub struct Provider {
    pub(crate) library: Arc<Libfabric>,
    pub(crate) info: ptr::NonNull<ffi::Info>,
}

// SAFETY: the record is owned, and libfabric keeps no pointer to it.
unsafe impl Send for Provider {}

/// Returns the core name of a provider, without its layers: `verbs` for `verbs;ofi_rxm`.
fn core_of(provider: &str) -> &str {
    provider.split(';').next().unwrap_or_default()
}

/// Whether this provider's packets reach the peer even while the sending process computes outside MPI. This
/// holds for tcp: the packets lie in a socket, and the kernel sends them.
pub fn is_carried_by_kernel(provider: &str) -> bool {
    core_of(provider) == "tcp"
}

impl Provider {
    pub(crate) fn info(&self) -> &ffi::Info {
        // SAFETY: this provider owns the record until it is dropped.
        unsafe { self.info.as_ref() }
    }

    /// Returns libfabric's name of the provider, with its layers, such as `verbs;ofi_rxm`.
    pub fn name(&self) -> String {
        // SAFETY: every record that fi_getinfo returns has these attributes.
        let attributes = unsafe { &*self.info().fabric_attr };
        text_of(attributes.prov_name).unwrap_or_default()
    }

    /// Returns the loaded libfabric that offers the provider.
    pub fn library(&self) -> &Libfabric {
        &self.library
    }

    /// Returns the core name of the provider, without its layers, such as `verbs`.
    pub fn core(&self) -> String {
        core_of(&self.name()).to_owned()
    }

    /// Returns the name of the device or interface that the provider uses, such as `mlx5_0` or `eth0`.
    pub fn domain(&self) -> String {
        // SAFETY: every record that fi_getinfo returns has these attributes.
        let attributes = unsafe { &*self.info().domain_attr };
        text_of(attributes.name).unwrap_or_default()
    }

    /// Returns the IP address of this host that the provider uses; None if it does not use IP.
    pub fn address(&self) -> Option<IpAddr> {
        let info = self.info();
        let at = info.src_addr.cast::<u8>();
        if at.is_null() {
            return None;
        }
        // SAFETY: `src_addr` points to `src_addrlen` bytes of the record.
        let bytes = unsafe { std::slice::from_raw_parts(at, info.src_addrlen) };
        self.address_of(bytes).map(|address| address.ip())
    }

    /// Returns the IP address and port of the peer's endpoint with the name `name`, which begins with its
    /// `Compatibility`. Returns None if the provider does not use IP.
    pub fn peer_address(&self, name: &[u8]) -> Option<SocketAddr> {
        self.address_of(Compatibility::split(name)?.1)
    }

    /// Returns what an endpoint of this provider must have in common with a peer's endpoint.
    pub(crate) fn compatibility(&self) -> Compatibility {
        let (major, minor) = self.library.version();
        let layers = self.name().matches(';').count();
        Compatibility([major, minor, layers as u32].map(|number| number.min(255) as u8))
    }

    /// Returns the IP address and port that `name`, libfabric's own name of an endpoint, holds; None if the
    /// provider does not use IP.
    fn address_of(&self, name: &[u8]) -> Option<SocketAddr> {
        // The offsets are those of sockaddr_in and sockaddr_in6 (netinet/in.h).
        let port = u16::from_be_bytes(name.get(2..4)?.try_into().ok()?);
        let ip = match self.info().addr_format {
            ffi::FI_SOCKADDR_IN => Ipv4Addr::from(<[u8; 4]>::try_from(name.get(4..8)?).ok()?).into(),
            ffi::FI_SOCKADDR_IN6 => Ipv6Addr::from(<[u8; 16]>::try_from(name.get(8..24)?).ok()?).into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }

    /// Whether writes to a peer's memory take effect in the order in which they were started, and also before
    /// each read of that memory and each packet to that peer that this process starts later.
    pub fn orders_writes(&self) -> bool {
        let wanted = ffi::FI_ORDER_WAW | ffi::FI_ORDER_RAW | ffi::FI_ORDER_SAW;
        // SAFETY: every record that fi_getinfo returns has these attributes.
        unsafe { (*self.info().tx_attr).msg_order & wanted == wanted }
    }

    /// Returns the speed of the provider's link in bits per second; None if the provider does not know it.
    pub fn bits_per_second(&self) -> Option<u64> {
        // SAFETY: null, or a record that lives as long as the info.
        let nic = unsafe { self.info().nic.as_ref() }?;
        // SAFETY: as above.
        let link = unsafe { nic.link_attr.as_ref() }?;
        (link.speed > 0).then_some(link.speed as u64)
    }

    /// Returns the index of the provider's core name in `RANKING`, or None if the name is not there. A
    /// provider that is not there is used only if the user names it.
    fn rank(&self) -> Option<usize> {
        RANKING.iter().position(|core| *core == self.core())
    }

    /// Whether the provider lacks an IP address that it needs. Only verbs needs one, since it connects by
    /// rdma_cm.
    fn lacks_ip_address(&self) -> bool {
        self.core() == "verbs" && self.address().is_none()
    }

    /// Whether the provider uses one of `interfaces`, a list such as `eth0,mlx5_0,10.0.0.1,10.0.0.0/8`.
    fn is_on(&self, interfaces: &str) -> bool {
        let (domain, address) = (self.domain(), self.address());
        // `mlx5_0-xrc` is another protocol on `mlx5_0`.
        let device = domain.split('-').next().unwrap_or_default();
        interfaces.split(',').map(str::trim).any(|one| match one.split_once('/') {
            Some((network, bits)) => address.is_some_and(|address| is_within(address, network, bits)),
            None => {
                let is_its = || Path::new("/sys/class/net").join(one).join("device/infiniband").join(device);
                one == domain
                    || one == device
                    || address.is_some_and(|address| one.parse() == Ok(address))
                    || (!one.is_empty() && is_its().exists())
            }
        })
    }

    /// Whether `choose` may take the provider. It must use an interface that the user allows. It must be the
    /// provider that the user has named, or one in `RANKING` if the user has named none. Verbs also needs an
    /// IP address.
    pub fn suits(&self, wanted: &ProviderChoice) -> bool {
        if self.lacks_ip_address() || wanted.interface.is_some_and(|interfaces| !self.is_on(interfaces)) {
            return false;
        }
        match wanted.provider {
            Some(wanted) => self.name() == wanted || self.core() == wanted,
            None => self.rank().is_some(),
        }
    }

    /// Returns the reason for the provider's place under `RULE`, or why it is not taken, as text for people.
    /// `host` is the address by which the launcher named this host.
    pub fn reason(&self, wanted: &ProviderChoice, host: Option<IpAddr>) -> String {
        if self.lacks_ip_address() {
            return "not taken: verbs needs an interface with an IP address".into();
        }
        if wanted.interface.is_some_and(|interfaces| !self.is_on(interfaces)) {
            return "not taken: OUTBOARD_FABRIC_INTERFACE names another interface".into();
        }
        let place = match (wanted.provider, self.rank()) {
            (Some(_), _) => "chosen by OUTBOARD_FABRIC_PROVIDER".to_owned(),
            (None, Some(rank)) => format!("place {} of {} by provider", rank + 1, RANKING.len()),
            (None, None) => return "not taken unless OUTBOARD_FABRIC_PROVIDER names it".into(),
        };
        let way = match (self.address(), host, distance(self.address(), host)) {
            (_, Some(host), 0) => format!("the launcher's address of this host is {host}"),
            (None, ..) => "a device without an IP address".into(),
            (_, _, 4) => "loopback: reaches this host only".into(),
            (_, Some(host), _) => format!("not the launcher's address of this host, {host}"),
            (_, None, _) => "no address of this host was given".into(),
        };
        format!("{place}; {way}")
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} on {}", self.name(), self.domain())?;
        if let Some(address) = self.address() {
            write!(f, " ({address})")?;
        }
        match self.bits_per_second() {
            Some(bits) => write!(f, ", {} Gbit/s", bits / 1_000_000_000),
            None => Ok(()),
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // SAFETY: the record came from fi_dupinfo, and nothing else frees it.
        unsafe { (self.library.free_info)(self.info.as_ptr()) }
    }
}

/// Finds the providers that may be used on this host, and returns them in the order of `RULE`, best first.
///
/// `host` is the address by which the launcher named this host. Errors (MPI_ERR_OTHER): no provider may be
/// used; the sentence lists what libfabric offers.
pub fn choose(
    library: &Arc<Libfabric>,
    wanted: &ProviderChoice,
    host: Option<IpAddr>,
) -> Result<Vec<Provider>> {
    let all = offers(library)?;
    let names = |providers: &[Provider]| {
        let mut names: Vec<_> = providers.iter().map(Provider::name).collect();
        names.sort();
        names.dedup();
        names.join(", ")
    };
    let there = names(&all);
    if let Some(interfaces) = wanted.interface.filter(|one| !all.iter().any(|offer| offer.is_on(one))) {
        let mut ways: Vec<_> = all.iter().map(Provider::domain).collect();
        ways.sort();
        ways.dedup();
        fail!(
            Class::Other,
            "this host has no interface {interfaces} for libfabric (mpirun -iface, OUTBOARD_FABRIC_INTERFACE); it has {}",
            ways.join(", ")
        );
    }
    let mut left: Vec<_> = all.into_iter().filter(|provider| provider.suits(wanted)).collect();
    if left.is_empty() {
        match wanted.provider {
            Some(wanted) => fail!(
                Class::Other,
                "libfabric has no provider {wanted} for messages and RMA here; it has {there}"
            ),
            None => fail!(
                Class::Other,
                "none of libfabric's providers here suits: it has {there}; Outboard takes {}",
                RANKING.join(", ")
            ),
        }
    }
    // The sort is stable: equal providers stay in libfabric's order.
    left.sort_by_key(|provider| {
        (provider.rank().unwrap_or(RANKING.len()), distance(provider.address(), host))
    });
    Ok(left)
}

/// Whether an address lies in a network, as 10.1.2.3 lies in 10.0.0.0/8 (`network` 10.0.0.0, `bits` 8).
fn is_within(address: IpAddr, network: &str, bits: &str) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let (Ok(network), Ok(bits)) = (network.parse(), bits.parse::<u32>()) else { return false };
    let ((address, length), (network, other)) = (number(address), number(network));
    let rest = |number: u128| number.checked_shr(length - bits).unwrap_or(0);
    length == other && bits <= length && rest(address) == rest(network)
}

/// Returns how well an interface's address suits `host`, the launcher's address of this host: 0 is best (both
/// are equal), 4 is worst (loopback).
fn distance(address: Option<IpAddr>, host: Option<IpAddr>) -> u8 {
    match (address, host) {
        (Some(address), Some(host)) if address == host => 0,
        (None, _) => 1,
        (Some(address), Some(host)) if address.is_ipv4() == host.is_ipv4() && !address.is_loopback() => 2,
        (Some(address), None) if address.is_ipv4() && !address.is_loopback() => 2,
        (Some(address), _) if !address.is_loopback() => 3,
        _ => 4,
    }
}

/// Returns all providers that have what an endpoint needs, in libfabric's order.
pub fn offers(library: &Arc<Libfabric>) -> Result<Vec<Provider>> {
    // SAFETY: with a null pointer it allocates an empty record with its attributes.
    let hints = unsafe { (library.dup_info)(ptr::null()) };
    let Some(hints) = ptr::NonNull::new(hints) else {
        fail!(Class::NoMem, "libfabric has no memory for a record");
    };
    let mut hints = Provider { library: library.clone(), info: hints };
    // SAFETY: the record was allocated just now, and nothing else uses it.
    let record = unsafe { hints.info.as_mut() };
    // SAFETY: its attributes were allocated with it.
    unsafe { require(record) };
    let mut found = ptr::null_mut();
    // SAFETY: all pointers are null or live for the call.
    let code = unsafe {
        (library.get_info)(ffi::VERSION, ptr::null(), ptr::null(), 0, hints.info.as_ptr(), &mut found)
    };
    if code != 0 && -code != ffi::FI_ENODATA {
        fail!(Class::Other, "libfabric cannot list its providers: {}", library.error_text(code as isize));
    }
    let mut all = Vec::new();
    let mut next = found;
    while let Some(info) = ptr::NonNull::new(next) {
        // SAFETY: the list's records live until the list is freed below.
        next = unsafe { info.as_ref() }.next;
        // SAFETY: as above; the copy is a list of one record.
        let copy = unsafe { (library.dup_info)(info.as_ptr()) };
        all.extend(ptr::NonNull::new(copy).map(|info| Provider { library: library.clone(), info }));
    }
    // SAFETY: the list is not used any more; null is allowed.
    unsafe { (library.free_info)(found) };
    Ok(all)
}

/// Writes the requirements of an endpoint into the hints of fi_getinfo.
///
/// # Safety
/// The record's attributes must be allocated.
unsafe fn require(hints: &mut ffi::Info) {
    hints.caps = ffi::FI_MSG | ffi::FI_RMA | ffi::FI_MULTI_RECV;
    hints.mode = ffi::FI_CONTEXT | ffi::FI_CONTEXT2;
    // SAFETY: allocated, by this function's contract.
    let endpoint = unsafe { &mut *hints.ep_attr };
    endpoint.kind = ffi::FI_EP_RDM;
    // SAFETY: as above.
    let domain = unsafe { &mut *hints.domain_attr };
    domain.threading = ffi::FI_THREAD_DOMAIN;
    // `poll` drives the provider: no thread of the provider is needed.
    (domain.control_progress, domain.data_progress) = (ffi::FI_PROGRESS_MANUAL, ffi::FI_PROGRESS_MANUAL);
    domain.resource_mgmt = ffi::FI_RM_ENABLED;
    domain.av_type = ffi::FI_AV_TABLE;
    domain.mr_mode = ffi::FI_MR_LOCAL
        | ffi::FI_MR_VIRT_ADDR
        | ffi::FI_MR_ALLOCATED
        | ffi::FI_MR_PROV_KEY
        | ffi::FI_MR_ENDPOINT;
    // MPI's messages must not overtake each other (MPI 5.0, section 3.5).
    // SAFETY: as above.
    let transmit = unsafe { &mut *hints.tx_attr };
    transmit.msg_order = ffi::FI_ORDER_SAS;
    // SAFETY: as above.
    let receive = unsafe { &mut *hints.rx_attr };
    receive.msg_order = ffi::FI_ORDER_SAS;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_host_comes_first_and_loopback_last() {
        let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let host = ip("10.1.0.7");
        let mut addresses = [ip("127.0.0.1"), ip("fd00::7"), ip("10.1.0.8"), None, ip("10.1.0.7")];
        addresses.sort_by_key(|address| distance(*address, host));
        assert_eq!(addresses, [ip("10.1.0.7"), None, ip("10.1.0.8"), ip("fd00::7"), ip("127.0.0.1")]);
        assert!(distance(ip("10.1.0.8"), None) < distance(ip("127.0.0.1"), None));
        assert_eq!(distance(ip("127.0.0.1"), ip("127.0.0.1")), 0);
    }

    #[test]
    fn tcp_is_offered_and_an_unknown_provider_is_refused() {
        let library = Libfabric::load(None).unwrap();
        let loopback = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let tcp = ProviderChoice::provider("tcp");
        let offers = choose(&library, &tcp, loopback).unwrap();
        assert_eq!(offers[0].core(), "tcp", "{}", offers[0]);
        assert_eq!(offers[0].address(), loopback);
        let reason = offers[0].reason(&ProviderChoice::default(), loopback);
        assert!(reason.contains("launcher's address of this host is 127.0.0.1"), "{reason}");
        let other = offers[0].reason(&ProviderChoice::default(), "10.77.0.1".parse().ok());
        assert!(other.contains("loopback"), "{other}");
        assert!(offers[0].to_string().contains("127.0.0.1"), "{}", offers[0]);
        let wrong = ProviderChoice::provider("carrier-pigeon");
        let error = choose(&library, &wrong, None).err().unwrap().message.clone();
        // `net` loses messages between four processes, so it is taken only if the user names it.
        assert!(
            choose(&library, &ProviderChoice::default(), loopback)
                .unwrap()
                .iter()
                .all(|offer| offer.core() != "net")
        );
        assert!(error.contains("carrier-pigeon") && error.contains("tcp"), "{error}");
    }

    #[test]
    fn an_interface_that_is_named_is_taken_alone() {
        let library = Libfabric::load(None).unwrap();
        for name in ["lo", "127.0.0.1", "eth77, 127.0.0.0/8"] {
            let wanted = ProviderChoice { interface: Some(name), ..ProviderChoice::default() };
            let offers = choose(&library, &wanted, None).unwrap();
            assert!(offers.iter().all(|offer| offer.domain() == "lo"), "{name}: {}", offers[0]);
            assert!(!offers.is_empty());
        }
        let wanted = ProviderChoice { interface: Some("eth77"), ..ProviderChoice::default() };
        let error = choose(&library, &wanted, None).err().unwrap().message.clone();
        assert!(
            error.contains("no interface eth77") && error.contains("it has ") && error.contains("lo"),
            "{error}"
        );
    }

    #[test]
    fn networks_have_their_addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (address, network, bits, is) in [
            ("10.1.2.3", "10.0.0.0", "8", true),
            ("11.1.2.3", "10.0.0.0", "8", false),
            ("11.1.2.3", "10.0.0.0", "0", true),
            ("10.1.2.3", "10.1.2.3", "32", true),
            ("10.1.2.3", "10.1.2.3", "33", false),
            ("fd00::7", "fd00::", "16", true),
            ("10.1.2.3", "fd00::", "0", false),
            ("10.1.2.3", "ten", "8", false),
        ] {
            assert_eq!(is_within(ip(address), network, bits), is, "{address} {network}/{bits}");
        }
    }
}
