// SPDX-License-Identifier: BSD-3-Clause
//! The page: a table and plots for every measure, in one file that needs no network.

use std::fmt::Write;

use plotters::prelude::*;

use super::report::{LEGEND, conditions, number, paired, sum, summary};
use super::rounds::{Row, Table};

/// The colours of a plot are placeholders; the style replaces them by the theme's: Outboard strong, peers
/// weaker, limits dashed in one grey.
const STYLE: &str = ":root{color-scheme:light dark;--ink:#1d1d1f;--paper:#fff;--weak:#6b6b70;--rule:#ddd;--box:#f3f3f5;--ours:#0b57d0;--a:#d9822b;\
--b:#3d9a60;--c:#a05cb0;--limit:#8a8a90;--met:#17692f;--miss:#b3261e}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e8ea;--paper:#16171a;--weak:#a0a0a8;--rule:#3a3b40;--box:#222328;--ours:#6aa5ff;--a:#e0a060;--b:#6fc08c;\
--c:#c795d6;--limit:#85858c;--met:#6fc98a;--miss:#ff8a80}}\
body{font:15px system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:var(--ink);background:var(--paper)}\
table{border-collapse:collapse;margin:.5em 0 2em;white-space:nowrap}td,th{padding:.15em .7em;text-align:right;border-bottom:1px solid var(--rule)}\
.scroll{overflow-x:auto}.n{text-align:left}.s,.limit{color:var(--weak)}.met{color:var(--met)}.miss{color:var(--miss);font-weight:bold}\
figure{margin:0;display:flex;flex-wrap:wrap;gap:1em}svg{flex:1 1 320px;min-width:0;max-width:540px;height:auto}\
.legend{display:flex;flex-wrap:wrap;gap:.2em 1.4em;margin:.6em 0}.legend span::before{content:'';display:inline-block;width:1.8em;vertical-align:.25em;\
margin-right:.5em;border-top:2px solid var(--limit)}.legend .ours::before{border-top:4px solid var(--ours)}.legend .a::before{border-color:var(--a)}\
.legend .b::before{border-color:var(--b)}.legend .c::before{border-color:var(--c)}.legend .dashed::before{border-top-style:dashed}\
code{overflow-wrap:anywhere}pre{background:var(--box);padding:.7em;overflow:auto}svg text{fill:var(--ink);font-size:15px;font-family:system-ui,sans-serif}\
svg [stroke='#000000']{stroke:var(--ink)}svg [stroke='#0000F0']{stroke:var(--ours);stroke-width:4}svg [stroke='#0000F1']{stroke:var(--a)}\
svg [stroke='#0000F2']{stroke:var(--b)}svg [stroke='#0000F3']{stroke:var(--c)}svg [stroke='#0000F4']{stroke:var(--limit);stroke-dasharray:7 5}";

/// The placeholders of Outboard's line and of the peers' lines.
const PLAYERS: [RGBColor; 4] =
    [RGBColor(0, 0, 0xf0), RGBColor(0, 0, 0xf1), RGBColor(0, 0, 0xf2), RGBColor(0, 0, 0xf3)];
/// Their classes in the legend.
const CLASSES: [&str; 4] = ["ours", "a", "b", "c"];
/// The placeholder of the limits.
const LIMIT: RGBColor = RGBColor(0, 0, 0xf4);

/// The page as HTML.
pub fn html(table: &Table) -> Result<String, String> {
    let mut page = String::new();
    let mut add = |words: std::fmt::Arguments| page.write_fmt(words).expect("a String takes all");
    let versions: Vec<String> =
        table.players.iter().map(|(name, version)| format!("{name} {version}")).collect();
    add(format_args!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>outboard bench</title><style>{STYLE}</style><h1>outboard bench</h1><p>{}<p>{}. {} rounds. {LEGEND}</p>",
        escaped(&conditions(table)),
        escaped(&versions.join(", ")),
        table.rounds
    ));
    if let Some(why) = table.no_verdicts() {
        add(format_args!("<p><b>No verdicts: {}.</b>", escaped(&why)));
    }
    if let Some(sum) = sum(table) {
        add(format_args!("<p><b>{sum}.</b>{}", goals(table)));
    }
    for rows in table.rows.chunk_by(|a, b| a.measure.name == b.measure.name) {
        let measure = &rows[0].measure;
        add(format_args!(
            "<h2>{}: {}, {} is better</h2><p><code>{}</code>, {} ranks</p>",
            escaped(&measure.name),
            escaped(&measure.unit),
            better(rows),
            escaped(&measure.run),
            measure.ranks
        ));
        if rows.len() > 1 {
            add(format_args!("{}", legend(table, rows)));
            add(format_args!("<figure>{}{}</figure>", medians(table, rows)?, speed_up(table, rows)?));
        }
        add(format_args!("<div class=scroll>{}</div>", rows_as_html(table, rows)));
    }
    for (what, output) in &table.failures {
        add(format_args!("<h2>failed: {}</h2><pre>{}</pre>", escaped(what), escaped(output)));
    }
    add(format_args!("</html>\n"));
    Ok(page)
}

fn better(rows: &[Row]) -> &'static str {
    if rows[0].measure.higher { "higher" } else { "lower" }
}

/// The legend, outside the plots.
fn legend(table: &Table, rows: &[Row]) -> String {
    let players = table.players.iter().enumerate().map(|(at, (name, _))| {
        format!("<span class={}>{}</span>", CLASSES[at % CLASSES.len()], escaped(name))
    });
    let limits: Vec<String> = rows[0].measure.limit_names().map(|name| escaped(&name)).collect();
    let limits = match limits.is_empty() {
        true => String::new(),
        false => format!("<span class=dashed>limits: {}</span>", limits.join("; ")),
    };
    format!("<div class=legend>{}{limits}</div>", players.collect::<String>())
}

fn rows_as_html(table: &Table, rows: &[Row]) -> String {
    let measure = &rows[0].measure;
    let names: String =
        table.players.iter().map(|(name, _)| format!("<th>{}<th class=s>spread", escaped(name))).collect();
    let limits: String = measure
        .limit_names()
        .map(|name| format!("<th class=limit>{}<th class=s>spread", escaped(&name)))
        .collect();
    let reached = if measure.limits.is_empty() { "" } else { "<th>reached" };
    let mut html =
        format!("<table><tr><th>bytes{names}<th>ratio<th class=s>spread{limits}{reached}<th>goal</tr>");
    for row in rows {
        let cell = |class: &str, missing: &str, values: &[Option<f64>]| match summary(values) {
            Some(s) => format!("<td{class}>{}<td class=s>{:.0} %", number(s.median), 100.0 * s.spread),
            None => format!("<td{class}>{missing}<td>"),
        };
        let cells: String = row.values.iter().map(|values| cell("", row.missing(), values)).collect();
        let limits: String = row.limits.iter().map(|values| cell(" class=limit", "-", values)).collect();
        let ratio = row.ratio().map(|s| format!("{:.2}<td class=s>{:.0} %", s.median, 100.0 * s.spread));
        let reached = row.reached().map(|part| format!("<td>{:.0} %", 100.0 * part));
        let reached = reached.unwrap_or_else(|| if row.limits.is_empty() { "" } else { "<td>" }.into());
        html += &format!(
            "<tr><td>{}{cells}<td>{}{limits}{reached}<td class={}>{}</tr>",
            row.bytes,
            ratio.unwrap_or_else(|| "<td>".into()),
            if row.is_met() == Some(false) { "miss" } else { "met" },
            escaped(&row.verdict())
        );
    }
    html + "</table>"
}

/// All goals in one short table.
fn goals(table: &Table) -> String {
    let judged = table.rows.iter().filter(|row| row.is_met().is_some());
    let line = |row: &Row| {
        format!(
            "<tr><td class=n>{}<td>{}<td>{}<td class={}>{}<td class=n>{}, {} is better</tr>",
            escaped(&row.measure.name),
            row.bytes,
            row.ratio().map_or_else(|| "failed".into(), |ratio| format!("{:.2}", ratio.median)),
            if row.is_met() == Some(false) { "miss" } else { "met" },
            escaped(&row.verdict()),
            escaped(&row.measure.unit),
            better(std::slice::from_ref(row)),
        )
    };
    format!(
        "<div class=scroll><table><tr><th class=n>measure<th>bytes<th>ratio<th>goal<th class=n>unit</tr>{}</table></div>",
        judged.map(line).collect::<String>()
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A line of a plot: its placeholder colour and its points.
type Line = (RGBColor, Vec<(f64, f64)>);

/// Medians by message size, a line for each MPI and each limit.
fn medians(table: &Table, rows: &[Row]) -> Result<String, String> {
    let points = |values: &dyn Fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((row.bytes as f64, values(row)?))).collect()
    };
    let limits =
        (0..rows[0].limits.len()).map(|at| (LIMIT, points(&|row| Some(summary(&row.limits[at])?.median))));
    // Outboard last, above the others.
    let players = (0..table.players.len())
        .rev()
        .map(|at| (PLAYERS[at % PLAYERS.len()], points(&|row| Some(summary(&row.values[at])?.median))));
    let measure = &rows[0].measure;
    plot(
        &measure.name,
        &format!("{} ({} is better)", measure.unit, better(rows)),
        &limits.chain(players).collect::<Vec<_>>(),
    )
}

/// Outboard's ratio to each peer; more is better.
fn speed_up(table: &Table, rows: &[Row]) -> Result<String, String> {
    let times = |row: &Row, at: usize| {
        let ratio = paired(&row.values[at], &row.values[0])?.median;
        Some((row.bytes as f64, if row.measure.higher { 1.0 / ratio } else { ratio }))
    };
    let peers = (1..table.players.len())
        .map(|at| (PLAYERS[at % PLAYERS.len()], rows.iter().filter_map(|row| times(row, at)).collect()));
    let mut lines: Vec<Line> = peers.collect();
    if lines.is_empty() {
        return Ok(String::new());
    }
    lines.insert(0, (LIMIT, rows.iter().map(|row| (row.bytes as f64, 1.0)).collect()));
    plot(&rows[0].measure.name, "times as good (dashed: 1)", &lines)
}

/// A message size with a binary prefix.
fn short(bytes: f64) -> String {
    match bytes {
        b if b >= 1048576.0 => format!("{} Mi", (b / 1048576.0).round()),
        b if b >= 1024.0 => format!("{} Ki", (b / 1024.0).round()),
        b => format!("{}", b.round()),
    }
}

/// Both axes logarithmic.
fn plot(name: &str, unit: &str, lines: &[Line]) -> Result<String, String> {
    let all = || lines.iter().flat_map(|line| &line.1).copied().filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold(None, |range: Option<(f64, f64)>, v| {
            Some(range.map_or((v, v), |(a, b)| (a.min(v), b.max(v))))
        })
    };
    let (Some((x0, x1)), Some((low, high))) =
        (range(&mut all().map(|p| p.0)), range(&mut all().map(|p| p.1)))
    else {
        return Ok(String::new());
    };
    let mut svg = String::new();
    let mut draw = || -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(&mut svg, (440, 320)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(78)
            .build_cartesian_2d((x0..x1 * 1.1).log_scale().base(2.0), (low * 0.8..high * 1.25).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("bytes")
            .y_desc(unit)
            .x_label_formatter(&|bytes| short(*bytes))
            .y_label_formatter(&|value| format!("{}", (value * 1e4).round() / 1e4))
            .x_labels(6)
            .y_labels(6)
            .label_style(("sans-serif", 15))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (color, points) in lines {
            let points = points.iter().copied().filter(|p| p.0 > 0.0 && p.1 > 0.0);
            chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
        }
        area.present()?;
        Ok(())
    };
    draw().map_err(|error| format!("cannot plot {name}: {error}"))?;
    // A size in the head would override the page's width.
    Ok(svg.replacen("width=\"440\" height=\"320\" ", "", 1))
}
