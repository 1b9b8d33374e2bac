/* SPDX-License-Identifier: BSD-3-Clause */
// The order in which the program's thread and callbacks of futures start the collectives of a group.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>

namespace outboard {

// A collective's position in the order: the collective within whose callbacks it was started, and whether its
// end has been reported.
class Place {
public:
    Place();

    // While it lives, the thread runs callbacks of this collective.
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

// The order of a group. Python attaches callbacks to a future after its operation has started. If the operation has ended by
// then, a callback runs at once in the program's thread, otherwise later in a thread of the library; this differs between ranks.
// So the next collective starts only once the collectives before it whose futures Python has have reported their ends. Then the
// collectives that a callback starts lie between the same two at every rank.
class Order {
public:
    // Notes that Python has the future.
    void ask(const Place &place);
    // Notes that all callbacks have run.
    void tell(Place &place);
    // Waits until the collectives that were started within the same callbacks as the next one have reported their ends. Returns
    // false if this takes longer than the timeout.
    bool settle(std::chrono::milliseconds timeout);

private:
    std::mutex lock_;
    std::condition_variable told_;
    std::set<const Place *> asked_;
};

} // namespace outboard
