// The collectives of c10d, made of those of outboard_dl.
// SPDX-License-Identifier: BSD-3-Clause
#include "backend.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <Python.h>
#include <c10/util/Exception.h>

#include <numeric>
#include <thread>

namespace outboard {
namespace {

using namespace c10d;

// A tag above those of programs.
constexpr int monitor_tag = 1 << 28;

[[noreturn]] void raise(const std::string &message) { C10_THROW_ERROR(DistBackendError, "outboard: " + message); }

std::exception_ptr made(const std::string &message) {
    try {
        raise(message);
    } catch (...) {
        return std::current_exception();
    }
}

// The type of a reduction.
int type_of(at::ScalarType type) {
    switch (type) {
    case at::kHalf: return OUTBOARD_DL_F16;
    case at::kBFloat16: return OUTBOARD_DL_BF16;
    case at::kFloat: return OUTBOARD_DL_F32;
    case at::kDouble: return OUTBOARD_DL_F64;
    case at::kChar: return OUTBOARD_DL_I8;
    case at::kByte: return OUTBOARD_DL_U8;
    case at::kShort: return OUTBOARD_DL_I16;
    case at::kUInt16: return OUTBOARD_DL_U16;
    case at::kInt: return OUTBOARD_DL_I32;
    case at::kUInt32: return OUTBOARD_DL_U32;
    case at::kLong: return OUTBOARD_DL_I64;
    case at::kUInt64: return OUTBOARD_DL_U64;
    case at::kBool: return OUTBOARD_DL_BOOL;
    default: raise(std::string("reductions of ") + c10::toString(type) + " are not supported");
    }
}

int op_of(const ReduceOp &op) {
    switch (op.op_) {
    case ReduceOp::SUM: return OUTBOARD_DL_SUM;
    case ReduceOp::AVG: return OUTBOARD_DL_AVERAGE;
    case ReduceOp::PRODUCT: return OUTBOARD_DL_PRODUCT;
    case ReduceOp::MIN: return OUTBOARD_DL_MIN;
    case ReduceOp::MAX: return OUTBOARD_DL_MAX;
    case ReduceOp::BAND: return OUTBOARD_DL_BAND;
    case ReduceOp::BOR: return OUTBOARD_DL_BOR;
    case ReduceOp::BXOR: return OUTBOARD_DL_BXOR;
    default: raise("ReduceOp.PREMUL_SUM is not supported");
    }
}

void check_tensor(const at::Tensor &tensor) {
    if (tensor.layout() != at::kStrided) raise("sparse tensors are supported in all_reduce only");
    if (!tensor.device().is_cpu()) raise("a tensor is on " + tensor.device().str() + "; this backend takes tensors in host memory");
}

void check_output(const at::Tensor &tensor) {
    check_tensor(tensor);
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) raise("an output has elements that share memory; clone it");
}

const at::Tensor &only(const Tensors &tensors) {
    if (tensors.size() != 1) raise("expected one tensor, got " + std::to_string(tensors.size()));
    return tensors[0];
}

// Whether the elements are one block of memory, in their order. A tensor that is not one gets a copy as its
// block.
bool is_block(const at::Tensor &tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

at::Tensor block_of(const at::Tensor &tensor) {
    check_tensor(tensor);
    if (is_block(tensor)) return tensor;
    at::NoGradGuard no_grad;
    return tensor.resolve_conj().resolve_neg().contiguous();
}

at::Tensor output_block_of(const at::Tensor &tensor) {
    check_output(tensor);
    return block_of(tensor);
}

// A block for a tensor that is only written.
at::Tensor room_for(const at::Tensor &tensor) {
    check_output(tensor);
    return is_block(tensor) ? tensor : at::empty(tensor.sizes(), tensor.options());
}

Tensors both(Tensors some, const Tensors &more) {
    some.insert(some.end(), more.begin(), more.end());
    return some;
}

Tensors each(const Tensors &tensors, at::Tensor (*function)(const at::Tensor &)) {
    Tensors made;
    for (const auto &tensor : tensors) made.push_back(function(tensor));
    return made;
}

// A function that copies blocks into their tensors, without autograd, in whichever thread the operation ends. It is empty if
// there is nothing to copy.
std::function<void()> back(Tensors blocks, Tensors tensors) {
    bool is_needed = false;
    for (size_t i = 0; i < blocks.size(); i++) is_needed = is_needed || !blocks[i].is_same(tensors[i]);
    if (!is_needed) return nullptr;
    return [blocks = std::move(blocks), tensors = std::move(tensors)] {
        at::NoGradGuard no_grad;
        for (size_t i = 0; i < blocks.size(); i++)
            if (!blocks[i].is_same(tensors[i])) tensors[i].copy_(blocks[i]);
    };
}

// The numbers of a block that are reduced; for complex elements these are their parts.
at::Tensor numbers(const at::Tensor &block, const ReduceOp &op) {
    if (!block.is_complex()) return block;
    if (op.op_ != ReduceOp::SUM && op.op_ != ReduceOp::AVG) raise("of complex numbers there are sums and averages only");
    return at::view_as_real(block);
}

// Checks that a list has a tensor for each member, all of them like `one`.
void check_list(const Tensors &list, size_t size, const at::Tensor &one, bool is_output) {
    if (list.size() != size) raise("a list has " + std::to_string(list.size()) + " tensors for " + std::to_string(size) + " ranks");
    for (const auto &tensor : list) {
        is_output ? check_output(tensor) : check_tensor(tensor);
        if (tensor.scalar_type() != one.scalar_type()) raise("the tensors of a list have different types");
        if (tensor.numel() != one.numel()) raise("the tensors of a list have different sizes");
    }
}

void check_whole(const at::Tensor &whole, const at::Tensor &part, int size) {
    if (whole.scalar_type() != part.scalar_type()) raise("input and output have different types");
    if (whole.numel() != part.numel() * size)
        raise("one tensor has " + std::to_string(part.numel()) + " elements, and the other " + std::to_string(whole.numel()) +
              ", not that times " + std::to_string(size));
}

int64_t bytes(const at::Tensor &tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// Copies between a list and one buffer, without autograd, in whichever thread the operation ends.
void scatter_copy(const at::Tensor &flat, const Tensors &list) {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < list.size(); i++) {
        auto to = list[i];
        to.copy_(flat[static_cast<int64_t>(i)].view(to.sizes()));
    }
}

at::Tensor flat_of(const at::Tensor &one, size_t count) {
    return at::empty({static_cast<int64_t>(count), one.numel()}, one.options());
}

at::Tensor gather_copy(const Tensors &list) {
    at::NoGradGuard no_grad;
    auto flat = flat_of(list[0], list.size());
    for (size_t i = 0; i < list.size(); i++) flat[static_cast<int64_t>(i)].copy_(list[i].reshape({-1}));
    return flat;
}

} // namespace

void check(int code) {
    if (code != OUTBOARD_DL_OK) raise(outboard_dl_message());
}

Work::Work(int rank, OpType type, const char *title, Tensors outputs, Tensors kept, uint64_t number, std::shared_ptr<Order> order)
    : c10d::Work(rank, type, title, outputs), outputs_(std::move(outputs)), kept_(std::move(kept)), number_(number), order_(std::move(order)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

Work::~Work() {
    for (auto *handle : handles_) outboard_dl_work_free(handle);
}

void Work::start(int count, Milliseconds timeout, bool is_waited, const Start &start) {
    left_ = count;
    if (count == 0) {
        left_ = 1;
        one_ended(OUTBOARD_DL_OK, "");
    }
    handles_.reserve(static_cast<size_t>(count));
    for (int index = 0; index < count; index++) {
        // The operation keeps this object, and its tensors, until it has ended.
        auto *state = new c10::intrusive_ptr<Work>(c10::intrusive_ptr<Work>::reclaim_copy(this));
        const outboard_dl_options options{timeout.count() > 0 ? static_cast<double>(timeout.count()) / 1000 : -1, &Work::ended, state,
                                          is_waited ? OUTBOARD_DL_WAITED : 0};
        outboard_dl_work *handle = nullptr;
        const int code = start(index, &options, &handle);
        if (code != OUTBOARD_DL_OK) {
            delete state;
            check(code);
        }
        handles_.push_back(handle);
    }
}

namespace {

// Whether Python has gone, and how many threads are reporting the end of an operation.
std::atomic<bool> is_detached{false};
std::atomic<int> telling{0};

} // namespace

void detach() {
    is_detached = true;
    // A thread may be waiting for something, so it gets a moment.
    for (int i = 0; i < 1000 && telling > 0; i++) std::this_thread::sleep_for(Milliseconds(1));
}

void Work::ended(void *state, int code, const char *message) {
    struct Telling {
        Telling() { telling++; }
        ~Telling() { telling--; }
    } const now;
    // The work's objects are not freed, because they may be Python's.
    if (is_detached) return;
    auto *self = static_cast<c10::intrusive_ptr<Work> *>(state);
    // After these codes a peer may still write, so the tensors are never freed.
    if (code == OUTBOARD_DL_TIMEOUT || code == OUTBOARD_DL_ABORTED) new Tensors((*self)->kept_), new Tensors((*self)->outputs_);
    (*self)->one_ended(code, message);
    delete self;
}

void Work::one_ended(int code, const char *message) {
    if (code != OUTBOARD_DL_OK) {
        std::lock_guard<std::mutex> guard(failing_);
        if (failure_code_ == OUTBOARD_DL_OK) failure_code_ = code, failure_ = message;
    }
    if (--left_ > 0) return;
    std::exception_ptr exception;
    if (failure_code_ != OUTBOARD_DL_OK) exception = made(failure_);
    try {
        if (!exception && after) after();
    } catch (...) {
        exception = std::current_exception();
    }
    after = nullptr;
    // This comes before the future, because callbacks may ask for it.
    finish(exception);
    {
        const Place::Telling now(place_);
        if (exception) {
            future_->setError(exception);
        } else {
            future_->markCompleted(c10::IValue(outputs_));
        }
    }
    if (order_) order_->tell(place_);
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
    // Callbacks of torch's C++ start no collective: DDP asks for the futures of its buckets without Python.
    if (order_ && PyGILState_Check()) order_->ask(place_);
    return future_;
}

bool Work::isCompleted() {
    if (c10d::Work::isCompleted()) return true;
    for (auto *handle : handles_) {
        int done = 0;
        outboard_dl_test(handle, &done);
    }
    return c10d::Work::isCompleted();
}

bool Work::wait(Milliseconds timeout) {
    // Callbacks at the end may ask for it, too.
    if (c10d::Work::isCompleted()) return c10d::Work::wait(timeout);
    const double seconds = timeout.count() > 0 ? static_cast<double>(timeout.count()) / 1000 : -1;
    for (auto *handle : handles_) {
        const int code = outboard_dl_wait(handle, seconds);
        if (code != OUTBOARD_DL_OK && !c10d::Work::isCompleted()) raise(outboard_dl_message());
    }
    // All operations have ended, and so has this work.
    return c10d::Work::wait(timeout);
}

int Work::sourceRank() const { return handles_.empty() ? -1 : outboard_dl_source(handles_[0]); }

Backend::Backend(int rank, std::vector<int> ranks, const std::string &name, Milliseconds timeout)
    : c10d::Backend(rank, static_cast<int>(ranks.size())), ranks_(std::move(ranks)), options_(c10::make_intrusive<Options>(timeout)) {
    options_->group_name = name;
    check(outboard_dl_group_create(ranks_.data(), size_, name.c_str(), 0, &group_));
    init();
}

Backend::~Backend() { outboard_dl_group_free(group_); }

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &, const std::vector<int> &ranks,
                                                 const c10::intrusive_ptr<c10d::Backend::Options> &options) {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    if (own == ranks.end()) return nullptr;
    std::vector<int> members;
    for (int who : ranks) members.push_back(ranks_.at(static_cast<size_t>(who)));
    return c10::make_intrusive<Backend>(static_cast<int>(own - ranks.begin()), std::move(members), options->group_name,
                                        options->timeout);
}

void Backend::abort() { outboard_dl_group_abort(group_, "abort was called"); }

void Backend::startCoalescing() {
    std::lock_guard<std::mutex> guard(coalescing_);
    coalesced_.emplace();
}

c10::intrusive_ptr<c10d::Work> Backend::endCoalescing() {
    // Waits for its parts one after the other; each part makes progress by itself.
    struct All : c10d::Work {
        std::vector<Returned> works;
        bool isCompleted() override {
            return std::all_of(works.begin(), works.end(), [](auto &work) { return work->isCompleted(); });
        }
        bool isSuccess() const override {
            return std::all_of(works.begin(), works.end(), [](auto &work) { return work->isSuccess(); });
        }
        bool wait(Milliseconds timeout) override {
            for (auto &work : works) work->wait(timeout);
            return true;
        }
        c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
            c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
            for (auto &work : works) futures.push_back(work->getFuture());
            return c10::collectAll(futures);
        }
    };
    auto all = c10::make_intrusive<All>();
    std::lock_guard<std::mutex> guard(coalescing_);
    if (coalesced_) all->works = std::move(*coalesced_);
    coalesced_.reset();
    return all;
}

c10::intrusive_ptr<Work> Backend::make(OpType type, const char *title, Tensors outputs, Tensors kept) {
    const bool is_message = type == OpType::SEND || type == OpType::RECV || type == OpType::RECVANYSOURCE;
    if (!is_message && !order_->settle(options_->timeout))
        raise(std::string(title) + " waited for the timeout of " + std::to_string(options_->timeout.count()) +
              " ms until callbacks of the futures of earlier operations of group " + options_->group_name +
              " had run, which may start operations, too; a callback must not wait for what follows this call");
    return c10::make_intrusive<Work>(rank_, type, title, std::move(outputs), std::move(kept), ++number_, is_message ? nullptr : order_);
}

Backend::Returned Backend::run(c10::intrusive_ptr<Work> work, int count, Milliseconds timeout, bool is_async, const Work::Start &start) {
    work->start(count, timeout == kUnsetTimeout ? options_->timeout : timeout, !is_async, start);
    std::lock_guard<std::mutex> guard(coalescing_);
    if (coalesced_) coalesced_->push_back(work);
    return work;
}

Backend::Returned Backend::broadcast(Tensors &tensors, const BroadcastOptions &options) {
    const auto block = output_block_of(only(tensors));
    auto work = make(OpType::BROADCAST, "outboard:broadcast", tensors, {block});
    work->after = back({block}, tensors);
    return run(work, 1, options.timeout, options.asyncOp, [&](int, auto *with, auto **handle) {
        return outboard_dl_broadcast(group_, block.data_ptr(), bytes(block), OUTBOARD_DL_U8, static_cast<int>(options.rootRank), with, handle);
    });
}

Backend::Returned Backend::allreduce(Tensors &tensors, const AllreduceOptions &options) {
    if (only(tensors).is_sparse()) return allreduce_sparse(tensors, options);
    return reduce_in_place(OpType::ALLREDUCE, tensors, options);
}

Backend::Returned Backend::allreduce_coalesced(Tensors &tensors, const AllreduceCoalescedOptions &options) {
    return reduce_in_place(OpType::ALLREDUCE_COALESCED, tensors, options);
}

Backend::Returned Backend::reduce_in_place(OpType type, Tensors &tensors, const AllreduceOptions &options) {
    const auto blocks = each(tensors, output_block_of);
    const int op = op_of(options.reduceOp);
    Tensors parts;
    for (const auto &block : blocks) parts.push_back(numbers(block, options.reduceOp)), type_of(parts.back().scalar_type());
    auto work = make(type, "outboard:all_reduce", tensors, blocks);
    work->after = back(blocks, tensors);
    return run(work, static_cast<int>(parts.size()), options.timeout, options.asyncOp, [&](int index, auto *with, auto **handle) {
        const auto &part = parts[static_cast<size_t>(index)];
        return outboard_dl_allreduce(group_, nullptr, part.data_ptr(), part.numel(), type_of(part.scalar_type()), op, with, handle);
    });
}

// The members gather indices and values, and each adds them up. First they exchange how many each has, for which the call
// waits.
Backend::Returned Backend::allreduce_sparse(Tensors &tensors, const AllreduceOptions &options) {
    if (options.reduceOp.op_ != ReduceOp::SUM && options.reduceOp.op_ != ReduceOp::AVG)
        raise("of sparse tensors there are sums and averages only");
    at::NoGradGuard no_grad;
    auto tensor = tensors[0];
    if (!tensor.device().is_cpu()) raise("a tensor is on " + tensor.device().str() + "; this backend takes tensors in host memory");
    const auto own = tensor.coalesce();
    const auto timeout = options.timeout == kUnsetTimeout ? options_->timeout : options.timeout;
    constexpr int64_t most = 16;
    if (own.dim() > most) raise("a sparse tensor has more than " + std::to_string(most) + " dimensions");
    auto shapes = at::zeros({size_, most + 4}, at::kLong), mine = shapes[rank_];
    mine[0] = own._nnz(), mine[1] = own.sparse_dim(), mine[2] = own.dim(), mine[3] = static_cast<int64_t>(own.scalar_type());
    for (int64_t i = 0; i < own.dim(); i++) mine[4 + i] = own.size(i);
    auto asked = make(OpType::ALLREDUCE, "outboard:all_reduce_sparse", {shapes}, {});
    asked->start(1, timeout, true, [&](int, auto *with, auto **handle) {
        return outboard_dl_allgather(group_, nullptr, shapes.data_ptr(), most + 4, OUTBOARD_DL_I64, with, handle);
    });
    asked->wait(kNoTimeout);
    for (int who = 0; who < size_; who++)
        if (!at::equal(shapes[who].slice(0, 1), mine.slice(0, 1)))
            raise("the sparse tensor of rank " + std::to_string(who) + " has another shape or type than that of rank " + std::to_string(rank_));
    const auto counts = shapes.select(1, 0).contiguous();
    const auto room = counts.max().item<int64_t>();
    // There is a row for each index; unused rows are at the end.
    auto sizes = own.values().sizes().vec();
    sizes[0] = room;
    auto indices = at::zeros({room, own.sparse_dim()}, at::kLong), values = at::zeros(sizes, own.values().options());
    indices.slice(0, 0, own._nnz()).copy_(own.indices().t()), values.slice(0, 0, own._nnz()).copy_(own.values());
    sizes.insert(sizes.begin(), size_);
    auto all_indices = at::empty({size_, room, own.sparse_dim()}, at::kLong), all_values = at::empty(sizes, values.options());
    auto work = make(OpType::ALLREDUCE, "outboard:all_reduce_sparse", tensors, {indices, values, all_indices, all_values});
    work->after = [=, size = size_, is_average = options.reduceOp.op_ == ReduceOp::AVG]() mutable {
        at::NoGradGuard inner;
        Tensors where, what;
        for (int who = 0; who < size; who++) {
            const auto count = counts[who].item<int64_t>();
            where.push_back(all_indices[who].slice(0, 0, count)), what.push_back(all_values[who].slice(0, 0, count));
        }
        const auto sum = at::sparse_coo_tensor(at::cat(where).t(), at::cat(what), tensor.sizes(), tensor.options()).coalesce();
        tensor.copy_(is_average ? sum.div(size) : sum);
    };
    const Tensors from{indices, values}, to{all_indices, all_values};
    return run(work, 2, options.timeout, options.asyncOp, [&](int index, auto *with, auto **handle) {
        const auto at = static_cast<size_t>(index);
        return outboard_dl_allgather(group_, from[at].data_ptr(), to[at].data_ptr(), bytes(from[at]), OUTBOARD_DL_U8, with, handle);
    });
}

Backend::Returned Backend::reduce(Tensors &tensors, const ReduceOptions &options) {
    const int op = op_of(options.reduceOp), root = static_cast<int>(options.rootRank);
    const auto block = output_block_of(only(tensors)), part = numbers(block, options.reduceOp);
    const int type = type_of(part.scalar_type());
    auto work = make(OpType::REDUCE, "outboard:reduce", tensors, {block});
    if (rank_ == root) work->after = back({block}, tensors);
    return run(work, 1, options.timeout, options.asyncOp, [&](int, auto *with, auto **handle) {
        auto *send = rank_ == root ? nullptr : part.data_ptr();
        return outboard_dl_reduce(group_, send, part.data_ptr(), part.numel(), type, op, root, with, handle);
    });
}

Backend::Returned Backend::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const AllgatherOptions &options) {
    const auto own = block_of(only(inputs));
    if (outputs.size() != 1) raise("allgather needs one list of outputs");
    check_list(outputs[0], static_cast<size_t>(size_), own, true);
    auto flat = flat_of(own, static_cast<size_t>(size_));
    auto work = make(OpType::ALLGATHER, "outboard:all_gather", outputs[0], {flat, own});
    work->after = [flat, list = outputs[0]] { scatter_copy(flat, list); };
    return run(work, 1, options.timeout, options.asyncOp, [&](int, auto *with, auto **handle) {
        return outboard_dl_allgather(group_, own.data_ptr(), flat.data_ptr(), bytes(own), OUTBOARD_DL_U8, with, handle);
    });
}

Backend::Returned Backend::_allgather_base(at::Tensor &output, at::Tensor &input, const AllgatherOptions &options) {
    Tensors outputs{output}, inputs{input};
    return allgather_into_tensor_coalesced(outputs, inputs, options);
}

Backend::Returned Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const AllgatherOptions &options) {
    if (outputs.size() != inputs.size()) raise("there are not as many outputs as inputs");
    for (size_t i = 0; i < inputs.size(); i++) check_whole(outputs[i], inputs[i], size_);
    const auto from = each(inputs, block_of), to = each(outputs, room_for);
    auto work = make(OpType::_ALLGATHER_BASE, "outboard:_all_gather_base", outputs, both(from, to));
    work->after = back(to, outputs);
    return run(work, static_cast<int>(from.size()), options.timeout, options.asyncOp, [&](int index, auto *with, auto **handle) {
        const auto &input = from[static_cast<size_t>(index)], &output = to[static_cast<size_t>(index)];
        const auto part = bytes(input);
        // If an input lies in its own part of the output, the gather is in place.
        auto *place = static_cast<char *>(output.data_ptr()) + part * rank_;
        const void *send = part == 0 || input.data_ptr() == place ? nullptr : input.data_ptr();
        return outboard_dl_allgather(group_, send, output.data_ptr(), part, OUTBOARD_DL_U8, with, handle);
    });
}

Backend::Returned Backend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const AllgatherOptions &options) {
    if (outputs.size() != static_cast<size_t>(size_)) raise("allgather_coalesced needs a list of outputs for each rank");
    Tensors flats, own, all;
    for (size_t i = 0; i < inputs.size(); i++) {
        own.push_back(block_of(inputs[i]));
        for (auto &list : outputs)
            if (list.size() != inputs.size() || list[i].sizes() != inputs[i].sizes()) raise("an output is unlike its input");
        flats.push_back(flat_of(inputs[i], outputs.size()));
    }
    for (auto &list : outputs) all.insert(all.end(), list.begin(), list.end());
    Tensors kept(flats);
    kept.insert(kept.end(), own.begin(), own.end());
    auto work = make(OpType::ALLGATHER_COALESCED, "outboard:all_gather", all, kept);
    work->after = [flats, outputs] {
        for (size_t i = 0; i < flats.size(); i++) {
            Tensors column;
            for (const auto &list : outputs) column.push_back(list[i]);
            scatter_copy(flats[i], column);
        }
    };
    return run(work, static_cast<int>(inputs.size()), options.timeout, options.asyncOp, [&](int index, auto *with, auto **handle) {
        const auto at = static_cast<size_t>(index);
        return outboard_dl_allgather(group_, own[at].data_ptr(), flats[at].data_ptr(), bytes(own[at]), OUTBOARD_DL_U8, with, handle);
    });
}

Backend::Returned Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs, const GatherOptions &options) {
    const int root = static_cast<int>(options.rootRank);
    at::Tensor flat, own = block_of(only(inputs));
    Tensors list;
    if (rank_ == root) {
        if (outputs.size() != 1) raise("gather needs one list of outputs at its root");
        list = outputs[0];
        check_list(list, static_cast<size_t>(size_), own, true);
        flat = flat_of(own, list.size());
    } else if (!outputs.empty()) {
        raise("gather takes outputs at its root only");
    }
    Tensors kept{own};
    if (flat.defined()) kept.push_back(flat);
    auto work = make(OpType::GATHER, "outboard:gather", list, kept);
    if (rank_ == root) work->after = [flat, list] { scatter_copy(flat, list); };
    return run(work, 1, options.timeout, options.asyncOp, [&](int, auto *with, auto **handle) {
        return outboard_dl_gather(group_, own.data_ptr(), flat.defined() ? flat.data_ptr() : nullptr, bytes(own), OUTBOARD_DL_U8, root,
                                  with, handle);
    });
}

Backend::Returned Backend::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const ScatterOptions &options) {
    const auto output = room_for(only(outputs));
    const int root = static_cast<int>(options.rootRank);
    at::Tensor flat;
    if (rank_ == root) {
        if (inputs.size() != 1) raise("scatter needs one list of inputs at its root");
        check_list(inputs[0], static_cast<size_t>(size_), output, false);
        flat = gather_copy(inputs[0]);
    } else if (!inputs.empty()) {
        raise("scatter takes inputs at its root only");
    }
    Tensors kept{output};
    if (flat.defined()) kept.push_back(flat);
    auto work = make(OpType::SCATTER, "outboard:scatter", outputs, kept);
    work->after = back({output}, outputs);
    return run(work, 1, options.timeout, options.asyncOp, [&](int, auto *with, auto **handle) {
        return outboard_dl_scatter(group_, flat.defined() ? flat.data_ptr() : nullptr, output.data_ptr(), bytes(output), OUTBOARD_DL_U8, root,
                                   with, handle);
    });
}

Backend::Returned Backend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const ReduceScatterOptions &options) {
    const auto &output = only(outputs);
    if (inputs.size() != 1) raise("reduce_scatter needs one list of inputs");
    const auto &list = inputs[0];
    if (list.size() != static_cast<size_t>(size_))
        raise("a list has " + std::to_string(list.size()) + " tensors for " + std::to_string(size_) + " ranks");
    for (const auto &tensor : list)
        if (tensor.numel() != list[0].numel()) return reduce_scatter_uneven(outputs, list, options);
    check_list(list, list.size(), output, false);
    Tensors whole{gather_copy(list)};
    return reduce_scatter_tensor_coalesced(outputs, whole, options);
}

// A reduction for each member as its root. All members have lists of the same sizes, so all come here.
Backend::Returned Backend::reduce_scatter_uneven(Tensors &outputs, const Tensors &list, const ReduceScatterOptions &options) {
    const auto count = list[static_cast<size_t>(rank_)].numel();
    if (count != outputs[0].numel())
        raise("the output has " + std::to_string(outputs[0].numel()) + " elements, and the input of this rank, " + std::to_string(rank_) + ", has " +
              std::to_string(count));
    for (const auto &tensor : list)
        if (tensor.scalar_type() != outputs[0].scalar_type()) raise("input and output have different types");
    const int op = op_of(options.reduceOp);
    const auto output = room_for(outputs[0]), result = numbers(output, options.reduceOp);
    const int type = type_of(result.scalar_type());
    auto blocks = each(list, block_of);
    Tensors parts;
    for (auto &block : blocks) {
        // MPI forbids that inputs and outputs overlap.
        if (block.is_alias_of(output)) block = block.clone();
        parts.push_back(numbers(block, options.reduceOp));
    }
    auto work = make(OpType::REDUCE_SCATTER, "outboard:reduce_scatter", outputs, both(blocks, {output}));
    work->after = back({output}, outputs);
    return run(work, size_, options.timeout, options.asyncOp, [&](int root, auto *with, auto **handle) {
        const auto &part = parts[static_cast<size_t>(root)];
        const void *send = part.numel() == 0 && root == rank_ ? nullptr : part.data_ptr();
        return outboard_dl_reduce(group_, send, result.data_ptr(), part.numel(), type, op, root, with, handle);
    });
}

Backend::Returned Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const ReduceScatterOptions &options) {
    Tensors outputs{output}, inputs{input};
    return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Backend::Returned Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const ReduceScatterOptions &options) {
    if (outputs.size() != inputs.size()) raise("there are not as many outputs as inputs");
    for (size_t i = 0; i < inputs.size(); i++) check_whole(inputs[i], outputs[i], size_);
    const int op = op_of(options.reduceOp);
    auto own = each(inputs, block_of);
    const auto to = each(outputs, room_for);
    Tensors parts, sums;
    for (size_t i = 0; i < own.size(); i++) {
        // An output may lie in its input (FSDP). MPI forbids this, so such an input is copied.
        if (own[i].is_alias_of(to[i])) own[i] = own[i].clone();
        parts.push_back(numbers(own[i], options.reduceOp)), sums.push_back(numbers(to[i], options.reduceOp)), type_of(sums.back().scalar_type());
    }
    auto work = make(OpType::_REDUCE_SCATTER_BASE, "outboard:_reduce_scatter_base", outputs, both(own, to));
    work->after = back(to, outputs);
    return run(work, static_cast<int>(own.size()), options.timeout, options.asyncOp, [&](int index, auto *with, auto **handle) {
        const auto &input = parts[static_cast<size_t>(index)], &output = sums[static_cast<size_t>(index)];
        const void *send = input.numel() == 0 ? nullptr : input.data_ptr();
        return outboard_dl_reduce_scatter(group_, send, output.data_ptr(), output.numel(), type_of(output.scalar_type()), op, with, handle);
    });
}

Backend::Returned Backend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                         std::vector<int64_t> &input_splits, const AllToAllOptions &options) {
    if (output.scalar_type() != input.scalar_type()) raise("input and output have different types");
    const auto from = block_of(input), to = room_for(output);
    // The counts and displacements of each rank's block, in bytes.
    const auto lay = [this](const at::Tensor &tensor, const std::vector<int64_t> &splits, std::vector<int64_t> &places) {
        const auto size = static_cast<size_t>(size_);
        const int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0), row = rows == 0 ? 0 : bytes(tensor) / rows;
        std::vector<int64_t> counts(size, 0);
        places.assign(size, 0);
        if (splits.empty() && rows % size_ != 0) raise("a tensor's " + std::to_string(rows) + " rows cannot be divided among the ranks");
        if (!splits.empty() && (splits.size() != size || std::accumulate(splits.begin(), splits.end(), int64_t{0}) != rows))
            raise("the sizes of the parts are not one for each rank, with a sum of " + std::to_string(rows) + " rows");
        for (size_t i = 0; i < size; i++) {
            counts[i] = row * (splits.empty() ? rows / size_ : splits[i]);
            if (i > 0) places[i] = places[i - 1] + counts[i - 1];
        }
        return counts;
    };
    std::vector<int64_t> send_places, receive_places;
    const auto send_counts = lay(from, input_splits, send_places), receive_counts = lay(to, output_splits, receive_places);
    auto work = make(OpType::ALLTOALL_BASE, "outboard:all_to_all", {output}, {from, to});
    work->after = back({to}, {output});
    return run(work, 1, options.timeout, options.asyncOp, [&](int, auto *with, auto **handle) {
        if (input_splits.empty() && output_splits.empty() && from.numel() > 0)
            return outboard_dl_alltoall(group_, from.data_ptr(), to.data_ptr(), send_counts[0], OUTBOARD_DL_U8, with, handle);
        return outboard_dl_alltoallv(group_, from.data_ptr(), send_counts.data(), send_places.data(), to.data_ptr(), receive_counts.data(),
                                     receive_places.data(), OUTBOARD_DL_U8, with, handle);
    });
}

Backend::Returned Backend::alltoall(Tensors &outputs, Tensors &inputs, const AllToAllOptions &options) {
    const auto size = static_cast<size_t>(size_);
    if (outputs.size() != size || inputs.size() != size) raise("alltoall needs as many tensors as ranks");
    std::vector<int64_t> sizes[2];
    for (size_t i = 0; i < size; i++) {
        check_output(outputs[i]), check_tensor(inputs[i]);
        if (outputs[i].scalar_type() != inputs[0].scalar_type() || inputs[i].scalar_type() != inputs[0].scalar_type())
            raise("the tensors of a list have different types");
        sizes[0].push_back(outputs[i].numel()), sizes[1].push_back(inputs[i].numel());
    }
    at::NoGradGuard no_grad;
    Tensors parts;
    for (const auto &tensor : inputs) parts.push_back(tensor.reshape({-1}));
    auto input = at::cat(parts);
    auto output = at::empty({std::accumulate(sizes[0].begin(), sizes[0].end(), int64_t{0})}, input.options());
    const auto one = static_cast<int64_t>(input.element_size());
    std::vector<int64_t> counts[2], places[2];
    for (int side = 0; side < 2; side++) {
        int64_t at = 0;
        for (auto count : sizes[side]) counts[side].push_back(count * one), places[side].push_back(at), at += count * one;
    }
    auto work = make(OpType::ALLTOALL, "outboard:all_to_all", outputs, {input, output});
    work->after = [output, outputs, split = sizes[0]] {
        at::NoGradGuard inner;
        auto pieces = output.split_with_sizes(split);
        for (size_t i = 0; i < outputs.size(); i++) {
            auto to = outputs[i];
            to.copy_(pieces[i].view(to.sizes()));
        }
    };
    return run(work, 1, options.timeout, options.asyncOp, [&](int, auto *with, auto **handle) {
        return outboard_dl_alltoallv(group_, input.data_ptr(), counts[1].data(), places[1].data(), output.data_ptr(), counts[0].data(),
                                     places[0].data(), OUTBOARD_DL_U8, with, handle);
    });
}

Backend::Returned Backend::send(Tensors &tensors, int to, int tag) {
    const auto block = block_of(only(tensors));
    return run(make(OpType::SEND, "outboard:send", tensors, {block}), 1, kUnsetTimeout, true, [&](int, auto *with, auto **handle) {
        return outboard_dl_send(group_, block.data_ptr(), bytes(block), OUTBOARD_DL_U8, to, tag, with, handle);
    });
}

Backend::Returned Backend::recv(Tensors &tensors, int from, int tag) {
    const auto room = room_for(only(tensors));
    auto work = make(from < 0 ? OpType::RECVANYSOURCE : OpType::RECV, "outboard:recv", tensors, {room});
    work->after = back({room}, tensors);
    return run(work, 1, kUnsetTimeout, true, [&](int, auto *with, auto **handle) {
        return outboard_dl_receive(group_, room.data_ptr(), bytes(room), OUTBOARD_DL_U8, from, tag, with, handle);
    });
}

Backend::Returned Backend::recvAnysource(Tensors &tensors, int tag) { return recv(tensors, -1, tag); }

Backend::Returned Backend::barrier(const BarrierOptions &options) {
    return run(make(OpType::BARRIER, "outboard:barrier", {}, {}), 1, options.timeout, options.asyncOp,
               [&](int, auto *with, auto **work) { return outboard_dl_barrier(group_, with, work); });
}

void Backend::monitoredBarrier(const BarrierOptions &options, bool wait_for_all) {
    const auto timeout = options.timeout == kUnsetTimeout ? options_->timeout : options.timeout;
    const auto began = std::chrono::steady_clock::now();
    const auto message = [&](bool is_send, int peer, int tag) {
        auto byte = at::zeros({1}, at::kByte);
        auto work = make(is_send ? OpType::SEND : OpType::RECV, "outboard:monitored_barrier", {byte}, {});
        const auto gone = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - began);
        work->start(1, std::max(timeout - gone, Milliseconds(1)), false, [&](int, auto *with, auto **handle) {
            return is_send ? outboard_dl_send(group_, byte.data_ptr(), 1, OUTBOARD_DL_U8, peer, tag, with, handle)
                           : outboard_dl_receive(group_, byte.data_ptr(), 1, OUTBOARD_DL_U8, peer, tag, with, handle);
        });
        work->wait(kNoTimeout);
    };
    if (rank_ != 0) {
        try {
            message(true, 0, monitor_tag);
            message(false, 0, monitor_tag + 1);
        } catch (const c10::Error &) {
            raise("Rank " + std::to_string(rank_) + " successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                  "from rank 0. Please check rank 0 logs for faulty rank.");
        }
        return;
    }
    std::string missing;
    for (int who = 1; who < size_; who++) {
        if (!wait_for_all && std::chrono::steady_clock::now() - began >= timeout)
            raise("Rank 0 timed out in monitoredBarrier after " + std::to_string(timeout.count()) + " ms, before it looked for rank " +
                  std::to_string(who));
        try {
            message(false, who, monitor_tag);
        } catch (const c10::Error &) {
            missing += (missing.empty() ? "" : ", ") + std::to_string(who);
            if (!wait_for_all) break;
        }
    }
    if (!missing.empty())
        raise("Rank" + std::string(missing.find(',') == std::string::npos ? " " : "s ") + missing +
              " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms");
    for (int who = 1; who < size_; who++) message(true, who, monitor_tag + 1);
}

} // namespace outboard
