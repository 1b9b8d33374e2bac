// SPDX-License-Identifier: BSD-3-Clause
//! The counters of collective calls, and of the time that a rank waits for others in them. The rank that
//! waits least is the one for which the others wait.

use schedule::algorithm::Collective;
use telemetry::Counter;

/// Adds one to the number of calls of a collective.
#[inline]
pub fn count(collective: Collective) {
    telemetry::count(counter_of(collective), 1);
}

/// Counts a blocking call in which this rank waited `ns` nanoseconds for others, unless `ns` is 0.
#[inline]
pub fn count_wait(collective: Collective, ns: u64) {
    if ns > 0 {
        let (waits, time) = waits_of(collective);
        telemetry::count(waits, 1);
        telemetry::count(time, ns);
    }
}

fn waits_of(collective: Collective) -> (Counter, Counter) {
    use Collective::*;
    match collective {
        Barrier => (Counter::BarrierWaits, Counter::BarrierWaitNs),
        Bcast => (Counter::BcastWaits, Counter::BcastWaitNs),
        Gather | Gatherv => (Counter::GatherWaits, Counter::GatherWaitNs),
        Scatter | Scatterv => (Counter::ScatterWaits, Counter::ScatterWaitNs),
        Allgather | Allgatherv => (Counter::AllgatherWaits, Counter::AllgatherWaitNs),
        Alltoall | Alltoallv | Alltoallw => (Counter::AlltoallWaits, Counter::AlltoallWaitNs),
        Reduce => (Counter::ReduceWaits, Counter::ReduceWaitNs),
        Allreduce => (Counter::AllreduceWaits, Counter::AllreduceWaitNs),
        ReduceScatter | ReduceScatterBlock => (Counter::ReduceScatterWaits, Counter::ReduceScatterWaitNs),
        Scan | Exscan => (Counter::ScanWaits, Counter::ScanWaitNs),
    }
}

fn counter_of(collective: Collective) -> Counter {
    use Collective::*;
    match collective {
        Barrier => Counter::BarrierCalls,
        Bcast => Counter::BcastCalls,
        Gather | Gatherv => Counter::GatherCalls,
        Scatter | Scatterv => Counter::ScatterCalls,
        Allgather | Allgatherv => Counter::AllgatherCalls,
        Alltoall | Alltoallv | Alltoallw => Counter::AlltoallCalls,
        Reduce => Counter::ReduceCalls,
        Allreduce => Counter::AllreduceCalls,
        ReduceScatter | ReduceScatterBlock => Counter::ReduceScatterCalls,
        Scan | Exscan => Counter::ScanCalls,
    }
}
