/* SPDX-License-Identifier: BSD-3-Clause */
// In which order the program's thread and callbacks of futures start the collectives of a group.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>

namespace outboard {

// A collective's place: within whose callbacks it was started, and whether it has told of its end.
class Place {
public:
    Place();

    // The thread runs callbacks of this collective while it lives.
    class Telling {
    public:
        explicit Telling(const Place &place);
        ~Telling();

    private:
        const Place *before_;
    };

private:
    friend class Order;
    const Place *within_;
    bool is_told_ = false;
};

// What a group keeps. Python attaches callbacks to a future after its operation has started. If it has ended by then, a callback runs at
// once in the program's thread, else later in one of the library's. Which it is differs between ranks. So the next collective starts
// only when those before it, whose futures Python has, have told: what callbacks start lies between the same two at every rank.
class Order {
public:
    // Python has the future.
    void ask(const Place &place);
    // All callbacks have run.
    void tell(Place &place);
    // Waits until those have told that were started within the same callbacks as the next one. False: it took longer than the timeout.
    bool settle(std::chrono::milliseconds timeout);

private:
    std::mutex lock_;
    std::condition_variable told_;
    std::set<const Place *> asked_;
};

} // namespace outboard
