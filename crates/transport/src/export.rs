// SPDX-License-Identifier: BSD-3-Clause
//! Memory that ranks export to a proxy on another computer, such as a data processing unit (DPU), which reads
//! and writes it by RDMA.
//!
//! A rank's `Exporter` registers ranges at an endpoint of its own, beside that of packets. A network adapter
//! carries the accesses out without the rank. Where libfabric emulates RDMA (tcp), the exporter's thread does
//! so.
//!
//! Invariant: no range is written after it was revoked or its exporter was closed.
//!
//! Read next: `import.rs`, by which the proxy accesses the memory.

use crate::shm::Segment;
use error::{Class, Result, fail};
use fabric::{Config, Endpoint, Event, Libfabric, ProviderChoice, Region, RemoteMemory};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sys::Span;

/// How long an exporter's thread sleeps at most before it checks whether the exporter has been closed.
const WATCH: Duration = Duration::from_millis(200);

/// A range of memory that a rank has exported, with the numbers by which an importer reaches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportedRange {
    /// The address of the range's first byte in the rank's process.
    pub address: u64,
    /// The length of the range, in bytes.
    pub bytes: u64,
    /// The key by which the rank's network provider knows the range.
    pub key: u64,
    /// The address of the range's first byte in the network provider's numbering (`RemoteMemory::base`).
    pub base: u64,
}

impl ExportedRange {
    /// How many 64-bit words a range takes in a note, the fixed-size message by which a rank tells the proxy
    /// of it.
    pub const WORDS: usize = 4;

    /// Returns the range as the words of a note, the message to the proxy.
    pub fn words(&self) -> [u64; ExportedRange::WORDS] {
        [self.address, self.bytes, self.key, self.base]
    }

    /// Makes a range from the words in a rank's note. Returns None if there are too few or too many words, or
    /// if the range would wrap around.
    pub fn from_words(words: &[u64]) -> Option<ExportedRange> {
        let &[address, bytes, key, base] = words else { return None };
        address.checked_add(bytes)?;
        Some(ExportedRange { address, bytes, key, base })
    }

    /// Returns the offset in this range of the `bytes` bytes at `address`, or None if they do not all lie in
    /// it.
    pub fn find(&self, address: u64, bytes: u64) -> Option<u64> {
        let at = address.checked_sub(self.address)?;
        (at <= self.bytes && bytes <= self.bytes - at).then_some(at)
    }
}

/// A rank's exported memory, with the endpoint that serves it and the thread that drives the endpoint.
pub struct Exporter {
    shared: Arc<Shared>,
    name: Vec<u8>,
}

struct Shared {
    /// The function that makes the rank look at what its proxy has written. The exporter's thread calls it
    /// for each announcement from the proxy.
    announced: Box<dyn Fn() + Send + Sync>,
    /// The endpoint and the registered ranges; None once the exporter is closed.
    open: Mutex<Option<Open>>,
}

struct Open {
    // The regions are closed before the endpoint.
    regions: HashMap<u64, Region>,
    endpoint: Endpoint,
}

impl Exporter {
    /// Opens an endpoint by which importers reach exported memory. Starts the endpoint's thread, which calls
    /// `announced` when an importer has announced what it wrote. Errors (MPI_ERR_OTHER): there is no
    /// libfabric, or no thread.
    pub fn open(
        segment: &Segment,
        wanted: &ProviderChoice,
        announced: impl Fn() + Send + Sync + 'static,
    ) -> Result<Exporter> {
        let endpoint = endpoint(segment, wanted, 1)?;
        let name = endpoint.name().to_vec();
        let fd = endpoint.wait_fd().and_then(|fd| fd.try_clone_to_owned().ok());
        let open = Open { regions: HashMap::new(), endpoint };
        let shared = Arc::new(Shared { announced: Box::new(announced), open: Mutex::new(Some(open)) });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("outboard-export".into());
        match thread.spawn(move || theirs.drive(fd.as_ref())) {
            Ok(_) => Ok(Exporter { shared, name }),
            Err(error) => fail!(Class::Other, "cannot start a thread that lends memory: {error}"),
        }
    }

    /// Returns the name of the endpoint by which an importer reaches this exporter.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Exports memory, which must stay mapped until the export is revoked. The buffers of an operation stay
    /// mapped until the operation ends (MPI 5.0, section 2.2). Returns None if the provider refuses or the
    /// exporter is closed.
    pub fn export(&self, span: Span) -> Option<ExportedRange> {
        let mut open = self.shared.lock();
        let Open { regions, endpoint } = open.as_mut()?;
        // SAFETY: it stays mapped while it is exported, by this function's contract.
        let region = unsafe { endpoint.register(span) }.ok()?;
        let RemoteMemory { key, base, bytes } = region.remote();
        regions.insert(key, region);
        Some(ExportedRange { address: span.address() as u64, bytes, key, base })
    }

    /// Revokes the export of a range: reads and writes that start later fail. The caller makes sure that none
    /// is under way, since only `close` stops those.
    pub fn revoke(&self, range: &ExportedRange) {
        if let Some(open) = self.shared.lock().as_mut() {
            open.regions.remove(&range.key);
        }
    }

    /// Stops the exporter's thread as long as the returned guard lives.
    #[cfg(test)]
    pub(crate) fn lock(&self) -> impl Drop + '_ {
        self.shared.lock()
    }

    /// Revokes all exported ranges and closes the endpoint. Reads and writes that are under way change no
    /// memory any more.
    pub fn close(&self) {
        *self.shared.lock() = None;
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives the endpoint until the exporter is closed. The exporter's thread runs this.
    fn drive(&self, fd: Option<&OwnedFd>) {
        sys::signal::block_all();
        let mut packets = Vec::new();
        loop {
            let mut open = self.lock();
            let Some(Open { endpoint, .. }) = open.as_mut() else { return };
            let moved = endpoint.poll(|event| {
                if let Event::Packet(packet) = event {
                    packets.push(packet);
                }
            });
            // Whoever else sends packets here has the rank look for nothing.
            if !packets.is_empty() {
                (self.announced)();
            }
            packets.drain(..).for_each(|packet| endpoint.release(packet));
            let may_sleep = !moved.unwrap_or(false) && endpoint.may_sleep();
            drop(open);
            match fd {
                Some(fd) if may_sleep => drop(sys::process::readable(fd, Some(WATCH))),
                Some(_) => {}
                None => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

/// Opens an endpoint for reads and writes of exported memory. At most `accesses_max` of them can be under way
/// at once. Errors (MPI_ERR_OTHER): there is no libfabric, or no provider that keeps the order of writes.
pub(crate) fn endpoint(segment: &Segment, wanted: &ProviderChoice, accesses_max: usize) -> Result<Endpoint> {
    // This endpoint is for accesses only, so packets need no room.
    let (packet_bytes_max, sends_max, receive_buffers, receive_buffer_bytes) = (256, 1, 2, 4096);
    let config = Config { packet_bytes_max, sends_max, receive_buffers, receive_buffer_bytes, accesses_max };
    let library = Libfabric::load(wanted.library)?;
    let address = segment.job().address.text().parse().ok();
    let provider = fabric::choose(&library, wanted, address)?.swap_remove(0);
    if !provider.orders_writes() {
        fail!(
            Class::Other,
            "{} keeps no order among writes of a peer's memory and packets, which proxies on other computers need (OUTBOARD_FABRIC_PROVIDER names another provider)",
            provider.name()
        );
    }
    // SAFETY: an exporter's lock is around each use; an importer has one thread.
    unsafe { Endpoint::open(provider, config) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_outside_of_what_is_exported_is_none() {
        let range = ExportedRange { address: 100, bytes: 10, key: 1, base: 0 };
        assert_eq!(
            [range.find(100, 10), range.find(110, 0), range.find(104, 3)],
            [Some(0), Some(10), Some(4)]
        );
        for (address, bytes) in [(99, 1), (100, 11), (109, 2), (111, 0), (u64::MAX, 1), (100, u64::MAX)] {
            assert_eq!(range.find(address, bytes), None, "{address} {bytes}");
        }
    }
}
