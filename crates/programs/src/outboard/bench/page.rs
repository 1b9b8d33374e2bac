//! The page: a table and plots for every measure, in one file that needs no network.

use std::fmt::Write;

use plotters::prelude::*;

use super::report::{LEGEND, machine, number, paired, sum, summary};
use super::rounds::{Row, Table};

const STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:.5em 0 2em}td,th{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd}\
.s,.limit{color:#777}.met{color:#17692f}.miss{color:#b3261e;font-weight:bold}figure{margin:0;display:flex;flex-wrap:wrap}\
svg{max-width:100%;height:auto}pre{background:#f5f5f5;padding:.7em;overflow:auto}";

/// Lines in a plot, in this order.
const COLORS: [RGBColor; 4] =
    [RGBColor(20, 80, 200), RGBColor(200, 90, 20), RGBColor(40, 140, 70), RGBColor(140, 60, 150)];
const LIMIT_COLORS: [RGBColor; 3] = [RGBColor(120, 120, 120), RGBColor(170, 170, 170), RGBColor(80, 80, 80)];

/// The page as HTML.
pub fn html(table: &Table) -> Result<String, String> {
    let mut page = String::new();
    let mut add = |words: std::fmt::Arguments| page.write_fmt(words).expect("a String takes all");
    let versions: Vec<String> =
        table.players.iter().map(|(name, version)| format!("{name} {version}")).collect();
    add(format_args!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>outboard bench</title><style>{STYLE}</style>\
         <h1>outboard bench</h1><p>{}.<p>{}. {} rounds. {LEGEND}</p>",
        escaped(&machine()),
        escaped(&versions.join(", ")),
        table.rounds
    ));
    if let Some(sum) = sum(table) {
        add(format_args!("<p><b>{sum}.</b>{}", goals(table)));
    }
    for rows in table.rows.chunk_by(|a, b| a.measure.name == b.measure.name) {
        let measure = &rows[0].measure;
        add(format_args!("<h2>{}</h2><p><code>{}</code>", escaped(&measure.name), escaped(&measure.run)));
        let direction = if measure.higher { "higher" } else { "lower" };
        add(format_args!(", {} ranks, {}, {direction} is better</p>", measure.ranks, escaped(&measure.unit)));
        if rows.len() > 1 {
            add(format_args!("<figure>{}{}</figure>", medians(table, rows)?, speed_up(table, rows)?));
        }
        add(format_args!("{}", rows_as_html(table, rows)));
    }
    for (what, output) in &table.failures {
        add(format_args!("<h2>failed: {}</h2><pre>{}</pre>", escaped(what), escaped(output)));
    }
    add(format_args!("</html>\n"));
    Ok(page)
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
            "<tr><td>{}<td>{}<td>{}<td class={}>{}</tr>",
            escaped(&row.measure.name),
            row.bytes,
            row.ratio().map_or_else(|| "failed".into(), |ratio| format!("{:.2}", ratio.median)),
            if row.is_met() == Some(false) { "miss" } else { "met" },
            escaped(&row.verdict())
        )
    };
    format!(
        "<table><tr><th>measure<th>bytes<th>ratio<th>goal</tr>{}</table>",
        judged.map(line).collect::<String>()
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A line of a plot: its name, its colour and its points.
type Line<'a> = (&'a str, RGBColor, Vec<(f64, f64)>);

/// Medians against message sizes, a line for each MPI and each limit.
fn medians(table: &Table, rows: &[Row]) -> Result<String, String> {
    let points = |values: &dyn Fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((row.bytes as f64, values(row)?))).collect()
    };
    let players = table.players.iter().enumerate().map(|(at, (name, _))| {
        (name.as_str(), COLORS[at % COLORS.len()], points(&|row| Some(summary(&row.values[at])?.median)))
    });
    let limits = rows[0].measure.limits.keys().enumerate().map(|(at, name)| {
        let color = LIMIT_COLORS[at % LIMIT_COLORS.len()];
        (name.as_str(), color, points(&|row| Some(summary(&row.limits[at])?.median)))
    });
    plot(&rows[0].measure.name, &rows[0].measure.unit, &limits.chain(players).collect::<Vec<_>>())
}

/// How many times as good as each peer we are.
fn speed_up(table: &Table, rows: &[Row]) -> Result<String, String> {
    let times = |row: &Row, at: usize| {
        let ratio = paired(&row.values[at], &row.values[0])?.median;
        Some((row.bytes as f64, if row.measure.higher { 1.0 / ratio } else { ratio }))
    };
    let peers = table.players.iter().enumerate().skip(1).map(|(at, (name, _))| {
        (name.as_str(), COLORS[at % COLORS.len()], rows.iter().filter_map(|row| times(row, at)).collect())
    });
    let mut lines: Vec<Line> = peers.collect();
    if lines.is_empty() {
        return Ok(String::new());
    }
    let even = rows.iter().map(|row| (row.bytes as f64, 1.0)).collect();
    lines.insert(0, ("as fast", LIMIT_COLORS[1], even));
    plot(&rows[0].measure.name, "speed-up of outboard over", &lines)
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
    let all = || lines.iter().flat_map(|line| &line.2).copied().filter(|(x, y)| *x > 0.0 && *y > 0.0);
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
        let area = SVGBackend::with_string(&mut svg, (620, 360)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d((x0..x1 * 1.1).log_scale().base(2.0), (low * 0.8..high * 1.25).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("bytes")
            .y_desc(unit)
            .x_label_formatter(&|bytes| short(*bytes))
            .y_label_formatter(&|value| format!("{}", (value * 1e4).round() / 1e4))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (name, color, points) in lines {
            let points = points.iter().copied().filter(|p| p.0 > 0.0 && p.1 > 0.0);
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(2))?
                .label(*name)
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
    draw().map_err(|error| format!("cannot plot {name}: {error}"))?;
    Ok(svg)
}
