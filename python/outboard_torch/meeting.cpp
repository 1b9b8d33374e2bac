// How the members of a group find each other in its store. A store may outlive them: torchrun keeps one for all lives of its workers,
// and a process may end its groups and make new ones under the old names. So what lies there under a known key may be of others.
//
// Each member writes a word that nobody has used under its rank (`hello/R-of-N`), and waits for a key with that word in its name. Member 0
// answers all words that it finds, again if one is replaced, with a word of its own, and goes on until all members have said that they
// got it. From then on their keys begin with that word, which no other life knows.
// SPDX-License-Identifier: BSD-3-Clause
#include "meeting.h"

#include <c10/util/Exception.h>

#include <random>
#include <thread>

namespace outboard {
namespace {

using c10d::Store;
using Clock = std::chrono::steady_clock;

constexpr Milliseconds first_pause{1}, longest_pause{50};

void put(Store &store, const std::string &key, const std::string &value) {
    store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

// Waits for a key. `whom` names its writer in the error message.
std::string wait_for(Store &store, const std::string &key, Milliseconds timeout, const std::string &whom) {
    try {
        store.wait({key}, timeout);
    } catch (const std::exception &error) {
        C10_THROW_ERROR(DistBackendError, "outboard: " + whom + " did not come within " + std::to_string(timeout.count()) +
                                              " ms, or the store is gone: " + error.what());
    }
    const auto value = store.get(key);
    return {value.begin(), value.end()};
}

// The size is part of the key: some processes may make a group of another size under the same name while others still make
// this one.
std::string hello(int rank, int size) { return "outboard/hello/" + std::to_string(rank) + "-of-" + std::to_string(size); }

std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) lines.push_back(text.substr(at, end - at));
    return lines;
}

// The work of member 0.
Meeting lead(Store &store, int size, const std::string &own, const std::string &word, const std::string &group, Milliseconds timeout) {
    Meeting met{"outboard/" + word, std::vector<std::string>(static_cast<size_t>(size))};
    met.members[0] = own;
    std::vector<std::string> answered(met.members.size());
    const auto end = Clock::now() + timeout;
    const auto joined = [&](int who) { return met.prefix + "/joined/" + std::to_string(who); };
    for (int who = 1; who < size; who++) {
        const auto name = "rank " + std::to_string(who) + " of group " + group;
        for (auto pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
            const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
            if (left.count() <= 0)
                C10_THROW_ERROR(DistBackendError, "outboard: " + name + " did not come within " + std::to_string(timeout.count()) + " ms");
            const auto said = wait_for(store, hello(who, size), left, name);
            const auto space = said.find(' ');
            auto &last = answered[static_cast<size_t>(who)];
            if (space != std::string::npos && said.substr(0, space) != last) {
                last = said.substr(0, space);
                met.members[static_cast<size_t>(who)] = said.substr(space + 1);
                put(store, "outboard/answer/" + last, word);
            }
            // The member has sent the word that was read last: it wrote that word before it waited for the
            // answer.
            if (store.check({joined(who)})) break;
            std::this_thread::sleep_for(pause);
        }
    }
    std::string text;
    for (const auto &member : met.members) text += member + "\n";
    put(store, met.prefix + "/members", text);
    return met;
}

} // namespace

std::string new_word() {
    std::random_device random;
    std::string word;
    for (int i = 0; i < 16; i++) word += "0123456789abcdef"[random() % 16];
    return word;
}

Meeting meet(Store &store, int rank, int size, const std::string &own, const std::string &group, Milliseconds timeout) {
    const auto word = new_word();
    if (rank == 0) return lead(store, size, own, word, group, timeout);
    put(store, hello(rank, size), word + " " + own);
    const auto prefix = "outboard/" + wait_for(store, "outboard/answer/" + word, timeout, "rank 0 of group " + group);
    put(store, prefix + "/joined/" + std::to_string(rank), "1");
    auto members = lines_of(wait_for(store, prefix + "/members", timeout, "another member of group " + group));
    if (members.size() != static_cast<size_t>(size))
        C10_THROW_ERROR(DistBackendError, "outboard: rank 0 of group " + group + " has " + std::to_string(members.size()) +
                                              " members, and rank " + std::to_string(rank) + " has " + std::to_string(size));
    return {prefix, std::move(members)};
}

} // namespace outboard
