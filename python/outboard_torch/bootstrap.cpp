// Starts MPI in a process that no MPI launcher has started: a thread of this process is its PMI-1 server (PMI_FD), and what a
// rank puts, gets and fences there goes through the c10d store.
// SPDX-License-Identifier: BSD-3-Clause
#include "backend.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace outboard {
namespace {

// A value as a rank sends it; Outboard takes longer ones apart.
constexpr int value_bytes_max = 1024;

class Server {
public:
    Server(int fd, c10::intrusive_ptr<c10d::Store> store, int size) : fd_(fd), store_(std::move(store)), size_(size) {}

    // Answers lines until the other end is closed.
    void run() {
        std::string rest;
        char bytes[4096];
        for (ssize_t got; (got = ::read(fd_, bytes, sizeof bytes)) > 0;) {
            rest.append(bytes, static_cast<size_t>(got));
            for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) {
                std::string reply;
                try {
                    reply = answer(rest.substr(0, end));
                } catch (const std::exception &error) {
                    std::fprintf(stderr, "outboard_torch: the c10d store failed while MPI started or ended: %s\n", error.what());
                    ::close(fd_);
                    return;
                }
                if (!reply.empty() && ::write(fd_, reply.data(), reply.size()) < 0) return;
            }
        }
        ::close(fd_);
    }

private:
    static std::string field(const std::string &line, const std::string &name) {
        auto at = line.find(" " + name + "=");
        if (at == std::string::npos) return {};
        at += name.size() + 2;
        return line.substr(at, name == "value" ? std::string::npos : line.find(' ', at) - at);
    }

    std::string answer(const std::string &line) {
        const auto is = [&](const char *command) {
            const auto whole = std::string("cmd=") + command;
            return line == whole || line.rfind(whole + " ", 0) == 0;
        };
        if (is("init")) return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
        if (is("get_maxes"))
            return "cmd=maxes rc=0 kvsname_max=64 keylen_max=256 vallen_max=" + std::to_string(value_bytes_max) + "\n";
        if (is("get_my_kvsname")) return "cmd=my_kvsname rc=0 kvsname=c10d\n";
        if (is("get_appnum")) return "cmd=appnum rc=0 appnum=0\n";
        if (is("put")) {
            const auto value = field(line, "value");
            store_->set("kvs/" + field(line, "key"), std::vector<uint8_t>(value.begin(), value.end()));
            return "cmd=put_result rc=0\n";
        }
        if (is("get")) {
            const auto key = "kvs/" + field(line, "key");
            if (!store_->check({key})) return "cmd=get_result rc=-1\n";
            const auto value = store_->get(key);
            return "cmd=get_result rc=0 value=" + std::string(value.begin(), value.end()) + "\n";
        }
        if (is("barrier_in")) {
            const auto key = "fence/" + std::to_string(++fences_);
            if (store_->add(key, 1) == size_) store_->set(key + "/done", std::vector<uint8_t>{1});
            store_->wait({key + "/done"}, std::chrono::hours(24));
            return "cmd=barrier_out rc=0\n";
        }
        if (is("finalize")) return "cmd=finalize_ack rc=0\n";
        // torchrun sees a worker that failed, and ends the others.
        if (is("abort")) ::_exit(1);
        return "cmd=error rc=-1\n";
    }

    int fd_;
    c10::intrusive_ptr<c10d::Store> store_;
    int size_, fences_ = 0;
};

bool has_launcher() {
    for (const char *name : {"OUTBOARD_JOB_FD", "PMI_FD", "PMIX_NAMESPACE"})
        if (std::getenv(name)) return true;
    return false;
}

} // namespace

int bootstrap(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size) {
    static std::mutex once;
    std::lock_guard<std::mutex> guard(once);
    if (outboard_dl_world_rank() >= 0) return outboard_dl_world_rank();
    if (has_launcher() || size == 1 || !store) {
        check(outboard_dl_init());
        TORCH_CHECK(!store || outboard_dl_world_size() >= size, "outboard: the first group has ", size,
                    " ranks, but this MPI job has ", outboard_dl_world_size());
        return outboard_dl_world_rank();
    }
    int ends[2];
    TORCH_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair: ", std::strerror(errno));
    // A connection of its own: a wait in the store must not hold up the program's.
    Server server(ends[0], store->clone(), size);
    std::thread([server]() mutable { server.run(); }).detach();
    ::setenv("PMI_FD", std::to_string(ends[1]).c_str(), 1);
    ::setenv("PMI_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("PMI_SIZE", std::to_string(size).c_str(), 1);
    const int code = outboard_dl_init();
    // What this process starts is no rank.
    for (const char *name : {"PMI_FD", "PMI_RANK", "PMI_SIZE"}) ::unsetenv(name);
    check(code);
    return outboard_dl_world_rank();
}

} // namespace outboard
