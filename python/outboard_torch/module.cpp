// The Python module outboard_torch._backend.
// SPDX-License-Identifier: BSD-3-Clause
#include "backend.h"

#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;
using namespace outboard;

namespace {

// MPI's rank of each member of the first group, which holds all processes: by its rank in c10d's default group.
std::vector<int> world;

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::vector<int> global_ranks,
                                         const std::string &name, double seconds) {
    const int own = bootstrap(store, rank, size);
    if (world.empty()) {
        // Which of MPI's ranks each member is: launchers need not number as c10d does.
        world.resize(static_cast<size_t>(size));
        const auto key = [](int who) { return "outboard/rank/" + std::to_string(who); };
        store->set(key(rank), std::to_string(own));
        for (int who = 0; who < size; who++) world[static_cast<size_t>(who)] = std::stoi(store->get_to_str(key(who)));
    }
    std::vector<int> ranks;
    if (global_ranks.empty())
        for (int who = 0; who < size; who++) global_ranks.push_back(who);
    for (int who : global_ranks) {
        TORCH_CHECK(who >= 0 && static_cast<size_t>(who) < world.size(), "outboard: rank ", who,
                    " was not in the first group of the backend, which had ", world.size(), " ranks");
        ranks.push_back(world[static_cast<size_t>(who)]);
    }
    const Milliseconds timeout(static_cast<int64_t>(seconds * 1000));
    return c10::make_intrusive<Backend>(rank, std::move(ranks), name, timeout);
}

// Copies `text` of rank 0 to all ranks of MPI_COMM_WORLD.
std::string share(std::string text) {
    check(outboard_dl_init());
    const int size = outboard_dl_world_size();
    std::vector<int> all;
    for (int who = 0; who < size; who++) all.push_back(who);
    outboard_dl_group *group;
    check(outboard_dl_group_create(all.data(), size, "share", 300, &group));
    text.resize(256);
    outboard_dl_work *work;
    const int started = outboard_dl_broadcast(group, text.data(), 256, OUTBOARD_DL_U8, 0, nullptr, &work);
    if (started == OUTBOARD_DL_OK) {
        const int code = outboard_dl_wait(work, -1);
        outboard_dl_work_free(work);
        check(code);
    }
    check(started);
    check(outboard_dl_group_free(group));
    return text.substr(0, text.find('\0'));
}

} // namespace

PYBIND11_MODULE(_backend, module) {
    py::module_::import("torch.distributed");
    using Release = py::call_guard<py::gil_scoped_release>;
    module.def("create", &create, Release());
    module.def("share", &share, Release());
    module.def("init", [] { check(outboard_dl_init()); }, Release());
    module.def("rank", &outboard_dl_world_rank);
    module.def("size", &outboard_dl_world_size);
    module.def("node", &outboard_dl_world_node);
    module.def("finalize", [] { return outboard_dl_finalize(); }, Release());
}
