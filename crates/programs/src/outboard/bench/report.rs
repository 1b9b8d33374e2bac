//! What is shown: a table for the terminal, JSON, and a page with plots that needs no network.

use std::fmt::Write;

use plotters::prelude::*;
use serde_json::json;

use super::rounds::{Row, Table};

/// Middle value, and how far apart the values lie, relative to it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Summary {
    median: f64,
    /// (greatest - least) / median.
    spread: f64,
}

fn summary(values: &[f64]) -> Option<Summary> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, greatest) = (*sorted.first()?, *sorted.last()?);
    let half = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 };
    Some(Summary { median, spread: (greatest - least) / median })
}

impl Row {
    fn summaries(&self) -> Vec<Option<Summary>> {
        self.values.iter().map(|values| summary(values)).collect()
    }

    /// Our median over the best peer's median.
    fn ratio(&self) -> Option<f64> {
        let all = self.summaries();
        let ours = all.first().copied().flatten()?.median;
        let peers = all[1..].iter().flatten().map(|peer| peer.median);
        let best = if self.measure.higher { peers.fold(None, most) } else { peers.fold(None, least) }?;
        Some(ours / best)
    }

    fn goal(&self) -> Option<f64> {
        self.measure.goals.get(&self.bytes.to_string()).copied()
    }

    /// Whether the goal is met; nothing where there is none, or nobody to compare with.
    fn is_met(&self) -> Option<bool> {
        let (goal, ratio) = (self.goal()?, self.ratio()?);
        Some(if self.measure.higher { ratio >= goal } else { ratio <= goal })
    }

    fn verdict(&self) -> String {
        match (self.goal(), self.is_met()) {
            (Some(goal), Some(met)) => {
                let relation = if self.measure.higher { ">=" } else { "<=" };
                format!("{} {relation} {goal:.2}", if met { "met" } else { "MISS" })
            }
            _ => String::new(),
        }
    }
}

fn most(best: Option<f64>, value: f64) -> Option<f64> {
    Some(best.map_or(value, |best| best.max(value)))
}

fn least(best: Option<f64>, value: f64) -> Option<f64> {
    Some(best.map_or(value, |best| best.min(value)))
}

/// As few digits as tell values apart.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// The table for the terminal: medians, their spread in percent, the ratio and the goal.
pub fn text(table: &Table) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments| writeln!(text, "{words}").expect("a String takes all");
    let names: String = table.players.iter().map(|(name, _)| format!("{name:>18}")).collect();
    line(format_args!(
        "Medians of {} interleaved rounds, +- spread ((greatest - least) / median).",
        table.rounds
    ));
    let mut before = "";
    for row in &table.rows {
        if row.measure.name != before {
            before = &row.measure.name;
            let direction = if row.measure.higher { "higher is better" } else { "lower is better" };
            line(format_args!(
                "\n{} ({}, {} ranks, {direction})",
                before, row.measure.unit, row.measure.ranks
            ));
            line(format_args!("{:>10}{names}{:>9}  goal", "bytes", "ratio"));
        }
        let cell = |s: Option<Summary>| match s {
            Some(s) => format!("{:>11} +-{:>3.0}%", number(s.median), 100.0 * s.spread),
            None => format!("{:>18}", "failed"),
        };
        let cells: String = row.summaries().into_iter().map(cell).collect();
        let ratio = row.ratio().map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        line(format_args!("{:>10}{cells}{ratio:>9}  {}", row.bytes, row.verdict()));
    }
    let judged: Vec<bool> = table.rows.iter().filter_map(Row::is_met).collect();
    if !judged.is_empty() {
        let met = judged.iter().filter(|met| **met).count();
        line(format_args!("\n{met} of {} goals met (ratio: ours over the best peer's)", judged.len()));
    }
    for (what, output) in &table.failures {
        line(format_args!("\nfailed: {what}\n{output}"));
    }
    text
}

/// Everything that was measured, round by round.
pub fn json(table: &Table) -> String {
    let rows = table.rows.iter().map(|row| {
        let values = |(player, values): (&(String, String), &Vec<f64>)| (player.0.clone(), json!(values));
        let by_player: serde_json::Map<_, _> = table.players.iter().zip(&row.values).map(values).collect();
        json!({
            "measure": row.measure.name, "run": row.measure.run, "ranks": row.measure.ranks, "unit": row.measure.unit,
            "bytes": row.bytes, "values": by_player, "ratio": row.ratio(), "goal": row.goal(), "met": row.is_met(),
        })
    });
    let players: serde_json::Map<_, _> =
        table.players.iter().map(|(name, version)| (name.clone(), json!(version))).collect();
    let failures: serde_json::Map<_, _> =
        table.failures.iter().map(|(what, output)| (what.clone(), json!(output))).collect();
    let all = json!({"machine": machine(), "rounds": table.rounds, "versions": players,
        "rows": rows.collect::<Vec<_>>(), "failures": failures});
    format!("{all:#}\n")
}

/// What the numbers were taken on.
fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let cores = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, {cores} cores, Linux {}", model.unwrap_or("unknown processor"), kernel.trim())
}

const STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:70em;color:#222}\
table{border-collapse:collapse;margin:.5em 0 2em}td,th{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd}\
.met{color:#17692f}.miss{color:#b3261e;font-weight:bold}figure{margin:0}pre{background:#f5f5f5;padding:.7em;overflow:auto}";

/// One page with a table and plots for every measure.
pub fn html(table: &Table) -> Result<String, String> {
    let mut page = String::new();
    let mut add = |words: std::fmt::Arguments| page.write_fmt(words).expect("a String takes all");
    let versions: Vec<String> =
        table.players.iter().map(|(name, version)| format!("{name} {version}")).collect();
    add(format_args!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>outboard bench</title><style>{STYLE}</style>\
         <h1>outboard bench</h1><p>{}. {}. Medians of {} interleaved rounds; spread is (greatest - least) / median; \
         ratio is ours over the best peer's median.</p>",
        escaped(&machine()),
        escaped(&versions.join(", ")),
        table.rounds
    ));
    for rows in table.rows.chunk_by(|a, b| a.measure.name == b.measure.name) {
        let measure = &rows[0].measure;
        let names: String = table.players.iter().map(|(name, _)| format!("<th>{name}<th>spread")).collect();
        add(format_args!(
            "<h2>{}</h2><p><code>{}</code>, {} ranks, {}{}</p>",
            escaped(&measure.name),
            escaped(&measure.run),
            measure.ranks,
            escaped(&measure.unit),
            if measure.higher { ", higher is better" } else { ", lower is better" }
        ));
        if rows.len() > 1 {
            add(format_args!("<figure>{}</figure>", plot(table, rows)?));
        }
        add(format_args!("<table><tr><th>bytes{names}<th>ratio<th>goal</tr>"));
        for row in rows {
            let cell = |s: Option<Summary>| match s {
                Some(s) => format!("<td>{}<td>{:.0} %", number(s.median), 100.0 * s.spread),
                None => "<td>failed<td>".into(),
            };
            let cells: String = row.summaries().into_iter().map(cell).collect();
            let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let class = if row.is_met() == Some(false) { "miss" } else { "met" };
            add(format_args!(
                "<tr><td>{}{cells}<td>{ratio}<td class=\"{class}\">{}</tr>",
                row.bytes,
                escaped(&row.verdict())
            ));
        }
        add(format_args!("</table>"));
    }
    for (what, output) in &table.failures {
        add(format_args!("<h2>failed: {}</h2><pre>{}</pre>", escaped(what), escaped(output)));
    }
    add(format_args!("</html>\n"));
    Ok(page)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Medians against message sizes, both logarithmic, a line for each MPI.
fn plot(table: &Table, rows: &[Row]) -> Result<String, String> {
    const COLORS: [RGBColor; 4] =
        [RGBColor(20, 80, 200), RGBColor(200, 90, 20), RGBColor(40, 140, 70), RGBColor(140, 60, 150)];
    let points = |at: usize| {
        rows.iter().filter_map(move |row| Some((row.bytes as f64, summary(&row.values[at])?.median)))
    };
    let all: Vec<(f64, f64)> =
        (0..table.players.len()).flat_map(points).filter(|(x, y)| *x > 0.0 && *y > 0.0).collect();
    let (Some(&(x0, _)), Some(low), Some(high)) =
        (all.first(), all.iter().map(|p| p.1).fold(None, least), all.iter().map(|p| p.1).fold(None, most))
    else {
        return Ok(String::new());
    };
    let x1 = all.iter().map(|p| p.0).fold(x0, f64::max);
    let mut svg = String::new();
    let mut draw = || -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(&mut svg, (860, 360)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d((x0..x1 * 1.1).log_scale().base(2.0), (low * 0.8..high * 1.25).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("bytes")
            .y_desc(rows[0].measure.unit.clone())
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (at, (name, _)) in table.players.iter().enumerate() {
            let color = COLORS[at % COLORS.len()];
            let line = LineSeries::new(points(at).filter(|p| p.0 > 0.0), color.stroke_width(2)).point_size(3);
            chart
                .draw_series(line)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(TRANSPARENT)
            .draw()?;
        area.present()?;
        Ok(())
    };
    draw().map_err(|error| format!("cannot plot {}: {error}", rows[0].measure.name))?;
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::super::measures;
    use super::*;

    fn table() -> Table {
        let measure = measures().into_iter().find(|m| m.name == "latency").unwrap();
        let row = |bytes, ours: [f64; 3], theirs: Vec<f64>| Row {
            measure: measure.clone(),
            bytes,
            values: vec![ours.to_vec(), theirs, vec![2.0, 4.0]],
        };
        Table {
            players: vec![
                ("outboard".into(), "1".into()),
                ("a".into(), "2".into()),
                ("b".into(), "3".into()),
            ],
            rows: vec![row(8, [1.0, 1.5, 1.1], vec![2.0]), row(4096, [3.0, 3.0, 3.0], vec![])],
            failures: vec![("latency with a".into(), "<boom>".into())],
            rounds: 3,
        }
    }

    #[test]
    fn ratios_are_against_the_best_peer() {
        let table = table();
        assert_eq!(summary(&[4.0, 1.0]), Some(Summary { median: 2.5, spread: 1.2 }));
        assert_eq!(table.rows[0].ratio(), Some(1.1 / 2.0));
        assert_eq!(table.rows[0].is_met(), Some(true));
        assert_eq!(table.rows[1].ratio(), Some(1.0));
        assert_eq!(table.rows[1].is_met(), Some(false));
        assert_eq!(table.rows[1].verdict(), "MISS <= 0.70");
    }

    #[test]
    fn every_form_tells_failures() {
        let table = table();
        let text = text(&table);
        assert!(
            text.contains("1 of 2 goals met") && text.contains("failed: latency with a\n<boom>"),
            "{text}"
        );
        let page = html(&table).unwrap();
        assert!(
            page.contains("<svg") && page.contains("&lt;boom&gt;") && !page.contains("http://")
                || page.contains("www.w3.org"),
            "{page}"
        );
        let json: serde_json::Value = serde_json::from_str(&json(&table)).unwrap();
        assert_eq!(json["rows"][1]["values"]["a"], json!([]));
    }
}
