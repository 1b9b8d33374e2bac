// SPDX-License-Identifier: BSD-3-Clause
//! The HTML page of the results of `outboard bench`: a table and plots for every measure, in one file that
//! needs no network.

use std::fmt::Write;

use plotters::prelude::*;

use super::super::page::{escaped, head};
use super::measure::Measure;
use super::report::{LEGEND, conditions, factor, number, of, rounds, spread, summary, tally, versions};
use super::rounds::{BenchRow, BenchTable};

/// The style sheet of the page. It replaces the placeholder colours of plots by the theme's colours: Outboard
/// strong, peers weaker, limits dashed in grey. A bar is as long as the speed-up, up to 4; a mark stands at
/// 1.
const STYLE: &str = ".met{color:var(--met)}.miss{color:var(--miss);font-weight:bold}.limit{color:var(--weak)}\
.measure{display:flex;flex-wrap:wrap;gap:.5em 2em;align-items:flex-start}.measure>svg{flex:1 1 320px;min-width:0;max-width:560px;height:auto}\
.measure>table{flex:1 1 300px;font-size:13px;margin:0;line-height:1.1}.goals table{width:100%}.gain{width:40%;min-width:3.5em}.gain i{display:block;height:.8em;\
background:linear-gradient(90deg,transparent calc(25% - 1px),var(--ink) 0 25%,transparent 0)}.gain i::before{content:'';display:block;width:var(--w);height:100%;background:var(--ours);opacity:.75}\
.gain .slow::before{background:var(--miss)}.gain .more::before{background:linear-gradient(90deg,var(--ours) 92%,transparent)}.wrap,.measure th:not([scope]),.goals th{white-space:normal}.verdict{min-width:6.5em}\
h3{font-size:1.05em;margin:1.8em 0 .3em}nav{display:flex;flex-wrap:wrap;gap:.3em 1.4em;margin:.6em 0}\
@media(max-width:40em){.goals td,.goals th{padding:.2em .25em;font-size:13px}}\
details th{white-space:normal}summary{cursor:pointer;color:var(--weak);margin:.5em 0}details td:first-child,details th:first-child{position:sticky;left:0;background:var(--paper)}\
.legend{display:flex;flex-wrap:wrap;gap:.2em 1.4em;margin:.6em 0}.legend span::before{content:'';display:inline-block;width:1.8em;vertical-align:.25em;\
margin-right:.5em;border-top:2px solid var(--limit)}.legend .ours::before{border-top:4px solid var(--ours)}.legend .a::before{border-color:var(--a)}\
.legend .b::before{border-color:var(--b)}.legend .c::before{border-color:var(--c)}.legend .dashed::before{border-top-style:dashed}\
svg text{fill:var(--ink);font-size:15px;font-family:system-ui,sans-serif}\
svg [stroke='#000000']{stroke:var(--ink)}svg [stroke='#0000F0']{stroke:var(--ours);stroke-width:4}svg [stroke='#0000F1']{stroke:var(--a)}\
svg [stroke='#0000F2']{stroke:var(--b)}svg [stroke='#0000F3']{stroke:var(--c)}svg [stroke='#0000F4']{stroke:var(--limit);stroke-dasharray:7 5}";

/// The placeholder colours of the lines in a plot: first Outboard's, then one for each of three peers.
/// `STYLE` replaces them.
const PLAYERS: [RGBColor; 4] =
    [RGBColor(0, 0, 0xf0), RGBColor(0, 0, 0xf1), RGBColor(0, 0, 0xf2), RGBColor(0, 0, 0xf3)];
/// The CSS classes in the legend for Outboard's line and the peers' lines, in the order of `PLAYERS`.
const CLASSES: [&str; 4] = ["ours", "a", "b", "c"];
/// The placeholder colour of the lines for limits (lower bounds for any MPI). `STYLE` replaces it.
const LIMIT: RGBColor = RGBColor(0, 0, 0xf4);

/// Returns the page as HTML, with a section for each table of results.
pub fn html(tables: &[BenchTable]) -> Result<String, String> {
    let mut page = head("outboard bench", STYLE);
    if tables.len() > 1 {
        let link = |(at, table): (usize, &BenchTable)| {
            format!("<a href=#s{at}>{}</a>", escaped(&table.conditions.place))
        };
        page += &format!("<nav>{}</nav>", tables.iter().enumerate().map(link).collect::<String>());
    }
    page += &format!("<p>{LEGEND}</p>");
    for (at, table) in tables.iter().enumerate() {
        page += &section(at, table)?;
    }
    Ok(page + "</html>\n")
}

/// Returns the section of the page, as HTML, for one table of results: what was measured at one place and
/// time.
fn section(number: usize, table: &BenchTable) -> Result<String, String> {
    let mut page = String::new();
    let mut add = |words: std::fmt::Arguments| page.write_fmt(words).expect("a String takes all");
    add(format_args!(
        "<h2 id=s{number}>{}</h2><p>{}</p><p>{}. {}.</p>",
        escaped(&table.conditions.place),
        escaped(&conditions(table)),
        escaped(&versions(table)),
        rounds(table)
    ));
    if let Some(why) = table.no_verdicts() {
        add(format_args!("<p class=miss>No verdicts: {}.</p>", escaped(&why)));
    }
    if let Some(sentence) = tally(table) {
        add(format_args!("<h3>{sentence}</h3>{}", goals(number, table)));
    }
    for (at, rows) in table.rows.chunk_by(|a, b| a.measure.name == b.measure.name).enumerate() {
        let measure = &rows[0].measure;
        add(format_args!(
            "<h3 id=m{number}-{at}>{}: {}, {} is better</h3><p><code>{}</code>, {} ranks</p>",
            escaped(&measure.name),
            escaped(&measure.unit),
            better(rows),
            escaped(&measure.run),
            measure.ranks
        ));
        let (plot, open) = match rows.len() {
            1 => (String::new(), " open"),
            _ => (legend(table, rows) + "<div class=measure>" + &medians(table, rows)?, ""),
        };
        let plot = if plot.is_empty() { "<div class=measure>" } else { &plot };
        add(format_args!(
            "{plot}{}</div><details{open}><summary>All figures</summary>{}</details>",
            bars(rows),
            rows_as_html(table, rows)
        ));
    }
    for (what, output) in &table.failures {
        add(format_args!("<h3>failed: {}</h3><pre>{}</pre>", escaped(what), escaped(output)));
    }
    Ok(page)
}

fn better(rows: &[BenchRow]) -> &'static str {
    if rows[0].measure.higher { "higher" } else { "lower" }
}

/// Returns the legend of a plot as HTML: the colour and version of each MPI, and the names of the limits
/// (lower bounds for any MPI).
fn legend(table: &BenchTable, rows: &[BenchRow]) -> String {
    let players = table.players.iter().enumerate().map(|(at, (name, version))| {
        format!("<span class={}>{} {}</span>", CLASSES[at % CLASSES.len()], escaped(name), escaped(version))
    });
    let limits: Vec<String> = rows[0].measure.limit_names().map(|name| escaped(&name)).collect();
    let limits = match limits.is_empty() {
        true => String::new(),
        false => format!("<span class=dashed>limits: {}</span>", limits.join("; ")),
    };
    format!("<div class=legend>{}{limits}</div>", players.collect::<String>())
}

/// Returns an HTML table with a bar for the speed-up in each row with values of a peer. Empty if no row has
/// such values.
fn bars(rows: &[BenchRow]) -> String {
    let line = |row: &BenchRow| {
        Some(format!("<tr><th scope=row>{}{}</tr>", of(&row.measure, row.bytes), gain(row)?))
    };
    let lines: String = rows.iter().filter_map(line).collect();
    let goal = if rows.iter().any(|row| row.goal().is_some()) { "goal" } else { "" };
    match lines.is_empty() {
        true => lines,
        false => format!(
            "<table><tr><th>{}<th><th>{}<th class=n>{goal}</tr>{lines}</table>",
            rows[0].measure.varies(),
            rows[0].gain()
        ),
    }
}

/// Returns three HTML cells for one row: a bar as long as the speed-up, the speed-up as a number, and whether
/// the goal is met. None if no peer has a value.
fn gain(row: &BenchRow) -> Option<String> {
    let times = row.times()?.median;
    let class = match times {
        t if t < 1.0 => "slow",
        t if t > 4.0 => "more",
        _ => "",
    };
    let verdict = if row.is_met() == Some(false) { "miss" } else { "met" };
    Some(format!(
        "<td class=gain><i class=\"{class}\" style=\"--w:{:.0}%\"></i><td>{}<td class=\"n wrap verdict {verdict}\">{}",
        25.0 * times.min(4.0),
        factor(times),
        escaped(&row.verdict())
    ))
}

fn rows_as_html(table: &BenchTable, rows: &[BenchRow]) -> String {
    let measure = &rows[0].measure;
    let names: String = table.players.iter().map(|(name, _)| format!("<th>{}", escaped(name))).collect();
    let limits = measure.limit_names().map(|name| format!("<th class=limit>{}", escaped(&name)));
    let limits: String = limits.collect();
    let reached = if measure.limits.is_empty() { "" } else { "<th>reached" };
    let gain = if table.players.len() > 1 { format!("<th>{}", rows[0].gain()) } else { String::new() };
    let varies = measure.varies();
    let mut html = format!("<div class=scroll><table><tr><th>{varies}{names}{gain}{limits}{reached}</tr>");
    for row in rows {
        let cell = |class: &str, missing: &str, values: &[Option<f64>]| match summary(values) {
            Some(s) => format!("<td{class}>{} <span class=s>{}</span>", number(s.median), spread(s)),
            None => format!("<td{class}>{missing}"),
        };
        let cells: String = row.values.iter().map(|values| cell("", row.missing(), values)).collect();
        let limits: String = row.limits.iter().map(|values| cell(" class=limit", "-", values)).collect();
        let times =
            row.times().map(|s| format!("<td>{} <span class=s>{}</span>", factor(s.median), spread(s)));
        let times = times.unwrap_or_else(|| if gain.is_empty() { "" } else { "<td>" }.into());
        let reached = match reached {
            "" => String::new(),
            _ => format!("<td>{}", row.reached_in_words()),
        };
        html += &format!("<tr><td>{}{cells}{times}{limits}{reached}</tr>", of(&row.measure, row.bytes));
    }
    html + "</table></div>"
}

/// Returns one HTML table of all goals in a section of the page, each with a link to its measure.
fn goals(number: usize, table: &BenchTable) -> String {
    let chunks = table.rows.chunk_by(|a, b| a.measure.name == b.measure.name).enumerate();
    let all = chunks.flat_map(|(at, rows)| rows.iter().map(move |row| (at, row)));
    let line = |(at, row): (usize, &BenchRow)| {
        let gain = gain(row).unwrap_or_else(|| "<td><td>failed<td class=\"n verdict miss\">MISS".into());
        let (name, of) = (escaped(&row.measure.name), of(&row.measure, row.bytes));
        format!("<tr><td class=\"n wrap\"><a href=#m{number}-{at}>{name}</a><td>{of}{gain}</tr>")
    };
    format!(
        "<div class=\"scroll goals\"><table><tr><th class=n>measure<th>size<th><th>times better<th class=n>goal</tr>{}</table></div>",
        all.filter(|(_, row)| row.is_met().is_some()).map(line).collect::<String>()
    )
}

/// A line of a plot: its placeholder colour, and its points (message size, value).
type PlotLine = (RGBColor, Vec<(f64, f64)>);

/// Returns a plot of the medians over the message size as SVG. It has a line for each MPI and for each limit
/// (a lower bound for any MPI).
fn medians(table: &BenchTable, rows: &[BenchRow]) -> Result<String, String> {
    let points = |values: &dyn Fn(&BenchRow) -> Option<f64>| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((row.bytes as f64, values(row)?))).collect()
    };
    let limits =
        (0..rows[0].limits.len()).map(|at| (LIMIT, points(&|row| Some(summary(&row.limits[at])?.median))));
    // Outboard comes last, so that its line is above the others.
    let players = (0..table.players.len())
        .rev()
        .map(|at| (PLAYERS[at % PLAYERS.len()], points(&|row| Some(summary(&row.values[at])?.median))));
    let measure = &rows[0].measure;
    plot(
        measure,
        &format!("{} ({} is better)", measure.unit, better(rows)),
        &limits.chain(players).collect::<Vec<_>>(),
    )
}

/// Returns a plot of these lines with two logarithmic axes, as SVG. Empty if no line has a point.
fn plot(measure: &Measure, unit: &str, lines: &[PlotLine]) -> Result<String, String> {
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
            .x_desc(measure.varies())
            .y_desc(unit)
            .x_label_formatter(&|value| of(measure, value.round() as u64))
            .y_label_formatter(&|value| format!("{}", (value * 1e4).round() / 1e4))
            .x_labels(5)
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
    draw().map_err(|error| format!("cannot plot {}: {error}", measure.name))?;
    // A size in the head would override the page's width.
    Ok(svg.replacen("width=\"440\" height=\"320\" ", "", 1))
}
