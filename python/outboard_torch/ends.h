/* SPDX-License-Identifier: BSD-3-Clause */
// How the processes of a job that torchrun has started hear of each other's ends.
#pragma once

#include "backend.h"

namespace outboard {

// The listening socket of rank 0.
class Listener {
public:
    // Where the others reach it, and who it is. An empty host is that of the store.
    explicit Listener(c10d::Store &store);
    std::string address() const { return address_; }
    int take() { return std::exchange(fd_, -1); }
    ~Listener();
    Listener(const Listener &) = delete;

private:
    int fd_ = -1;
    std::string address_;
};

// From now on each rank ends soon after another one that has not finalized MPI. `word`: known to these ranks only. Rank 0 passes the
// descriptor of its listener, the others -1.
void hear_of_ends(c10d::Store &store, const std::string &address, int listener, const std::string &word, int rank, int size, Milliseconds timeout);

// This rank has ended MPI, as all others have.
void say_finalized();

} // namespace outboard
