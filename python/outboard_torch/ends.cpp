// The processes of a job that torchrun has started learn of each other's ends in this way. Each holds a TCP connection to rank 0,
// which the kernel closes when the process ends, whatever the reason. If a connection closes before its rank has sent that MPI is
// finalized, rank 0 ends and sends the others the reason. The others also end if the connection to rank 0 closes. An agent of
// torchrun sees only its own workers.
// SPDX-License-Identifier: BSD-3-Clause
#include "ends.h"

#include <c10/util/Exception.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <cstring>
#include <map>
#include <set>
#include <thread>

namespace outboard {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that has to end waits this long first, because its agent may be about to stop it for another round, which costs
// no restart.
constexpr Milliseconds grace{1000};
// A host without power counts as gone after 30 + 3 * 10 s.
constexpr int idle_s = 30, interval_s = 10, probes = 3;
constexpr size_t line_bytes_max = 512;
const std::string finalized = "finalized";

// The sockets, which a fork must not keep open. `lock` is held around a fork.
struct Sockets {
    std::mutex lock;
    // The beginning of a line that has come from each peer, and a sentence that names the peer; the sentence
    // is empty until the name is known.
    struct Peer {
        std::string rest, who;
    };
    std::map<int, Peer> peers;
    int listener = -1;
    bool is_over = false;
};

// The sockets are never freed, because the process may end at any time.
Sockets &sockets() {
    static auto *const one = new Sockets;
    return *one;
}

void survive_forks() {
    static std::once_flag once;
    std::call_once(once, [] {
        ::pthread_atfork([] { sockets().lock.lock(); }, [] { sockets().lock.unlock(); },
                         [] {
                             for (const auto &one : sockets().peers) ::close(one.first);
                             if (sockets().listener >= 0) ::close(sockets().listener);
                             sockets().lock.unlock();
                         });
    });
}

void send_line(int fd, const std::string &text) {
    const auto line = text + "\n";
    // A line fits into an empty buffer. A peer that does not get the line sees the end.
    (void)!::send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void watch_host(int fd) {
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

std::string host_name() {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    return name;
}

// The words that name this rank in a sentence.
std::string describe(int rank) {
    return "rank " + std::to_string(rank) + " (pid " + std::to_string(::getpid()) + " on " + host_name() + ")";
}

// Ends this process because another has ended, unless MPI is finalized here.
void end(int rank, const std::string &why) {
    auto &all = sockets();
    {
        std::lock_guard<std::mutex> guard(all.lock);
        if (all.is_over) return;
        if (rank == 0)
            for (const auto &[fd, peer] : all.peers) send_line(fd, why);
    }
    std::fprintf(stderr, "outboard_torch: rank %d: %s; ending the job\n", rank, why.c_str());
    std::this_thread::sleep_for(grace);
    ::_exit(1);
}

struct Heard {
    bool is_closed = false;
    std::vector<std::string> lines;
};

// Reads what has come; an incomplete line stays in `rest`.
Heard hear(int fd, std::string &rest) {
    char bytes[line_bytes_max];
    Heard heard;
    const auto got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return heard;
    if (got <= 0) {
        heard.is_closed = true;
        return heard;
    }
    rest.append(bytes, static_cast<size_t>(got));
    for (size_t at; (at = rest.find('\n')) != std::string::npos; rest.erase(0, at + 1)) heard.lines.push_back(rest.substr(0, at));
    heard.is_closed = rest.size() > line_bytes_max;
    return heard;
}

// The thread of rank 0.
class Leader {
public:
    Leader(std::string word, int size, Clock::time_point until) : word_(std::move(word)), size_(size), until_(until) {}

    // Accepts the other ranks, and waits for the end of one of them.
    void run() {
        for (;;) {
            std::vector<pollfd> polled;
            {
                std::lock_guard<std::mutex> guard(all_.lock);
                if (all_.is_over) return;
                if (all_.listener >= 0) polled.push_back({all_.listener, POLLIN, 0});
                for (const auto &one : all_.peers) polled.push_back({one.first, POLLIN, 0});
            }
            if (::poll(polled.data(), polled.size(), is_complete() ? -1 : 100) < 0) continue;
            for (const auto &one : polled) {
                if (!one.revents) continue;
                one.fd == all_.listener ? accept() : read(one.fd);
            }
            if (!is_complete() && Clock::now() > until_) end(0, missing() + " was in the first group and has not connected to rank 0");
        }
    }

private:
    bool is_complete() const { return static_cast<int>(known_.size()) == size_ - 1; }

    std::string missing() const {
        int rank = 1;
        while (known_.count(rank)) rank++;
        return "rank " + std::to_string(rank);
    }

    void accept() {
        const int fd = ::accept4(all_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            // There may be too many descriptors.
            std::this_thread::sleep_for(Milliseconds(100));
        } else if (all_.peers.size() >= 2 * static_cast<size_t>(size_) + 16) {
            ::close(fd);
        } else {
            watch_host(fd);
            std::lock_guard<std::mutex> guard(all_.lock);
            all_.peers[fd];
        }
    }

    void read(int fd) {
        auto &peer = all_.peers.at(fd);
        const auto heard = hear(fd, peer.rest);
        bool is_left = false;
        for (const auto &line : heard.lines) {
            if (is_left) break;
            peer.who.empty() ? is_left = !greet(peer, line) : is_left = line == finalized;
        }
        if (heard.is_closed && !is_left && !peer.who.empty()) end(0, peer.who + " has ended");
        std::lock_guard<std::mutex> guard(all_.lock);
        if (heard.is_closed || is_left) all_.peers.erase(fd), ::close(fd);
        if (is_complete() && all_.listener >= 0) ::close(std::exchange(all_.listener, -1));
    }

    // Checks the first line of a rank: "WORD rank RANK (...)". Strangers that connect do not know the word.
    bool greet(Sockets::Peer &peer, const std::string &line) {
        const auto known = word_ + " rank ";
        if (line.rfind(known, 0) != 0) return false;
        const int rank = std::atoi(line.c_str() + known.size());
        if (rank <= 0 || rank >= size_ || !known_.insert(rank).second) return false;
        peer.who = line.substr(word_.size() + 1);
        return true;
    }

    Sockets &all_ = sockets();
    std::string word_;
    int size_;
    Clock::time_point until_;
    std::set<int> known_;
};

// The thread of another rank: waits for the end of rank 0, or for its message.
void follow(int fd, int rank, const std::string &first) {
    auto &all = sockets();
    for (;;) {
        pollfd polled{fd, POLLIN, 0};
        if (::poll(&polled, 1, -1) <= 0) continue;
        const auto heard = hear(fd, all.peers.at(fd).rest);
        {
            std::lock_guard<std::mutex> guard(all.lock);
            if (all.is_over) return;
        }
        for (const auto &line : heard.lines) {
            if (line != finalized) end(rank, line);
            return;
        }
        if (heard.is_closed) return end(rank, first + " has ended");
    }
}

c10d::TCPStore *tcp(c10d::Store &store) {
    auto *one = &store;
    while (auto *prefixed = dynamic_cast<c10d::PrefixStore *>(one)) one = prefixed->getUnderlyingStore().get();
    return dynamic_cast<c10d::TCPStore *>(one);
}

struct Addresses {
    addrinfo *first = nullptr;
    Addresses(const std::string &host, const std::string &port, int type) {
        addrinfo hints{};
        hints.ai_socktype = type;
        const int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &first);
        TORCH_CHECK(code == 0, "outboard: ", host, " has no address: ", ::gai_strerror(code));
    }
    ~Addresses() { ::freeaddrinfo(first); }
    Addresses(const Addresses &) = delete;
};

std::string numeric(const sockaddr_storage &address, socklen_t length) {
    char host[NI_MAXHOST] = {};
    ::getnameinfo(reinterpret_cast<const sockaddr *>(&address), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
}

// This host's name for ranks that reach the store. It is empty if the store is on this host, too.
std::string own_host(c10d::Store &store) {
    auto *const served = tcp(store);
    if (!served) return host_name();
    const Addresses found(served->getHost(), std::to_string(served->getPort()), SOCK_DGRAM);
    for (auto *one = found.first; one; one = one->ai_next) {
        const int fd = ::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_storage own{}, other{};
        socklen_t length = sizeof own;
        // The connect sends nothing: it asks the kernel which of this host's addresses it would use.
        const bool is_known = fd >= 0 && ::connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&
                              ::getsockname(fd, reinterpret_cast<sockaddr *>(&own), &length) == 0;
        if (fd >= 0) ::close(fd);
        if (!is_known) continue;
        std::memcpy(&other, one->ai_addr, one->ai_addrlen);
        const auto name = numeric(own, length);
        const bool is_here = name == numeric(other, one->ai_addrlen) || name.rfind("127.", 0) == 0 || name == "::1";
        return is_here ? "" : name;
    }
    return host_name();
}

int connect_to(const std::string &host, const std::string &port, Milliseconds timeout) {
    int failure = 0;
    const Addresses found(host, port, SOCK_STREAM);
    for (auto *one = found.first; one; one = one->ai_next) {
        const int fd = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        // The limit holds for connect(), too.
        const timeval limit{timeout.count() / 1000, timeout.count() % 1000 * 1000};
        ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0) return fd;
        failure = errno == EINPROGRESS ? ETIMEDOUT : errno;
        ::close(fd);
    }
    C10_THROW_ERROR(DistBackendError, "outboard: rank 0 cannot be reached at " + host + ", port " + port + ": " + std::strerror(failure) +
                                          "; the hosts of a job must reach each other's ports");
}

} // namespace

Listener::Listener(c10d::Store &store) {
    sockaddr_storage any{};
    socklen_t length = sizeof any;
    for (const int family : {AF_INET6, AF_INET}) {
        const int off = 0;
        any.ss_family = static_cast<sa_family_t>(family);
        fd_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd_ < 0) continue;
        if (family == AF_INET6) ::setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        const auto *address = reinterpret_cast<const sockaddr *>(&any);
        if (::bind(fd_, address, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) == 0 && ::listen(fd_, SOMAXCONN) == 0) break;
        ::close(std::exchange(fd_, -1));
    }
    TORCH_CHECK(fd_ >= 0, "outboard: rank 0 cannot listen for the others: ", std::strerror(errno));
    ::getsockname(fd_, reinterpret_cast<sockaddr *>(&any), &length);
    char port[NI_MAXSERV] = {};
    ::getnameinfo(reinterpret_cast<const sockaddr *>(&any), length, nullptr, 0, port, sizeof port, NI_NUMERICSERV);
    address_ = own_host(store) + " " + port + " " + describe(0);
}

Listener::~Listener() {
    if (fd_ >= 0) ::close(fd_);
}

void hear_of_ends(c10d::Store &store, const std::string &address, int listener, const std::string &word, int rank, int size, Milliseconds timeout) {
    auto &all = sockets();
    survive_forks();
    if (rank == 0) {
        all.listener = listener;
        std::thread([leader = Leader(word, size, Clock::now() + timeout)]() mutable { leader.run(); }).detach();
        return;
    }
    // The address is "HOST PORT rank 0 (...)".
    const auto space = address.find(' '), next = address.find(' ', space + 1);
    TORCH_CHECK(next != std::string::npos, "outboard: rank 0 has not said where it is");
    auto host = address.substr(0, space);
    if (auto *const served = tcp(store); host.empty() && served) host = served->getHost();
    if (host == host_name()) host = "127.0.0.1";
    const int fd = connect_to(host, address.substr(space + 1, next - space - 1), timeout);
    watch_host(fd);
    send_line(fd, word + " " + describe(rank));
    {
        std::lock_guard<std::mutex> guard(all.lock);
        all.peers[fd];
    }
    std::thread([=, first = address.substr(next + 1)] { follow(fd, rank, first); }).detach();
}

void say_finalized() {
    auto &all = sockets();
    std::lock_guard<std::mutex> guard(all.lock);
    all.is_over = true;
    for (const auto &[fd, peer] : all.peers) send_line(fd, finalized);
}

} // namespace outboard
