// The Python module outboard_torch._backend.
// SPDX-License-Identifier: BSD-3-Clause
#include "backend.h"

#include <torch/csrc/utils/pybind.h>

#include <cstdlib>

namespace py = pybind11;
using namespace outboard;

namespace {

// Ends MPI with the process, if the process ends well. Otherwise others wait for this process, and the launcher ends them. The
// exit code is known only now, after Python has gone.
void end_with_process() {
    static std::once_flag once;
    const auto end = [](int status, void *) {
        detach();
        if (status == 0 && outboard_dl_finalize() != OUTBOARD_DL_OK) std::fprintf(stderr, "outboard_torch: %s\n", outboard_dl_message());
    };
    std::call_once(once, [&] { ::on_exit(end, nullptr); });
}

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, const std::string &name, double seconds) {
    const Milliseconds timeout(static_cast<int64_t>(seconds * 1000));
    auto ranks = bootstrap(store, rank, size, name, timeout);
    end_with_process();
    return c10::make_intrusive<Backend>(rank, std::move(ranks), name, timeout);
}

} // namespace

PYBIND11_MODULE(_backend, module) {
    py::module_::import("torch.distributed");
    using Release = py::call_guard<py::gil_scoped_release>;
    module.def("create", &create, Release());
    module.def("share", &share, Release());
    module.def("init", [] { start_launched(), end_with_process(); }, Release());
    module.def("detach", &detach, Release());
    module.def("rank", &outboard_dl_world_rank);
    module.def("size", &outboard_dl_world_size);
    module.def("node", &outboard_dl_world_node);
    module.def("finalize", [] { return outboard_dl_finalize(); }, Release());
}
