// SPDX-License-Identifier: BSD-3-Clause
//! The table of counters, the only place that defines a counter's name, unit and meaning.

/// What a counter counts: events, bytes or nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The counter counts events.
    Count,
    /// The counter counts bytes.
    Bytes,
    /// The counter adds up time, in nanoseconds.
    Nanoseconds,
}

macro_rules! counters {
    ($($name:ident $text:literal $unit:ident $doc:literal;)*) => {
        /// The counters of a process. Each counter is one word of the process's `CounterPage`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter { $(#[doc = $doc] $name,)* }

        impl Counter {
            /// All counters, in the order of their words in a `CounterPage`.
            pub const ALL: &[Counter] = &[$(Counter::$name),*];

            /// Returns the counter's name in `outboard top`, OUTBOARD_STATS and JSON.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$name => $text,)* }
            }

            /// Returns what the counter counts: events, bytes or nanoseconds.
            pub fn unit(self) -> Unit {
                match self { $(Counter::$name => Unit::$unit,)* }
            }

            /// Returns the meaning of the counter, as text for users.
            pub fn doc(self) -> &'static str {
                match self { $(Counter::$name => $doc,)* }
            }
        }
    };
}

counters! {
    OwnMessages "own_messages" Count "messages to this process itself";
    OwnBytes "own_bytes" Bytes "bytes of messages to this process itself";
    EagerMessagesSent "eager_messages_sent" Count "messages sent unasked through a ring";
    EagerBytesSent "eager_bytes_sent" Bytes "bytes sent unasked through a ring";
    RendezvousMessagesSent "rendezvous_messages_sent" Count "messages sent after the receiver's buffer was known";
    RendezvousBytesSent "rendezvous_bytes_sent" Bytes "bytes sent after the receiver's buffer was known";
    EagerMessagesReceived "eager_messages_received" Count "messages received that were sent unasked";
    EagerBytesReceived "eager_bytes_received" Bytes "bytes received that were sent unasked";
    RendezvousMessagesReceived "rendezvous_messages_received" Count "messages received by rendezvous";
    RendezvousBytesReceived "rendezvous_bytes_received" Bytes "bytes received by rendezvous";
    UnexpectedMessages "unexpected_messages" Count "messages that came before their receive was posted";
    UnexpectedBytes "unexpected_bytes" Bytes "bytes kept for messages that came before their receive was posted";
    CmaBytes "cma_bytes" Bytes "bytes moved by cross-memory attach";
    DeviceBytes "device_bytes" Bytes "bytes of messages copied out of device memory of other processes";
    DeviceKernels "device_kernels" Count "datatypes in device memory that kernels packed or unpacked";
    DeviceReductions "device_reductions" Count "reductions of device memory by kernels";
    PulledBytes "pulled_bytes" Bytes "bytes that the network read in memory of other hosts";
    CopiedBytes "copied_bytes" Bytes "bytes of collectives moved by copying between mapped memories";
    FetchedBytes "fetched_bytes" Bytes "bytes of collectives that were fetched from other hosts";
    StagedBytes "staged_bytes" Bytes "bytes of collectives put into shared memory for peers to take";
    NetRefused "net_refused" Count "packets from the network that did not carry the job's secret, or made no sense, and were dropped";
    NetEarly "net_early" Count "packets from the network that came before an earlier one of their sender, and were put into order";
    NetRepeated "net_repeated" Count "packets from the network that had come before, and were dropped";
    NetResent "net_resent" Count "packets that were sent again over the network, because the receiver did not have them";
    RingFull "ring_full" Count "times that a packet found its ring full and was tried again later";

    BarrierCalls "barrier_calls" Count "barriers started, blocking or not";
    BcastCalls "bcast_calls" Count "broadcasts started";
    GatherCalls "gather_calls" Count "gathers started, gatherv included";
    ScatterCalls "scatter_calls" Count "scatters started, scatterv included";
    AllgatherCalls "allgather_calls" Count "allgathers started, allgatherv included";
    AlltoallCalls "alltoall_calls" Count "all-to-alls started, alltoallv and alltoallw included";
    ReduceCalls "reduce_calls" Count "reductions to a root started";
    AllreduceCalls "allreduce_calls" Count "reductions to all started";
    ReduceScatterCalls "reduce_scatter_calls" Count "reduce-scatters started, of both kinds";
    ScanCalls "scan_calls" Count "scans started, exclusive ones included";
    NeighborCalls "neighbor_calls" Count "neighborhood collectives started, of every kind";
    CclCalls "ccl_calls" Count "collectives given to the collective library (OUTBOARD_CCL)";

    BarrierWaits "barrier_waits" Count "waits of this rank for others, longer than a moment, in blocking barriers";
    BarrierWaitNs "barrier_wait_ns" Nanoseconds "time of these waits in barriers";
    BcastWaits "bcast_waits" Count "waits of this rank for others, longer than a moment, in blocking broadcasts";
    BcastWaitNs "bcast_wait_ns" Nanoseconds "time of these waits in broadcasts";
    GatherWaits "gather_waits" Count "waits of this rank for others, longer than a moment, in blocking gathers";
    GatherWaitNs "gather_wait_ns" Nanoseconds "time of these waits in gathers";
    ScatterWaits "scatter_waits" Count "waits of this rank for others, longer than a moment, in blocking scatters";
    ScatterWaitNs "scatter_wait_ns" Nanoseconds "time of these waits in scatters";
    AllgatherWaits "allgather_waits" Count "waits of this rank for others, longer than a moment, in blocking allgathers";
    AllgatherWaitNs "allgather_wait_ns" Nanoseconds "time of these waits in allgathers";
    AlltoallWaits "alltoall_waits" Count "waits of this rank for others, longer than a moment, in blocking all-to-alls";
    AlltoallWaitNs "alltoall_wait_ns" Nanoseconds "time of these waits in all-to-alls";
    ReduceWaits "reduce_waits" Count "waits of this rank for others, longer than a moment, in blocking reductions to a root";
    ReduceWaitNs "reduce_wait_ns" Nanoseconds "time of these waits in reductions to a root";
    AllreduceWaits "allreduce_waits" Count "waits of this rank for others, longer than a moment, in blocking reductions to all";
    AllreduceWaitNs "allreduce_wait_ns" Nanoseconds "time of these waits in reductions to all";
    ReduceScatterWaits "reduce_scatter_waits" Count "waits of this rank for others, longer than a moment, in blocking reduce-scatters";
    ReduceScatterWaitNs "reduce_scatter_wait_ns" Nanoseconds "time of these waits in reduce-scatters";
    ScanWaits "scan_waits" Count "waits of this rank for others, longer than a moment, in blocking scans";
    ScanWaitNs "scan_wait_ns" Nanoseconds "time of these waits in scans";

    PutCalls "put_calls" Count "puts into windows, MPI_Rput included";
    GetCalls "get_calls" Count "gets from windows, MPI_Rget included";
    AccumulateCalls "accumulate_calls" Count "atomic operations on windows: accumulates, fetch-and-ops, compare-and-swaps";
    WindowBytes "window_bytes" Bytes "bytes moved to and from windows by puts, gets and accumulates";

    ShmemPuts "shmem_put_calls" Count "puts of OpenSHMEM: of blocks, single elements, strided ones, with a signal";
    ShmemGets "shmem_get_calls" Count "gets of OpenSHMEM: of blocks, single elements, strided ones";
    ShmemAtomics "shmem_atomic_calls" Count "atomic operations of OpenSHMEM, those on signals and locks included";
    ShmemBytes "shmem_bytes" Bytes "bytes moved by puts and gets of OpenSHMEM";
    ShmemWaits "shmem_waits" Count "waits of OpenSHMEM, for an object or a lock, longer than a moment";
    ShmemWaitNs "shmem_wait_ns" Nanoseconds "time of these waits of OpenSHMEM";

    WindowRequests "window_requests" Count "requests of other hosts for this rank's windows that it has carried out";
    WindowRefused "window_refused" Count "messages about windows from other hosts that were refused";
    WindowPolls "window_polls" Count "flushes, unlocks and fetching atomics, by which a program may poll a window: to the nearest 16";
    VainTest "vain_test" Count "calls of MPI_Test whose request was not complete";
    VainTestany "vain_testany" Count "calls of MPI_Testany that found no request complete";
    VainTestall "vain_testall" Count "calls of MPI_Testall that found a request not complete";
    VainTestsome "vain_testsome" Count "calls of MPI_Testsome that found no request complete";
    VainRequestGetStatus "vain_request_get_status" Count "calls of MPI_Request_get_status and its like that found nothing complete";
    VainIprobe "vain_iprobe" Count "calls of MPI_Iprobe that found no message";
    VainImprobe "vain_improbe" Count "calls of MPI_Improbe that found no message";
    VainParrived "vain_parrived" Count "calls of MPI_Parrived whose partition had not arrived";
    VainWinTest "vain_win_test" Count "calls of MPI_Win_test that found the epoch not complete";

    WaitNs "wait_ns" Nanoseconds "time in waits inside MPI calls";
    Yields "yields" Count "times that a wait gave the core to another process";
    Sleeps "sleeps" Count "times that a wait went to sleep on its doorbell";
    BellsRung "bells_rung" Count "sleepers woken";

    Instances "instances" Count "schedules executed to their end";
    InstancesLive "instances_live" Count "schedules in execution now";
    Steps "steps" Count "schedule steps executed";
    ReducedBytes "reduced_bytes" Bytes "bytes of results computed by reduction steps";
    Offloaded "offloaded" Count "operations given to a proxy";
    OffloadRefused "offload_refused" Count "operations that a proxy could not take, and the caller executed";
    OffloadSpared "offload_spared" Count "operations that auto left to the caller, because it only waited for the ones before";
    Recovered "recovered" Count "operations taken back from a proxy that died or stalled";
    ScheduleHits "schedule_hits" Count "schedules found in the cache";
    SchedulesMade "schedules_made" Count "schedules made anew";

    ProxyBusyNs "proxy_busy_ns" Nanoseconds "time in which a proxy moved data";
    ProxyCpuNs "proxy_cpu_ns" Nanoseconds "processor time that a proxy used";
    EventsLost "events_lost" Count "events beyond OUTBOARD_TRACE_EVENTS_MAX";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_index_the_page() {
        let mut names: Vec<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Counter::ALL.len());
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
            let nanoseconds = counter.name().ends_with("_ns");
            assert_eq!(nanoseconds, counter.unit() == Unit::Nanoseconds, "{}", counter.name());
            assert_eq!(counter.name().contains("bytes"), counter.unit() == Unit::Bytes, "{}", counter.name());
        }
    }
}
