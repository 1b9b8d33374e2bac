// SPDX-License-Identifier: BSD-3-Clause
#include "order.h"

#include <algorithm>

namespace outboard {
namespace {

// The collective whose callbacks this thread runs.
thread_local const Place *here = nullptr;

} // namespace

Place::Place() : within_(here) {}

Place::Telling::Telling(const Place &place) : before_(here) { here = &place; }

Place::Telling::~Telling() { here = before_; }

void Order::ask(const Place &place) {
    std::lock_guard<std::mutex> guard(lock_);
    if (!place.is_told_) asked_.insert(&place);
}

void Order::tell(Place &place) {
    std::lock_guard<std::mutex> guard(lock_);
    place.is_told_ = true;
    asked_.erase(&place);
    told_.notify_all();
}

bool Order::settle(std::chrono::milliseconds timeout) {
    std::unique_lock<std::mutex> guard(lock_);
    const auto is_settled = [this] {
        return std::none_of(asked_.begin(), asked_.end(), [](const Place *place) { return place->within_ == here; });
    };
    if (timeout.count() > 0) return told_.wait_for(guard, timeout, is_settled);
    told_.wait(guard, is_settled);
    return true;
}

} // namespace outboard
