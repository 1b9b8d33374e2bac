/* SPDX-License-Identifier: BSD-3-Clause */
// How the members of a group find each other.
#pragma once

#include "backend.h"

namespace outboard {

struct Meeting {
    // Keys of the store that begin with this are these members' alone.
    std::string prefix;
    // What each member said, by its rank in the group.
    std::vector<std::string> members;
};

// All members of a group call it; `own`, without a newline, is given to all.
Meeting meet(c10d::Store &store, int rank, int size, const std::string &own, const std::string &group, Milliseconds timeout);

// A word that nobody has used.
std::string new_word();

} // namespace outboard
