/* SPDX-License-Identifier: BSD-3-Clause */
// How the processes of a job that torchrun has started learn of each other's ends.
#pragma once

#include "backend.h"

namespace outboard {

// The listening socket of rank 0.
class Listener {
public:
    // The address at which the others reach it, and its name. An empty host is the host of the store.
    explicit Listener(c10d::Store &store);
    std::string address() const { return address_; }
    int take() { return std::exchange(fd_, -1); }
    ~Listener();
    Listener(const Listener &) = delete;

private:
    int fd_ = -1;
    std::string address_;
};

// From now on each rank ends soon after another one that has ended without finalizing MPI. Only these ranks know `word`. Rank 0
// passes the descriptor of its listener, the others pass -1.
void hear_of_ends(c10d::Store &store, const std::string &address, int listener, const std::string &word, int rank, int size, Milliseconds timeout);

// This rank has finalized MPI, as all others have.
void say_finalized();

} // namespace outboard
