// SPDX-License-Identifier: BSD-3-Clause
//! The HTML page of a profile: a timeline, tables and heat maps. A heat map is a table, which screen readers
//! can read. Many ranks are shown in groups, and long lists end after the longest times; a sentence on the
//! page says so.

use std::fmt::Write;

use telemetry::Unit;
use telemetry::summary::spaced;

use super::super::explain::sites::Sites;
use super::super::page::{escaped, head};
use super::calls::{TraceParts, time};
use super::figures::{Figures, Late};
use super::timeline::{self, Groups};
use super::waits::{Wait, Why};

/// The most rows of a list on the page. The rows with the longest times are shown.
const ROWS_MAX: usize = 40;
/// The most groups of ranks for which the cells of a heat map show numbers, and not only colours.
const GROUPS_WITH_NUMBERS: usize = 8;

const STYLE: &str = ".cards{display:flex;flex-wrap:wrap;gap:.6em;margin:1em 0}.cards div{background:var(--box);padding:.5em .9em;flex:1 1 9em}\
.cards b{display:block;font-size:1.4em}.cards span{color:var(--weak);font-size:.9em}\
.heat td{background:color-mix(in srgb,var(--ours) calc(var(--h)*1%),var(--paper));border:1px solid var(--rule)}.heat .hot{color:var(--paper)}\
.heat th{color:var(--weak);font-weight:400;border:0}.small td{color:transparent!important;max-width:.9em;min-width:.9em;padding:0;overflow:hidden}\
.small th{font-size:.75em;padding:0 .4em}.small [scope=col]{writing-mode:vertical-rl;padding:.4em 0}.maps{display:flex;flex-wrap:wrap;gap:0 2.5em}.maps figure{margin:.5em 0;max-width:100%}\
.site{white-space:normal;min-width:9em;overflow-wrap:anywhere}\
@media(max-width:40em){.rows,.rows tbody{display:block}.rows .head{display:none}.rows tr{display:flex;flex-wrap:wrap;gap:0 .9em;padding:.3em 0;border-bottom:1px solid var(--rule)}\
.rows td,.rows th{border:0;padding:0;white-space:normal;text-align:left}.rows .bars{flex:1}.rows [data-l]::before{content:attr(data-l) \" \";color:var(--weak)}}";

/// Returns the whole page as HTML. `name` is the name of the trace file.
pub fn html(name: &str, figures: &Figures, parts: &TraceParts, waits: &[Wait]) -> String {
    let groups = Groups::of(figures.ranks.iter().map(|rank| rank.rank).collect());
    let mut sites = Sites::default();
    let mut page = head(&format!("Profile of {name}"), &(STYLE.to_string() + timeline::STYLE));
    page += &introduction(figures, &groups);
    page += &cards(figures);
    page += "<h2>Timeline</h2>\n";
    page += &timeline::html(parts, waits, &groups);
    page += &ranks(figures, &groups);
    page += &functions(figures, &mut sites);
    page += &traffic(figures, &groups);
    page += &waiting(figures, &groups);
    page += &late(figures, &mut sites);
    page + NOTES + "</html>\n"
}

const NOTES: &str = "<h2>How to read it</h2><p>Calls made by the library inside another call do not count. Time outside MPI is what lies between \
a rank's calls from its first to its last, MPI_Finalize left out, summed over its threads. A rank waits in a call until the last partner that the \
call needs has begun its part; each call has one such partner, so no time counts twice. A receive needs the send, of a partitioned message \
the last MPI_Pready; a broadcast its root, a reduction's root all others, a scan the lower ranks, a collective among neighbours its sources (also those that send it \
nothing), other collectives all members; MPI_Win_start the posts, MPI_Win_wait the completions, MPI_Win_lock who held the lock. Left out are whatever else \
an algorithm makes a rank wait for, rooted collectives of intercommunicators, MPI_Win_lock_all, and operations on windows, because a trace does not say \
who needs whom there. Collectives and windows are not in the matrix of messages. A trace costs time itself: short calls look longer than they are. \
Between hosts, times are exact to about half of a message's round trip. <code>outboard explain</code> tells who carried out each collective; \
ui.perfetto.dev shows each event of the trace.</p>\n";

fn introduction(figures: &Figures, groups: &Groups) -> String {
    let count = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let mut text = String::new();
    let mut add = |words: std::fmt::Arguments| text.write_fmt(words).expect("a String takes all");
    if !figures.command.is_empty() {
        add(format_args!("<p><code>{}</code></p>", escaped(&figures.command)));
    }
    add(format_args!(
        "<p>{}, {}, {} events",
        count(figures.ranks.len(), "rank"),
        count(figures.hosts.len().max(1), "host"),
        figures.events
    ));
    if !figures.version.is_empty() {
        add(format_args!("; Outboard {}", escaped(&figures.version)));
    }
    add(format_args!(".</p>"));
    if let Some(first) = figures.cut_off.first() {
        add(format_args!(
            "<p><b>The trace of {} ends before MPI_Finalize, the first of them rank {first}</b>: the program ended there, or \
             OUTBOARD_TRACE_EVENTS_MAX was reached. What came later is not in these figures.</p>",
            count(figures.cut_off.len(), "rank")
        ));
    }
    if groups.size > 1 {
        add(format_args!(
            "<p>The timeline, the bars and the heat maps take {} ranks together; the lists have single ranks.</p>",
            groups.size
        ));
    }
    text + "\n"
}

/// Returns the figures at the top of the page as HTML. Among them are the efficiencies of the POP project:
/// parallel efficiency is the product of load balance and communication efficiency.
fn cards(figures: &Figures) -> String {
    let (mean, most) = figures.outside_us();
    let whole = figures.ranks.iter().map(|rank| rank.in_mpi_us + rank.outside_us).fold(0.0, f64::max);
    let percent = |part: f64, of: f64| format!("{:.0} %", 100.0 * part / of.max(1e-3));
    let waited: f64 = figures.ranks.iter().map(|rank| rank.waited_us).sum();
    let inside: f64 = figures.ranks.iter().map(|rank| rank.in_mpi_us).sum();
    let cards = [
        (time(figures.lasted_us), "from the first event to the last"),
        (percent(mean, whole), "parallel efficiency: mean time outside MPI, of the longest rank's time"),
        (percent(mean, most), "load balance: mean time outside MPI, of the greatest"),
        (
            percent(most, whole),
            "communication efficiency: greatest time outside MPI, of the longest rank's time",
        ),
        (percent(waited, inside), "of the time in MPI: a partner had not begun"),
    ];
    let card = |(figure, what): &(String, &str)| format!("<div><b>{figure}</b><span>{what}</span></div>");
    format!("<div class=cards>{}</div>\n", cards.iter().map(card).collect::<String>())
}

/// Returns an HTML table that shows how each rank spent its time. With groups of ranks it shows the mean of
/// each group.
fn ranks(figures: &Figures, groups: &Groups) -> String {
    let mut sums = vec![[0.0; 4]; groups.count()];
    for rank in &figures.ranks {
        let sum = &mut sums[groups.index(rank.rank)];
        let of_rank = [rank.outside_us, rank.in_mpi_us - rank.waited_us, rank.waited_us, 1.0];
        sum.iter_mut().zip(of_rank).for_each(|(sum, value)| *sum += value);
    }
    let means: Vec<[f64; 3]> = sums.iter().map(|[a, b, c, n]| [a / n, b / n, c / n]).collect();
    let most = means.iter().map(|it| it.iter().sum::<f64>()).fold(1e-3, f64::max);
    let row = |(at, mean): (usize, &[f64; 3])| {
        let bar = |class: &str, us: f64| {
            format!("<i class=\"bar {class}\" style=\"width:{:.1}%\"></i>", 100.0 * us / most)
        };
        let [outside, moving, waited] = *mean;
        format!(
            "<tr><th scope=row>{}<td class=\"n bars\">{}{}{}<td data-l=\"outside MPI\">{}<td data-l=\"in MPI, not waiting\">{}<td data-l=\"waiting in MPI\">{}</tr>",
            groups.label(at),
            bar("outside", outside),
            bar("", moving),
            bar("late", waited),
            time(outside),
            time(moving),
            time(waited)
        )
    };
    format!(
        "<h2>Time of each rank</h2><div class=scroll><table class=\"wide rows\"><tr class=head><th>rank<th><th>outside MPI<th>in MPI, not waiting<th>waiting in MPI</tr>{}</table></div>\n",
        means.iter().enumerate().map(row).collect::<String>()
    )
}

fn functions(figures: &Figures, sites: &mut Sites) -> String {
    let all: f64 = figures.functions.iter().map(|row| row.us).sum();
    let mut rows = String::new();
    for row in figures.functions.iter().take(ROWS_MAX) {
        let share = 100.0 * row.us / all.max(1e-3);
        let bytes = if row.bytes == 0 { String::new() } else { spaced(row.bytes, Unit::Bytes) };
        write!(
            rows,
            "<tr><td class=n>{}<td class=\"n site\">{}<td data-l=calls>{}<td data-l=ranks>{}<td data-l=time>{}<td data-l=\"of all MPI\">{share:.1} %<td data-l=mean>{}\
             <td data-l=longest>{}<td data-l=\"of a rank\">{} to {}<td{}>{bytes}</tr>",
            escaped(&row.function),
            escaped(&sites.find(&row.site).to_string()),
            row.calls,
            row.ranks,
            time(row.us),
            time(row.us / row.calls as f64),
            time(row.longest_us),
            time(row.least_us),
            time(row.most_us),
            if bytes.is_empty() { "" } else { " data-l=bytes" },
        )
        .expect("a String takes all");
    }
    format!(
        "<h2>Functions and call sites</h2><div class=scroll><table class=rows><tr class=head><th class=n>function<th class=n>call site<th>calls<th>ranks<th>time<th>of all MPI\
         <th>mean<th>longest<th>least to most of a rank<th>bytes</tr>{rows}</table></div>{}\n",
        left_out(figures.functions.iter().map(|row| row.us))
    )
}

/// Returns a sentence that says how many rows a list leaves out, and how much time they have together.
fn left_out(times: impl Iterator<Item = f64>) -> String {
    let rest: Vec<f64> = times.skip(ROWS_MAX).collect();
    match rest.len() {
        0 => String::new(),
        count => {
            format!("<p class=s>{count} more rows are left out: {} in all.</p>", time(rest.iter().sum()))
        }
    }
}

fn traffic(figures: &Figures, groups: &Groups) -> String {
    let mut cells = vec![[0_u64; 2]; groups.count() * groups.count()];
    let mut strangers = 0;
    for pair in &figures.traffic {
        match groups.find(pair.from).zip(groups.find(pair.to)) {
            Some((from, to)) => {
                let cell = &mut cells[from * groups.count() + to];
                *cell = [cell[0].saturating_add(pair.bytes), cell[1] + pair.messages];
            }
            None => strangers += pair.messages,
        }
    }
    if figures.traffic.is_empty() {
        return "<h2>Messages</h2><p>The ranks sent no messages.</p>\n".into();
    }
    let column = |at: usize| cells.iter().map(|cell| cell[at] as f64).collect::<Vec<_>>();
    let maps = [
        heat("Bytes sent; rows: sender, columns: receiver", groups, &column(0), |value| {
            spaced(value as u64, Unit::Bytes)
        }),
        heat("Messages sent", groups, &column(1), |value| format!("{value}")),
    ];
    let outside = match strangers {
        0 => String::new(),
        count => format!("<p class=s>{count} messages to ranks that are not in this trace are left out.</p>"),
    };
    format!("<h2>Messages</h2><div class=maps>{}</div>{outside}\n", maps.concat())
}

fn waiting(figures: &Figures, groups: &Groups) -> String {
    if figures.waits.is_empty() {
        return "<h2>Who waits for whom</h2><p>No call waited for a partner that had not begun.</p>\n".into();
    }
    let mut cells = vec![0.0; groups.count() * groups.count()];
    for pair in &figures.waits {
        cells[groups.index(pair.rank) * groups.count() + groups.index(pair.late)] += pair.us;
    }
    let map = heat("Time waited; rows: who waits, columns: who is late", groups, &cells, time);
    format!("<h2>Who waits for whom</h2><div class=maps>{map}</div>\n")
}

/// Returns a heat map as HTML: a table with a cell for each pair of groups, coloured by the logarithm of its
/// value.
fn heat(caption: &str, groups: &Groups, cells: &[f64], text: impl Fn(f64) -> String) -> String {
    let count = groups.count();
    let positive = || cells.iter().copied().filter(|value| *value > 0.0);
    let (least, most) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
    let heat = |value: f64| match most > least {
        true => 15.0 + 80.0 * (value / least).ln() / (most / least).ln(),
        false => 70.0,
    };
    let heads: String = (0..count).map(|at| format!("<th scope=col>{}", groups.label(at))).collect();
    let mut rows = String::new();
    for (at, row) in cells.chunks(count).enumerate() {
        write!(rows, "<tr><th scope=row>{}", groups.label(at)).expect("a String takes all");
        for &value in row {
            let cell = match value > 0.0 {
                true => {
                    let heat = heat(value);
                    let class = if heat > 70.0 { " class=hot" } else { "" };
                    format!("<td{class} style=\"--h:{heat:.0}\">{}", text(value))
                }
                false => "<td style=\"--h:0\">".into(),
            };
            rows += &cell;
        }
        rows += "</tr>";
    }
    let class = if count > GROUPS_WITH_NUMBERS { "heat small" } else { "heat" };
    let range = if most > least { format!("{} to {}", text(least), text(most)) } else { text(most) };
    format!(
        "<figure><figcaption>{caption}<br><span class=s>{range}, colours by logarithm</span></figcaption><div class=scroll><table class=\"{class}\" aria-label=\"{caption}\">\
         <tr><td style=\"--h:0\">{heads}</tr>{rows}</table></div></figure>"
    )
}

fn late(figures: &Figures, sites: &mut Sites) -> String {
    if figures.late.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for row in figures.late.iter().take(ROWS_MAX) {
        let Late { why, late, rank, function, times, us, longest_us, .. } = row;
        let why = match why {
            Why::Sender => "late sender",
            Why::Receiver => "late receiver",
            Why::Collective => "late in a collective",
            Why::Target => "late post",
            Why::Origin => "late completion",
            Why::Holder => "held the lock",
        };
        let [late_site, site] =
            [&row.late_site, &row.site].map(|site| escaped(&sites.find(site).to_string()));
        write!(
            rows,
            "<tr><td class=n>{why}<td data-l=\"late: rank\">{late}<td class=\"n site\" data-l=at>{late_site}<td data-l=\"waiting: rank\">{rank}<td class=n data-l=in>{}\
             <td class=\"n site\" data-l=at>{site}<td data-l=times>{times}<td data-l=time>{}<td data-l=longest>{}</tr>",
            escaped(function),
            time(*us),
            time(*longest_us),
        )
        .expect("a String takes all");
    }
    format!(
        "<h2>Who was late, and where</h2><div class=scroll><table class=rows><tr class=head><th class=n>what<th>late rank<th class=n>began at<th>waiting rank<th class=n>in\
         <th class=n>call site<th>times<th>time<th>longest</tr>{rows}</table></div>{}\n",
        left_out(figures.late.iter().map(|row| row.us))
    )
}
