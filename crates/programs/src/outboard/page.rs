// SPDX-License-Identifier: BSD-3-Clause
//! What the HTML pages of `outboard bench` and `outboard profile` have in common: each is one file that needs
//! no network, in the reader's light or dark theme, readable on a phone.

/// The style sheet in every page: the colours of both themes, and the style of text and tables.
const STYLE: &str = ":root{color-scheme:light dark;--ink:#1d1d1f;--paper:#fff;--weak:#66666b;--rule:#ddd;--box:#f3f3f5;--ours:#0b57d0;--a:#b8651b;\
--b:#2c8049;--c:#93489f;--d:#8a7a12;--limit:#767679;--met:#17692f;--miss:#b3261e}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e8ea;--paper:#16171a;--weak:#a0a0a8;--rule:#3a3b40;--box:#222328;--ours:#6aa5ff;--a:#e0a060;--b:#6fc08c;\
--c:#c795d6;--d:#d2c25a;--limit:#85858c;--met:#6fc98a;--miss:#ff8a80}}\
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:var(--ink);background:var(--paper)}\
h1{font-size:1.6em;margin:.2em 0}h2{font-size:1.2em;margin:2em 0 .3em}p{margin:.4em 0;max-width:60em}\
table{border-collapse:collapse;margin:.5em 0 1em}td,th{padding:.2em .6em;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}\
caption,th{font-weight:600}.scroll{overflow-x:auto}.n{text-align:left}.s{color:var(--weak)}code{overflow-wrap:anywhere}\
pre{background:var(--box);padding:.7em;overflow:auto}a{color:inherit}.bar{display:inline-block;height:.75em;background:var(--ours)}\
@media(max-width:40em){body{margin:1em auto;padding:0 .8em;font-size:14px}td,th{padding:.2em .4em}}";

/// Returns the start of an HTML page, up to its title. `style` is a style sheet for this page only.
pub fn head(title: &str, style: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{0}</title><style>{STYLE}{style}</style><h1>{0}</h1>\n",
        escaped(title)
    )
}

/// Returns text, escaped for HTML. It may also stand between double quotes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
