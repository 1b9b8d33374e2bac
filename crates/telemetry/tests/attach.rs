// SPDX-License-Identifier: BSD-3-Clause
//! Tests `attach`. A process attaches only once, so this test has a program of its own.

use outboard_telemetry::{Counter, CounterPage, attach, count, value};

#[test]
fn counts_before_and_after_attaching() {
    count(Counter::Steps, 2);
    assert_eq!(value(Counter::Steps), 2);
    let shared: &'static CounterPage = Box::leak(Box::default());
    attach(shared);
    count(Counter::Steps, 3);
    assert_eq!(shared.value(Counter::Steps), 5);
    let other: &'static CounterPage = Box::leak(Box::default());
    attach(other);
    count(Counter::Steps, 1);
    assert_eq!((shared.value(Counter::Steps), other.value(Counter::Steps)), (6, 0));
    assert_eq!(shared.values().collect::<Vec<_>>(), [(Counter::Steps, 6)]);
}
