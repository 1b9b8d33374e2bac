// SPDX-License-Identifier: BSD-3-Clause
//! Runs tests for many seeds. The tests of the crates p2p and executor include this file, too.

/// Runs `test` for the seeds 0, 1, and so on, `count` of them. The environment variable SEEDS gives another
/// number of seeds, SEED a single seed. A failure prints its seed. Returns whether `test` has run for at
/// least `count` seeds.
pub fn seeds(count: u64, mut test: impl FnMut(u64)) -> bool {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a seed is a number"));
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(count),
    };
    for seed in seeds.clone() {
        let guard = PrintOnPanic(seed);
        test(seed);
        std::mem::forget(guard);
    }
    seeds.end - seeds.start >= count
}

/// Prints the seed of a test when this value is dropped. The value is dropped only if the test panics.
struct PrintOnPanic(u64);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        eprintln!("failed with SEED={}; the same number in the environment replays it", self.0);
    }
}
