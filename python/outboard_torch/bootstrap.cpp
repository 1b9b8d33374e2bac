// Starts MPI in a process that no MPI launcher has started. A thread of this process is its PMI-1 server (PMI_FD), and its
// puts, gets and fences go through the c10d store.
// SPDX-License-Identifier: BSD-3-Clause
#include "ends.h"
#include "meeting.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace outboard {
namespace {

// The longest value that a rank sends; Outboard splits longer ones.
constexpr int value_bytes_max = 1024;

class Server {
public:
    Server(int fd, c10::intrusive_ptr<c10d::Store> store, int size, std::string prefix)
        : fd_(fd), store_(std::move(store)), size_(size), prefix_(std::move(prefix)) {}

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

    std::string key_of(const std::string &line) const { return prefix_ + "/kvs/" + field(line, "key"); }

    std::string answer(const std::string &line) {
        const auto is = [&](const char *command) {
            const auto whole = std::string("cmd=") + command;
            return line == whole || line.rfind(whole + " ", 0) == 0;
        };
        if (is("init")) return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
        if (is("get_maxes"))
            return "cmd=maxes rc=0 kvsname_max=64 keylen_max=256 vallen_max=" + std::to_string(value_bytes_max) + "\n";
        if (is("get_my_kvsname")) return "cmd=my_kvsname rc=0 kvsname=" + prefix_.substr(prefix_.find('/') + 1) + "\n";
        if (is("get_appnum")) return "cmd=appnum rc=0 appnum=0\n";
        if (is("put")) {
            const auto value = field(line, "value");
            store_->set(key_of(line), std::vector<uint8_t>(value.begin(), value.end()));
            return "cmd=put_result rc=0\n";
        }
        if (is("get")) {
            const auto key = key_of(line);
            if (!store_->check({key})) return "cmd=get_result rc=-1\n";
            const auto value = store_->get(key);
            return "cmd=get_result rc=0 value=" + std::string(value.begin(), value.end()) + "\n";
        }
        if (is("barrier_in")) {
            const auto key = prefix_ + "/fence/" + std::to_string(++fences_);
            if (store_->add(key, 1) == size_) store_->set(key + "/done", std::vector<uint8_t>{1});
            store_->wait({key + "/done"}, std::chrono::hours(24));
            return "cmd=barrier_out rc=0\n";
        }
        if (is("finalize")) {
            say_finalized();
            return "cmd=finalize_ack rc=0\n";
        }
        if (is("abort")) ::_exit(1);
        return "cmd=error rc=-1\n";
    }

    int fd_;
    c10::intrusive_ptr<c10d::Store> store_;
    int size_, fences_ = 0;
    std::string prefix_;
};

// A word that names the MPI job of this process and that the job's members share. It is empty before MPI has
// started.
std::string job;
std::mutex starting;

// The text of a member in a meeting: its job and its rank there, or a text that begins with a space if it is in no
// job.
std::string place() { return job.empty() ? " " : job + " " + std::to_string(outboard_dl_world_rank()); }

// Starts MPI among the members of a meeting.
void start(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, const std::string &prefix) {
    int ends[2];
    TORCH_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair: ", std::strerror(errno));
    // This pointer is kept for the end of MPI: a store that this process serves must exist after Python has
    // gone.
    static auto *const kept [[maybe_unused]] = new c10::intrusive_ptr<c10d::Store>(store);
    // The server has a connection of its own, because a wait in the store must not hold up the program's
    // connection.
    Server server(ends[0], store->clone(), size, prefix);
    std::thread([server]() mutable { server.run(); }).detach();
    ::setenv("PMI_FD", std::to_string(ends[1]).c_str(), 1);
    ::setenv("PMI_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("PMI_SIZE", std::to_string(size).c_str(), 1);
    const int code = outboard_dl_init();
    // A process that this process starts is not a rank.
    for (const char *name : {"PMI_FD", "PMI_RANK", "PMI_SIZE"}) ::unsetenv(name);
    check(code);
    job = prefix;
}

} // namespace

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

void start_launched() {
    std::lock_guard<std::mutex> guard(starting);
    if (!job.empty()) return;
    check(outboard_dl_init());
    job = share(new_word());
}

std::vector<int> bootstrap(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, const std::string &group, Milliseconds timeout) {
    std::unique_lock<std::mutex> guard(starting);
    if (size == 1) {
        // A process without a launcher first gets a job of its own.
        if (job.empty()) check(outboard_dl_init()), job = new_word();
        return {outboard_dl_world_rank()};
    }
    TORCH_CHECK(store, "outboard: group ", group, " has no store");
    if (timeout.count() <= 0) timeout = store->getTimeout();
    auto own = place();
    // Rank 0 of a new job announces the address at which it listens.
    std::optional<Listener> listener;
    if (job.empty() && rank == 0) own += listener.emplace(*store).address();
    // Other threads may make groups meanwhile.
    guard.unlock();
    const auto met = meet(*store, rank, size, own, group, timeout);
    std::vector<int> ranks;
    bool is_first = true;
    for (int who = 0; who < size; who++) {
        const auto &said = met.members[static_cast<size_t>(who)];
        const auto job_of = [](const std::string &one) { return one.substr(0, one.find(' ')); };
        TORCH_CHECK(job_of(said) == job_of(met.members[0]), "outboard: ranks 0 and ", who, " of group ", group,
                    " are in different MPI jobs. A process joins one with the first group of this backend that it is in, if no launcher of MPI "
                    "started it. So make a group of all processes first: init_process_group(\"outboard\"), or \"cpu:outboard\"");
        if (!job_of(said).empty()) is_first = false, ranks.push_back(std::stoi(said.substr(said.find(' '))));
    }
    if (!is_first) return ranks;
    guard.lock();
    TORCH_CHECK(job.empty(), "outboard: two threads of a process made its first groups at the same time");
    hear_of_ends(*store, met.members[0].substr(1), listener ? listener->take() : -1, met.prefix.substr(met.prefix.find('/') + 1), rank, size, timeout);
    start(store, rank, size, met.prefix);
    // Each member gets the rank of MPI that it was given.
    for (int who = 0; who < size; who++) ranks.push_back(who);
    return ranks;
}

} // namespace outboard
