// SPDX-License-Identifier: BSD-3-Clause
//! The results of `outboard bench`: medians, spreads, ratios and goals, as text for the terminal and as JSON.
//!
//! Read next: `page.rs` (the same results as an HTML page).

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::measure::{Measure, WALL, measures};
use super::rounds::{BenchRow, BenchTable, Conditions};

/// The median of the values of all rounds, and how far the values spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    /// The spread of the values: (greatest - least) / median. None if there is only one value.
    pub spread: Option<f64>,
}

/// Returns median and spread of the values of all rounds. None if one is missing: its MPI counts as failed.
pub fn summary(values: &[Option<f64>]) -> Option<Summary> {
    let mut sorted = values.iter().copied().collect::<Option<Vec<f64>>>()?;
    sorted.sort_by(f64::total_cmp);
    let (least, greatest) = (*sorted.first()?, *sorted.last()?);
    let half = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 };
    let spread = (sorted.len() > 1).then(|| (greatest - least) / median);
    Some(Summary { median, spread })
}

/// Returns median and spread, over all rounds, of the ratio `above` / `below`. None if a value is missing.
pub fn paired(above: &[Option<f64>], below: &[Option<f64>]) -> Option<Summary> {
    let ratios: Vec<_> = above.iter().zip(below).map(|(a, b)| Some((*a)? / (*b)?)).collect();
    summary(&ratios)
}

impl BenchRow {
    /// Returns the index of the best peer (other MPI), and the ratio Outboard / peer. None without peers.
    fn best_peer(&self) -> Option<(usize, Summary)> {
        let ratios =
            (1..self.values.len()).filter_map(|at| Some((at, paired(&self.values[0], &self.values[at])?)));
        let worse = |a: Summary, b: Summary| {
            if self.measure.higher { a.median < b.median } else { a.median > b.median }
        };
        ratios.reduce(|best, next| if worse(next.1, best.1) { next } else { best })
    }

    /// Returns Outboard's values divided by those of the best peer (other MPI). None if no peer has values.
    pub fn ratio(&self) -> Option<Summary> {
        Some(self.best_peer()?.1)
    }

    /// Returns the values of the limits (lower bounds) that count, which have no brackets in the table.
    fn binding(&self) -> impl Iterator<Item = &Vec<Option<f64>>> {
        let limits = self.measure.limits.keys().zip(&self.limits);
        limits.filter_map(|(name, values)| (!self.measure.beside.contains(name)).then_some(values))
    }

    /// Returns `ratio` as a speed-up: 2 if Outboard takes half the time, or moves twice the bytes per second.
    pub fn times(&self) -> Option<Summary> {
        let ratio = self.ratio()?;
        Some(Summary { median: self.as_times(ratio.median), ..ratio })
    }

    fn as_times(&self, ratio: f64) -> f64 {
        if self.measure.higher { ratio } else { ratio.recip() }
    }

    /// Returns the words that follow the number which `times` returns, such as "times faster".
    pub fn gain(&self) -> &'static str {
        match self.measure.unit.as_str() {
            "us" | "ms" | "s" | "MB/s" | "/s" => "times faster",
            _ if self.measure.higher => "times as much",
            _ => "times less",
        }
    }

    /// Returns the speed of Outboard / that of the best limit (lower bound for any MPI). None without limits.
    pub fn reached(&self) -> Option<f64> {
        let part = |limit: &Vec<Option<f64>>| {
            let (ours, limit) = (&self.values[0][..], &limit[..]);
            Some(if self.measure.higher { paired(ours, limit)? } else { paired(limit, ours)? }.median)
        };
        self.binding().filter_map(part).min_by(f64::total_cmp)
    }

    pub fn goal(&self) -> Option<f64> {
        self.measure.goals.get(&self.bytes.to_string()).copied()
    }

    fn meets(&self, ratio: f64) -> Option<bool> {
        let goal = self.goal()?;
        Some(if self.measure.higher { ratio >= goal } else { ratio <= goal })
    }

    /// Whether Outboard meets the goal; a failed run of Outboard misses it. None if there is no goal, if no
    /// peer has values, or if too few rounds ran or the machine was busy.
    pub fn is_met(&self) -> Option<bool> {
        self.values[1..].iter().find_map(|values| summary(values)).filter(|_| self.has_verdict)?;
        self.ratio().map_or(self.goal().map(|_| false), |ratio| self.meets(ratio.median))
    }

    /// Returns the ratio of the best limit (a lower bound for any MPI) to the best peer, if this ratio misses
    /// the goal, too. Returns None otherwise, or if Outboard or the peer beats the limit by a tenth.
    pub fn limit_in_the_way(&self) -> Option<f64> {
        let peer = &self.values[self.best_peer()?.0];
        let ratios = self.binding().filter_map(|limit| Some(paired(limit, peer)?.median));
        let best = ratios.reduce(if self.measure.higher { f64::max } else { f64::min })?;
        let slower_than_peer = if self.measure.higher { best.recip() } else { best };
        let is_limit = slower_than_peer <= 1.1 && self.reached().is_some_and(|part| part <= 1.1);
        (is_limit && self.is_met() == Some(false) && self.meets(best) == Some(false)).then_some(best)
    }

    /// Returns the goal and whether it is met, as text. Empty if there is no goal or this is not known.
    pub fn verdict(&self) -> String {
        let (Some(goal), Some(met)) = (self.goal(), self.is_met()) else {
            return String::new();
        };
        let word = if met { "met" } else { "MISS" };
        let limit = self
            .limit_in_the_way()
            .map(|ratio| format!("; the limit itself: {}", factor(self.as_times(ratio))));
        format!("{word} (goal {}{})", factor(self.as_times(goal)), limit.unwrap_or_default())
    }

    /// Returns `reached` as text in percent, "beaten" above 110 %, or an empty text if there is no limit.
    pub fn reached_in_words(&self) -> String {
        match self.reached() {
            None => String::new(),
            Some(part) if part > 1.1 => "beaten".into(),
            Some(part) => format!("{:.0} %", 100.0 * part),
        }
    }

    /// Returns the text that is shown in place of a value that an MPI does not have.
    pub fn missing(&self) -> &'static str {
        if self.measure.run.is_empty() { "-" } else { "failed" }
    }
}

/// Returns a number as text with about three significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Returns a speed-up as text with three significant digits.
pub fn factor(times: f64) -> String {
    match times {
        t if t >= 99.95 => format!("{t:.0}"),
        t if t >= 9.995 => format!("{t:.1}"),
        t if t >= 0.0995 => format!("{t:.2}"),
        t => format!("{t:.2e}"),
    }
}

/// Returns a message size as text with its unit, such as `4 KiB`. Empty for 0.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => String::new(),
    }
}

/// Returns the first cell of a row as text: the message size or, if `by` is a noun, `number` and that noun.
pub fn of(measure: &Measure, number: u64) -> String {
    if measure.by.is_empty() { size(number) } else { format!("{number} {}", measure.by) }
}

/// Returns the number of rounds as text, such as `5 rounds`.
pub fn rounds(table: &BenchTable) -> String {
    format!("{} round{}", table.rounds, if table.rounds == 1 { "" } else { "s" })
}

/// Returns the spread of a summary, (greatest - least) / median, in percent. Empty if it has none.
pub fn spread(summary: Summary) -> String {
    summary.spread.map_or_else(String::new, |spread| format!("\u{b1}{:.0} %", 100.0 * spread))
}

/// The place (heading) of a file of results that names no place.
pub const ONE_HOST: &str = "On one host";

/// The sentences above a table that say how to read its columns.
pub const LEGEND: &str = "Medians of interleaved rounds; \u{b1} is their spread, (greatest - least) / median. Times faster: the best peer's time over \
    ours in the same round (where higher is better, ours over its), so 2 is twice as fast and 0.5 half as fast. Limits are bare loops (bench/limits.c) \
    in the same rounds, or, of device memory, the same test in the host's; reached: how much of the best limit we reach. Limits in brackets are out of reach for any message-passing library: they need \
    memory that both processes have mapped. A goal is what Outboard set itself to reach against the best peer (measures.toml); a goal that \
    even the limit misses says so.";

/// Returns all results as text for the terminal.
pub fn text(table: &BenchTable) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments| writeln!(text, "{words}").expect("a String takes all");
    let place = &table.conditions.place;
    line(format_args!("{place}. {}\n{}. {}. {LEGEND}", conditions(table), versions(table), rounds(table)));
    for rows in table.rows.chunk_by(|a, b| a.measure.name == b.measure.name) {
        let measure = &rows[0].measure;
        let direction = if measure.higher { "higher is better" } else { "lower is better" };
        line(format_args!("\n{} ({}, {} ranks, {direction})", measure.name, measure.unit, measure.ranks));
        let wide = |name: &str| name.chars().count().max(17) + 2;
        let limits: String =
            measure.limit_names().map(|name| format!("{name:>wide$}", wide = wide(&name))).collect();
        let names: String = table.players.iter().map(|(name, _)| format!("{name:>19}")).collect();
        let reached = if limits.is_empty() { "" } else { "  reached" };
        line(format_args!("{:>10}{names}{:>16}{limits}{reached}  goal", measure.varies(), rows[0].gain()));
        for row in rows {
            let cell = |values: &[Option<f64>], missing: &str| match summary(values) {
                Some(s) => format!("{:>12}{:>7}", number(s.median), spread(s)),
                None => format!("{missing:>19}"),
            };
            let cells: String = row.values.iter().map(|values| cell(values, row.missing())).collect();
            let limits: String = measure
                .limit_names()
                .zip(&row.limits)
                .map(|(name, values)| format!("{:>wide$}", cell(values, "-"), wide = wide(&name)))
                .collect();
            let times = row.times().map(|s| format!("{}{:>7}", factor(s.median), spread(s)));
            let times = times.unwrap_or_else(|| "-".into());
            let reached =
                if reached.is_empty() { String::new() } else { format!("{:>9}", row.reached_in_words()) };
            line(format_args!(
                "{:>10}{cells}{times:>16}{limits}{reached}  {}",
                of(measure, row.bytes),
                row.verdict()
            ));
        }
    }
    if let Some(why) = table.no_verdicts() {
        line(format_args!("\nno verdicts: {why}"));
    }
    if let Some(goals) = tally(table) {
        line(format_args!("\n{goals}"));
    }
    for (what, output) in &table.failures {
        line(format_args!("\nfailed: {what}\n{output}"));
    }
    text
}

/// Returns a sentence that says how many goals are met. None if that is known of no goal.
pub fn tally(table: &BenchTable) -> Option<String> {
    let has_verdict: Vec<&BenchRow> = table.rows.iter().filter(|row| row.is_met().is_some()).collect();
    let met = has_verdict.iter().filter(|row| row.is_met() == Some(true)).count();
    let limited = has_verdict.iter().filter(|row| row.limit_in_the_way().is_some()).count();
    let limited = if limited > 0 {
        format!("; of {limited} others the limit itself is in the way")
    } else {
        String::new()
    };
    (!has_verdict.is_empty()).then(|| format!("{met} of {} goals met{limited}", has_verdict.len()))
}

/// Returns everything that was measured, with the value of every round, as JSON.
pub fn json(table: &BenchTable) -> String {
    let rows = table.rows.iter().map(|row| {
        let named = |(name, values): (&String, &Vec<Option<f64>>)| (name.clone(), json!(values));
        let names = table.players.iter().map(|player| &player.0);
        let players: Map<_, _> = names.zip(&row.values).map(named).collect();
        let limits: Map<_, _> = row.measure.limits.keys().zip(&row.limits).map(named).collect();
        json!({
            "measure": row.measure.name, "run": row.measure.run, "ranks": row.measure.ranks, "unit": row.measure.unit, "higher": row.measure.higher,
            "by": row.measure.by, "bytes": row.bytes, "values": players, "limits": limits,
            "ratio": row.ratio().map(|s| s.median), "spread": row.ratio().and_then(|s| s.spread), "goal": row.goal(), "met": row.is_met(),
        })
    });
    let text = |pairs: &[(String, String)]| -> Map<String, Value> {
        pairs.iter().map(|(key, value)| (key.clone(), json!(value))).collect()
    };
    let Conditions { place, machine, date, load, cores, steal_s } = &table.conditions;
    let all = json!({"place": place, "machine": machine, "date": date, "load": load, "cores": cores, "steal_s": steal_s, "rounds": table.rounds, "versions": text(&table.players),
        "rows": rows.collect::<Vec<_>>(), "failures": text(&table.failures)});
    format!("{all:#}\n")
}

/// Returns the table of results from JSON that `json` has made. Fails if a field is missing.
pub fn parse(text: &str) -> Result<BenchTable, String> {
    let all: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let word = |value: &Value, key: &str| value[key].as_str().map(str::to_owned).ok_or(format!("no {key}"));
    let pairs = |key: &str| -> Result<Vec<(String, String)>, String> {
        let object = all[key].as_object().ok_or(format!("no {key}"))?;
        Ok(object
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect())
    };
    let mut players = pairs("versions")?;
    players.sort_by_key(|(name, _)| name != "outboard");
    let conditions = Conditions {
        place: all["place"].as_str().unwrap_or(ONE_HOST).to_owned(),
        machine: word(&all, "machine")?,
        date: all["date"].as_str().map(str::to_owned),
        load: all["load"].as_f64(),
        cores: all["cores"].as_u64(),
        steal_s: all["steal_s"].as_f64(),
    };
    let rounds = all["rounds"].as_u64().ok_or("no rounds")? as u32;
    let mut table =
        BenchTable { players, rows: Vec::new(), failures: pairs("failures")?, rounds, conditions };
    let (has_verdict, known) = (table.no_verdicts().is_none(), measures());
    let values =
        |value: &Value| value.as_array().into_iter().flatten().map(Value::as_f64).collect::<Vec<_>>();
    for row in all["rows"].as_array().ok_or("no rows")? {
        let name = word(row, "measure")?;
        let known = known.iter().find(|measure| measure.name == name).cloned();
        let higher = known.as_ref().is_some_and(|measure| measure.higher);
        let bytes = row["bytes"].as_u64().ok_or("no bytes")?;
        let limits = row["limits"].as_object().ok_or("no limits")?;
        let measure = Measure {
            run: word(row, "run")?,
            ranks: row["ranks"].as_u64().unwrap_or(2) as u32,
            unit: word(row, "unit")?,
            higher: row["higher"].as_bool().unwrap_or(higher),
            // The goals and limits of that time are shown, whatever the table of measures contains now.
            goals: row["goal"].as_f64().map(|goal| (bytes.to_string(), goal)).into_iter().collect(),
            limits: limits.keys().map(|name| (name.clone(), String::new())).collect(),
            beside: known.map(|measure| measure.beside).unwrap_or_default(),
            by: row["by"].as_str().unwrap_or_default().to_owned(),
            column: WALL.into(),
            own: true,
            ..Measure::of(&name, "")
        };
        let of_players = table.players.iter().map(|(name, _)| values(&row["values"][name])).collect();
        let of_limits = measure.limits.keys().map(|name| values(&limits[name])).collect();
        table.rows.push(BenchRow { measure, bytes, values: of_players, limits: of_limits, has_verdict });
    }
    Ok(table)
}

/// Returns the names of the measured MPIs with their versions, as text.
pub fn versions(table: &BenchTable) -> String {
    table.players.iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>().join(", ")
}

/// Returns the sentences that say on which machine, when and under which load the values were measured.
pub fn conditions(table: &BenchTable) -> String {
    let Conditions { machine, date, load, steal_s, .. } = &table.conditions;
    let mut text = format!("{machine}.");
    let mut add = |words: std::fmt::Arguments| text.write_fmt(words).expect("a String takes all");
    if let Some(date) = date {
        add(format_args!(" {date}."));
    }
    match load {
        Some(load) => add(format_args!(" Load before it began: {load:.2}.")),
        None => add(format_args!(" The load before it began was not noted.")),
    }
    if let Some(steal) = steal_s {
        add(format_args!(" The hypervisor took {steal:.2} s."));
    }
    text
}

/// Returns this machine, the time and the load before a measurement; `device`: the device memory's kind.
pub fn here(device: Option<&str>) -> Conditions {
    let date = std::process::Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    let date = date.ok().map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    let load = std::fs::read_to_string("/proc/loadavg");
    let machine = match device.filter(|kind| *kind != "sentinel") {
        Some(_) => format!("{}, {}", machine(), devices().unwrap_or("a device of unknown name".into())),
        None => machine(),
    };
    Conditions {
        place: device.map_or(ONE_HOST.into(), |kind| format!("Device memory ({kind})")),
        machine,
        date: date.filter(|date| !date.is_empty()),
        load: load.ok().and_then(|text| text.split_whitespace().next()?.parse().ok()),
        cores: std::thread::available_parallelism().ok().map(|cores| cores.get() as u64),
        steal_s: None,
    }
}

/// Returns the processor, caches, memory and kernel of this machine as text.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let (cpus, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let model =
        cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let cores = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kib = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let cache = |level: u32| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{level}/size"));
    format!(
        "{}, {cores} cores (L2 {}, L3 {}), {} GiB of memory, Linux {}",
        model.unwrap_or("unknown processor"),
        cache(2),
        cache(3),
        kib.unwrap_or(0) >> 20,
        read("/proc/sys/kernel/osrelease")
    )
}

/// Returns the names that NVIDIA's driver gives to this machine's devices. None without that driver.
fn devices() -> Option<String> {
    let folders = std::fs::read_dir("/proc/driver/nvidia/gpus").ok()?.flatten();
    let model = |folder: std::fs::DirEntry| {
        let text = std::fs::read_to_string(folder.path().join("information")).ok()?;
        Some(text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim().to_owned())
    };
    let models: Vec<String> = folders.filter_map(model).collect();
    (!models.is_empty()).then(|| models.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::page;
    use super::*;

    fn some(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    fn table() -> BenchTable {
        let measure = measures().into_iter().find(|m| m.name == "latency").unwrap();
        let row = |bytes, ours: &[f64], a: Vec<Option<f64>>| BenchRow {
            measure: measure.clone(),
            bytes,
            values: vec![some(ours), a, some(&[2.0, 4.0, 4.0])],
            limits: vec![vec![None; 3], some(&[2.9, 2.9, 2.9]), some(&[3.5, 3.5, 3.5])],
            has_verdict: true,
        };
        let players = [("outboard", "1"), ("a", "2"), ("b", "3")];
        BenchTable {
            players: players.map(|(name, version)| (name.into(), version.into())).into(),
            rows: vec![
                row(8, &[1.0, 1.5, 1.1], some(&[2.0, 2.5, 1.0])),
                row(4096, &[3.0, 3.0, 3.2], vec![Some(1.0), None, None]),
            ],
            failures: vec![("latency with a".into(), "<boom>".into())],
            rounds: 5,
            conditions: Conditions {
                place: ONE_HOST.into(),
                machine: "a machine".into(),
                cores: Some(2),
                ..Conditions::default()
            },
        }
    }

    fn html(table: &BenchTable) -> Result<String, String> {
        page::html(std::slice::from_ref(table))
    }

    #[test]
    fn ratios_are_against_the_best_peer() {
        let table = table();
        assert_eq!(summary(&some(&[4.0, 1.0])), Some(Summary { median: 2.5, spread: Some(1.2) }));
        let ratio = |row: &BenchRow| row.ratio().map(|s| s.median);
        assert_eq!(ratio(&table.rows[0]), Some(1.5 / 2.5));
        assert_eq!(table.rows[0].is_met(), Some(true));
        // A peer whose second run failed is not compared.
        assert_eq!(ratio(&table.rows[1]), Some(0.8));
        assert_eq!(table.rows[1].is_met(), Some(false));
    }

    #[test]
    fn a_miss_tells_whether_the_limit_is_in_the_way() {
        let mut table = table();
        assert_eq!(table.rows[0].limit_in_the_way(), None);
        assert_eq!(table.rows[1].verdict(), "MISS (goal 1.43; the limit itself: 1.38)");
        assert_eq!(table.rows[1].reached(), Some(2.9 / 3.0));
        assert_eq!(tally(&table).unwrap(), "1 of 2 goals met; of 1 others the limit itself is in the way");
        assert_eq!(table.rows[1].measure.beside, ["one copy"], "the first of its limits");
        table.rows[1].limits[0] = some(&[1.0, 1.0, 1.0]);
        assert!(table.rows[1].limit_in_the_way().is_some(), "a limit that is out of reach is not counted");
        table.rows[1].limits[1] = some(&[3.4, 3.4, 3.4]);
        assert_eq!(table.rows[1].limit_in_the_way(), None, "we are faster than it");
        table.rows[1].limits[1] = some(&[1.0, 1.0, 1.0]);
        assert_eq!(table.rows[1].verdict(), "MISS (goal 1.43)");
        table.rows[1].values[0] = some(&[4.5; 3]);
        (table.rows[1].limits[1], table.rows[1].limits[2]) = (some(&[4.2; 3]), some(&[5.0; 3]));
        assert_eq!(table.rows[1].verdict(), "MISS (goal 1.43; the limit itself: 0.95)");
        table.rows[1].limits[1] = some(&[4.6; 3]);
        assert_eq!(table.rows[1].limit_in_the_way(), None, "the peer is faster than it");
    }

    #[test]
    fn every_form_tells_failures() {
        let table = table();
        let text = text(&table);
        assert!(
            text.contains("1 of 2 goals met") && text.contains("failed: latency with a\n<boom>"),
            "{text}"
        );
        assert!(
            text.contains("  two copies  two copies, short cells  reached"),
            "headings do not touch: {text}"
        );
        let page = html(&table).unwrap();
        assert!(page.contains("<svg") && page.contains("&lt;boom&gt;"), "{page}");
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http") && !outside.contains("src="), "the page needs no network: {page}");
        let json: Value = serde_json::from_str(&json(&table)).unwrap();
        assert_eq!(json["rows"][1]["values"]["a"], json!([1.0, null, null]));
    }

    #[test]
    fn a_table_comes_back_from_its_json() {
        let mut table = table();
        table.conditions.date = Some("today".into());
        table.conditions.steal_s = Some(0.5);
        let again = parse(&json(&table)).unwrap();
        assert_eq!(json(&again), json(&table));
        assert_eq!(html(&again).unwrap(), html(&table).unwrap());
        assert_eq!(again.rows[1].verdict(), table.rows[1].verdict());
        assert!(parse("{}").is_err() && parse("x").is_err());
    }

    #[test]
    fn figures_are_words_that_mean_something() {
        assert_eq!(
            [8, 1024, 1 << 20, 3 << 20, 1500, 0].map(size),
            ["8 B", "1 KiB", "1 MiB", "3 MiB", "1500 B", ""]
        );
        assert_eq!([0.004, 0.5, 1.0, 28.84, 250.4].map(factor), ["4.00e-3", "0.50", "1.00", "28.8", "250"]);
        let mut table = table();
        // One round has no spread, and a loop that takes 100 times as long is no limit.
        table.rounds = 1;
        for row in &mut table.rows {
            row.values.iter_mut().chain(&mut row.limits).for_each(|values| values.truncate(1));
            row.limits[1] = some(&[290.0]);
            row.limits[2] = some(&[350.0]);
        }
        let page = html(&table).unwrap();
        let shown = &page[page.find("<h1>").unwrap()..];
        for text in [text(&table).as_str(), shown] {
            for wanted in ["1 round.", "beaten", "4 KiB", "o verdicts: 1 round is fewer than 5"] {
                assert!(text.contains(wanted), "no {wanted} in {text}");
            }
            for wrong in ["1 rounds", "\u{b1}0 %", "000 %", "4096"] {
                assert!(!text.contains(wrong), "{wrong} in {text}");
            }
        }
    }

    #[test]
    fn without_enough_rounds_or_cores_there_are_no_verdicts() {
        let table = table();
        assert!(html(&table).unwrap().contains("MISS"));
        for (rounds, load, why) in
            [(4, 0.1, "4 rounds are fewer than 5"), (5, 0.7, "the load was 0.7 on 2 processors")]
        {
            let mut shown: Value = serde_json::from_str(&json(&table)).unwrap();
            (shown["rounds"], shown["load"]) = (json!(rounds), json!(load));
            let table = parse(&shown.to_string()).unwrap();
            for text in [text(&table), html(&table).unwrap()] {
                assert!(
                    text.contains(why) && !text.contains("MISS") && !text.contains("goals met"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn sections_have_tables_of_their_own_and_rows_by_ranks() {
        let (one, mut hosts) = (table(), table());
        hosts.conditions.place = "Between <hosts>".into();
        hosts.rows.iter_mut().for_each(|row| row.measure.by = "ranks".into());
        let again = parse(&json(&hosts)).unwrap();
        let page = page::html(&[one, again]).unwrap();
        for wanted in [
            "<a href=#s1>Between &lt;hosts&gt;</a>",
            "<h2 id=s0>On one host</h2>",
            "<h2 id=s1>Between &lt;hosts&gt;</h2>",
            "<a href=#m1-0>latency</a><td>4096 ranks",
            "<th>ranks",
            "<h3 id=m1-0>",
        ] {
            assert!(page.contains(wanted), "no {wanted:?} in {page}");
        }
        assert_eq!(page.matches("Medians of interleaved rounds").count(), 1);
        assert!(!html(&table()).unwrap().contains("<nav>"), "one section needs no list of them");
        assert!(text(&hosts).contains("8 ranks") && text(&hosts).starts_with("Between <hosts>. a machine"));
    }

    #[test]
    fn the_page_says_under_which_conditions_and_names_lines_outside_the_plots() {
        let mut table = table();
        table.conditions.load = Some(0.25);
        table.conditions.steal_s = Some(1.0);
        let page = html(&table).unwrap();
        for wanted in [
            "Load before it began: 0.25",
            "hypervisor took 1.00 s",
            "latency: us, lower is better",
            "width=device-width",
            "prefers-color-scheme:dark",
            "<span class=ours>outboard 1</span>",
            "<span class=dashed>limits: (one copy);",
        ] {
            assert!(page.contains(wanted), "no {wanted:?} in {page}");
        }
        assert!(!page.contains("width=\"440\""), "the page's width decides");
    }
}
