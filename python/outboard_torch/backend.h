/* SPDX-License-Identifier: BSD-3-Clause */
// The c10d backend over outboard_dl: a thin layer that handles tensors and leaves all transfers to the
// library.
#pragma once

#include "order.h"

#include <outboard_dl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>

namespace outboard {

using c10d::OpType;
using Milliseconds = std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

// One call of c10d: one operation of outboard_dl, or several that end together.
class Work : public c10d::Work {
public:
    // `order` is the order of the group, if the work is a collective.
    Work(int rank, OpType type, const char *title, Tensors outputs, Tensors kept, uint64_t number, std::shared_ptr<Order> order);
    ~Work() override;

    // Starts `count` operations; `start` makes the call of outboard_dl for each.
    using Start = std::function<int(int index, const outboard_dl_options *, outboard_dl_work **)>;
    void start(int count, Milliseconds timeout, bool is_waited, const Start &start);

    bool isCompleted() override;
    bool wait(Milliseconds timeout) override;
    void abort() override {}
    int sourceRank() const override;
    Tensors result() override { return outputs_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override { return number_; }

    // Runs once all operations have ended well, before the end is reported.
    std::function<void()> after;

private:
    static void ended(void *state, int code, const char *message);
    void one_ended(int code, const char *message);

    Tensors outputs_, kept_;
    uint64_t number_;
    std::shared_ptr<Order> order_;
    Place place_;
    std::atomic<int> left_{0};
    std::mutex failing_;
    std::string failure_;
    int failure_code_ = OUTBOARD_DL_OK;
    std::vector<outboard_dl_work *> handles_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class Backend : public c10d::Backend {
public:
    struct Options : c10d::Backend::Options {
        explicit Options(Milliseconds timeout) : c10d::Backend::Options("outboard", timeout) {}
        // Older torches have no such function to override.
        c10::intrusive_ptr<c10d::Backend::Options> clone() const { return c10::make_intrusive<Options>(*this); }
    };
    using Returned = c10::intrusive_ptr<c10d::Work>;

    // `ranks` are the members' ranks in MPI_COMM_WORLD.
    Backend(int rank, std::vector<int> ranks, const std::string &name, Milliseconds timeout);
    ~Backend() override;

    const std::string getBackendName() const override { return "outboard"; }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
    bool supportsSplitting() const override { return true; }
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &, const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<c10d::Backend::Options> &) override;
    void setTimeout(Milliseconds timeout) override { options_->timeout = timeout; }
    uint64_t getSequenceNumberForGroup() override { return number_; }
    void abort() override;
    void shutdown() override {}
    bool supportsCoalescing() const override { return true; }
    void startCoalescing() override;
    Returned endCoalescing() override;

    Returned broadcast(Tensors &, const c10d::BroadcastOptions &) override;
    Returned allreduce(Tensors &, const c10d::AllreduceOptions &) override;
    Returned allreduce_coalesced(Tensors &, const c10d::AllreduceCoalescedOptions &) override;
    Returned reduce(Tensors &, const c10d::ReduceOptions &) override;
    Returned allgather(std::vector<Tensors> &, Tensors &, const c10d::AllgatherOptions &) override;
    Returned _allgather_base(at::Tensor &, at::Tensor &, const c10d::AllgatherOptions &) override;
    Returned allgather_coalesced(std::vector<Tensors> &, Tensors &, const c10d::AllgatherOptions &) override;
    Returned allgather_into_tensor_coalesced(Tensors &, Tensors &, const c10d::AllgatherOptions &) override;
    Returned gather(std::vector<Tensors> &, Tensors &, const c10d::GatherOptions &) override;
    Returned scatter(Tensors &, std::vector<Tensors> &, const c10d::ScatterOptions &) override;
    Returned reduce_scatter(Tensors &, std::vector<Tensors> &, const c10d::ReduceScatterOptions &) override;
    Returned _reduce_scatter_base(at::Tensor &, at::Tensor &, const c10d::ReduceScatterOptions &) override;
    Returned reduce_scatter_tensor_coalesced(Tensors &, Tensors &, const c10d::ReduceScatterOptions &) override;
    Returned alltoall_base(at::Tensor &, at::Tensor &, std::vector<int64_t> &, std::vector<int64_t> &,
                           const c10d::AllToAllOptions &) override;
    Returned alltoall(Tensors &, Tensors &, const c10d::AllToAllOptions &) override;
    Returned send(Tensors &, int to, int tag) override;
    Returned recv(Tensors &, int from, int tag) override;
    Returned recvAnysource(Tensors &, int tag) override;
    Returned barrier(const c10d::BarrierOptions &) override;
    void monitoredBarrier(const c10d::BarrierOptions &, bool wait_for_all) override;

private:
    Returned reduce_in_place(OpType type, Tensors &, const c10d::AllreduceOptions &);
    Returned allreduce_sparse(Tensors &, const c10d::AllreduceOptions &);
    Returned reduce_scatter_uneven(Tensors &outputs, const Tensors &list, const c10d::ReduceScatterOptions &);
    c10::intrusive_ptr<Work> make(OpType type, const char *title, Tensors outputs, Tensors kept);
    Returned run(c10::intrusive_ptr<Work> work, int count, Milliseconds timeout, bool is_async, const Work::Start &start);

    outboard_dl_group *group_ = nullptr;
    std::vector<int> ranks_;
    c10::intrusive_ptr<Options> options_;
    std::shared_ptr<Order> order_ = std::make_shared<Order>();
    std::atomic<uint64_t> number_{0};
    // The works of a thread between startCoalescing and endCoalescing.
    std::mutex coalescing_;
    std::optional<std::vector<Returned>> coalesced_;
};

// Initialises MPI in a process that a launcher has started, if it is not initialised. Collective over the job.
void start_launched();

// The ranks of a group's members in MPI_COMM_WORLD. All members call it. If no launcher has started them, MPI starts here among
// the members, through the store.
std::vector<int> bootstrap(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, const std::string &group, Milliseconds timeout);

// Copies `text` of rank 0 to all ranks of MPI_COMM_WORLD.
std::string share(std::string text);

// From now on the end of operations is not reported. Called before Python ends.
void detach();

// Throws if the code is an error of outboard_dl.
void check(int code);

} // namespace outboard
