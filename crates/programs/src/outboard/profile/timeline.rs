// SPDX-License-Identifier: BSD-3-Clause
//! The timeline of a profile: a lane for each rank (or group of ranks) and each proxy, cut into equal slices
//! of time. Each slice is a stack of colours. A colour's height is the part of the slice's time that was
//! spent in one kind of work. So the length of the page does not depend on the number of events.

use std::collections::BTreeMap;
use std::fmt::Write;

use telemetry::chrome::FIRST_PROXY_PID;

use super::calls::{FunctionKind, TraceParts, time};
use super::waits::Wait;

/// The number of equal slices into which the time axis is cut.
const SLICES: usize = 360;
/// The most groups of ranks. Each group is a lane of the timeline and a row of the heat maps.
const GROUPS_MAX: usize = 32;
/// The most proxies that have a lane in the timeline.
const PROXIES_MAX: usize = 16;
/// The most arrows in the timeline. The longest waits get arrows.
const ARROWS_MAX: usize = 40;
/// The height of a lane in the picture's own units, with a gap of 3 to the next lane.
const LANE: f64 = 23.0;

/// The style sheet of the timeline. Class l0 has the colour of layer 0, and so on. The layers are the kinds
/// of functions, then waiting, then steps of proxies.
pub const STYLE: &str = ".l0{fill:var(--ours);background:var(--ours)}.l1{fill:var(--a);background:var(--a)}.l2{fill:var(--b);background:var(--b)}.l3{fill:var(--c);background:var(--c)}\
.l4{fill:var(--d);background:var(--d)}.l5{fill:var(--limit);background:var(--limit)}.l6,.late{fill:var(--miss);background:var(--miss)}.l7{fill:var(--weak);background:var(--weak)}\
.outside{background:var(--rule)}.bars{width:50%;min-width:9em}.wide{width:100%}.bars i{margin:0}\
.lanes{display:grid;grid-template-columns:auto 1fr;gap:0 .6em}.lanes ol{list-style:none;margin:0;padding:0;text-align:right;color:var(--weak)}\
.lanes li{height:23px;line-height:20px;font-size:12px}.lanes svg{width:100%;display:block;background:repeating-linear-gradient(var(--box) 0 20px,transparent 20px 23px)}\
.lanes line{stroke:var(--ink);stroke-width:1;vector-effect:non-scaling-stroke}.axis{grid-column:2;display:flex;justify-content:space-between;color:var(--weak);font-size:12px}\
.key{display:flex;flex-wrap:wrap;gap:.2em 1.2em;margin:.5em 0}.key i{display:inline-block;width:.9em;height:.9em;margin-right:.4em;vertical-align:-.1em}";

/// The index of the timeline's layer (a colour) for the time in which ranks wait. The layers before it are
/// for the kinds of functions.
const WAITING: usize = FunctionKind::ALL.len();
/// The index of the timeline's layer (a colour) for steps that proxies carry out.
const STEPS: usize = WAITING + 1;
const LAYERS: usize = STEPS + 1;

/// The ranks of a trace, divided into at most `GROUPS_MAX` groups of neighbouring ranks.
pub struct Groups {
    ranks: Vec<u64>,
    /// How many ranks a group has; the last group may have fewer.
    pub size: usize,
}

impl Groups {
    /// Divides `ranks` into groups. `ranks` is sorted and not empty.
    pub fn of(ranks: Vec<u64>) -> Groups {
        let size = ranks.len().div_ceil(GROUPS_MAX);
        Groups { ranks, size }
    }

    pub fn count(&self) -> usize {
        self.ranks.len().div_ceil(self.size)
    }

    /// Returns the index of the group that has this rank, or None if the trace has no such rank.
    pub fn find(&self, rank: u64) -> Option<usize> {
        Some(self.ranks.binary_search(&rank).ok()? / self.size)
    }

    /// Returns the index of the group that has this rank. The trace must have a call of the rank.
    pub fn index(&self, rank: u64) -> usize {
        self.find(rank).expect("it has made a call")
    }

    pub fn label(&self, at: usize) -> String {
        let group = &self.ranks[at * self.size..self.ranks.len().min((at + 1) * self.size)];
        match group {
            [one] => one.to_string(),
            _ => format!("{}-{}", group[0], group[group.len() - 1]),
        }
    }
}

/// A lane of the timeline: for each slice of time, what share of it each layer has. The shares of a lane's
/// ranks and threads are added up, so their sum may exceed 1.
type Slices = Vec<[f64; LAYERS]>;

pub fn html(parts: &TraceParts, waits: &[Wait], groups: &Groups) -> String {
    let start = parts.period.start;
    let width = ((parts.period.end - start) / SLICES as f64).max(1e-3);
    let empty = || vec![[0.0; LAYERS]; SLICES];
    let mut lanes: Vec<Slices> = (0..groups.count()).map(|_| empty()).collect();
    let mut threads = vec![0_usize; groups.count()];
    parts.threads.keys().for_each(|(rank, _)| threads[groups.index(*rank)] += 1);
    for call in &parts.calls {
        let slices = &mut lanes[groups.index(call.thread.0)];
        let kind = FunctionKind::of(call.name) as usize;
        let moving = call.from + call.waited;
        fill(slices, (call.from - start) / width, (moving - start) / width, WAITING);
        fill(slices, (moving - start) / width, (call.until - start) / width, kind);
    }
    let mut proxies: BTreeMap<u64, Slices> = BTreeMap::new();
    for step in &parts.steps {
        let slices = proxies.entry(step.pid - FIRST_PROXY_PID).or_insert_with(empty);
        let from = (step.ts - start) / width;
        fill(slices, from, from + step.dur / width, STEPS);
    }
    let hidden = proxies.len().saturating_sub(PROXIES_MAX);
    let labels: Vec<String> = (0..groups.count()).map(|at| groups.label(at)).collect();
    let labels =
        labels.into_iter().chain(proxies.keys().take(PROXIES_MAX).map(|proxy| format!("proxy {proxy}")));
    let labels: String = labels.map(|label| format!("<li>{label}")).collect();
    let scales = threads.iter().map(|count| *count as f64).chain(std::iter::repeat(1.0));
    let all: Vec<&Slices> = lanes.iter().chain(proxies.values().take(PROXIES_MAX)).collect();
    let drawn: String =
        all.iter().zip(scales).enumerate().map(|(at, (slices, scale))| lane(at, slices, scale)).collect();
    let drawn = drawn + &arrows(parts, waits, groups, width);
    let height = all.len() as f64 * LANE;
    let used = |layer: usize| all.iter().any(|slices| slices.iter().any(|slice| slice[layer] > 0.0));
    let names = FunctionKind::ALL
        .iter()
        .map(|(_, name)| *name)
        .chain(["waiting for a partner that had not begun", "proxies' steps"]);
    let key = names.enumerate().filter(|(layer, _)| used(*layer));
    let key: String = key.map(|(layer, name)| format!("<span><i class=l{layer}></i>{name}</span>")).collect();
    let more = if hidden > 0 {
        format!("<p class=s>{hidden} more proxies are left out.</p>")
    } else {
        String::new()
    };
    let [middle, end] = [0.5, 1.0].map(|part| time(part * width * SLICES as f64));
    format!(
        "<div class=key>{key}</div><div class=lanes><ol>{labels}</ol><svg viewBox=\"0 0 {SLICES} {height}\" style=\"height:{height}px\" preserveAspectRatio=none role=img \
         aria-label=\"What each rank did, by time. The table below has the sums.\">{drawn}</svg><div class=axis><span>0</span><span>{middle}</span><span>{end}</span></div></div>\
         <p class=s>A slice is {}; its height is the share of it in MPI. Lines lead from who was late to who waited, for the {ARROWS_MAX} longest waits at most.</p>{more}\n",
        time(width)
    )
}

/// Adds the time between `from` and `until` to one layer of a lane. Both are times since the start of the
/// timeline, in slices.
fn fill(slices: &mut Slices, from: f64, until: f64, layer: usize) {
    let last = slices.len() as f64;
    let (from, until) = (from.clamp(0.0, last), until.clamp(0.0, last));
    let mut at = from as usize;
    while (at as f64) < until {
        let part = until.min((at + 1) as f64) - from.max(at as f64);
        slices[at][layer] += part;
        at += 1;
    }
}

/// Returns lane number `at` as SVG, with a path for each layer. A slice is full when its shares add up to
/// `scale`.
fn lane(at: usize, slices: &Slices, scale: f64) -> String {
    let floor = at as f64 * LANE + LANE - 3.0;
    let mut paths = vec![String::new(); LAYERS];
    for (slice, shares) in slices.iter().enumerate() {
        let mut bottom = floor;
        for (layer, share) in shares.iter().enumerate() {
            let high = (LANE - 3.0) * (share / scale).min(1.0);
            if high >= 0.1 {
                let high = high.min(bottom - (floor - LANE + 3.0));
                write!(paths[layer], "M{slice} {bottom:.1}v-{high:.1}h1v{high:.1}")
                    .expect("a String takes all");
                bottom -= high;
            }
        }
    }
    let paths = paths.iter().enumerate().filter(|(_, path)| !path.is_empty());
    paths.map(|(layer, path)| format!("<path class=l{layer} d=\"{path}\"/>")).collect()
}

/// Returns the longest waits as SVG lines. A line starts in the late rank's lane at the time when that rank
/// started its part. It ends in the waiting rank's lane at the end of the call that waited.
fn arrows(parts: &TraceParts, waits: &[Wait], groups: &Groups, width: f64) -> String {
    let middle = |rank: u64| groups.index(rank) as f64 * LANE + (LANE - 3.0) / 2.0;
    let at = |time: f64| (time - parts.period.start) / width;
    let line = |wait: &Wait| {
        let call = &parts.calls[wait.call];
        let (y1, y2) = (middle(wait.late), middle(call.thread.0));
        format!("<line x1={:.2} y1={y1} x2={:.2} y2={y2} />", at(wait.began), at(call.until))
    };
    waits.iter().take(ARROWS_MAX).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_few_and_have_every_rank() {
        for count in [1, 2, 32, 33, 1000] {
            let groups = Groups::of((0..count).map(|rank| 3 * rank).collect());
            assert!(groups.count() <= GROUPS_MAX);
            let found: Vec<usize> = (0..count).map(|rank| groups.index(3 * rank)).collect();
            assert!(found.is_sorted() && found[found.len() - 1] == groups.count() - 1);
            assert_eq!(groups.find(1), None);
        }
        assert_eq!(Groups::of((0..64).collect()).label(1), "2-3");
    }

    #[test]
    fn slices_have_the_whole_time() {
        let mut slices = vec![[0.0; LAYERS]; 4];
        fill(&mut slices, -1.0, 0.5, 0);
        fill(&mut slices, 1.25, 3.5, 1);
        fill(&mut slices, 3.9, 9.0, 0);
        let of = |layer: usize| slices.iter().map(|slice| (100.0 * slice[layer]).round()).collect::<Vec<_>>();
        assert_eq!((of(0), of(1)), (vec![50.0, 0.0, 0.0, 10.0], vec![0.0, 75.0, 100.0, 50.0]));
    }
}
