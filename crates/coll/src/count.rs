//! The counters of calls.

use schedule::algorithm::Collective;
use telemetry::Counter;

/// Counts a call.
#[inline]
pub fn count(collective: Collective) {
    telemetry::count(counter_of(collective), 1);
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
