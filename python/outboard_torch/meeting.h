/* SPDX-License-Identifier: BSD-3-Clause */
// How the members of a group find each other.
#pragma once

#include "backend.h"

namespace outboard {

struct Meeting {
    // A prefix for keys of the store that only these members use.
    std::string prefix;
    // The text of each member, by its rank in the group.
    std::vector<std::string> members;
};

// Lets the members of a group find each other. All call it. Each gets the text `own` of every member, which
// contains no newline.
Meeting meet(c10d::Store &store, int rank, int size, const std::string &own, const std::string &group, Milliseconds timeout);

// A word that no process has used before.
std::string new_word();

} // namespace outboard
