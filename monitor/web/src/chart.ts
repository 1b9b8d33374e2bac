// The past of a port, or of a host's number, as a chart.
// SPDX-License-Identifier: BSD-3-Clause

import uPlot from "uplot";
import { get } from "./api";
import { element, exports, short } from "./dom";

interface History {
  step: number;
  /** Time, use sent and received, bytes a second sent and received, waits, errors, flags. */
  rows: [number, number | null, number | null, number | null, number | null, number, number, number][];
}

const SPANS: [string, number][] = [
  ["10 min", 600_000],
  ["1 h", 3_600_000],
  ["6 h", 21_600_000],
  ["1 day", 86_400_000],
  ["30 days", 2_592_000_000],
];

interface Line {
  label: string;
  colour: string;
  values: (number | null)[];
}

/** What a chart shows: times in milliseconds, lines, their unit, and words below it. Nothing: there is no past. */
interface Past {
  times: number[];
  lines: Line[];
  unit: string;
  words: string;
}

const [BLUE, YELLOW] = ["#3a7bd5", "#e0a100"];

/** A chart of a port, with a choice of how far it reaches back. */
export function history(node: string, port: number): HTMLElement {
  const made = chart(async (from, to) => {
    const { step, rows } = await get<History>("/api/history", { node, port: String(port), from, to });
    const column = (at: 3 | 4) => rows.map((row) => row[at]);
    return {
      times: rows.map((row) => row[0]),
      lines: [
        { label: "sent", colour: BLUE, values: column(3) },
        { label: "received", colour: YELLOW, values: column(4) },
      ],
      unit: "B/s",
      words: `one point: ${step / 1000} s; errors in all: ${short(rows.reduce((sum, row) => sum + row[6], 0))}`,
    };
  });
  made.append(exports({ view: "ports", node, port: String(port) }));
  return made;
}

/** A chart of a host's number. */
export function past(name: string, metric: string, unit: string): HTMLElement {
  return chart(async (from, to) => {
    const { step, rows } = await get<{ step: number; rows: [number, number, number][] }>("/api/host/history", { name, metric, from, to });
    return {
      times: rows.map((row) => row[0]),
      lines: [
        { label: "highest", colour: YELLOW, values: rows.map((row) => row[2]) },
        { label: "mean", colour: BLUE, values: rows.map((row) => row[1]) },
      ],
      unit,
      words: `${metric}; one point: ${step / 1000} s`,
    };
  });
}

function chart(ask: (from: string, to: string) => Promise<Past>): HTMLElement {
  const place = element("div", { class: "chart" });
  const choice = element("select", { "aria-label": "how far back" });
  for (const [name, span] of SPANS) choice.append(element("option", { value: String(span) }, name));
  const words = element("p", { class: "note" });
  const draw = async () => {
    const to = Date.now();
    const from = to - Number(choice.value);
    try {
      const found = await ask(String(from), String(to));
      place.replaceChildren();
      words.textContent = found.times.length > 0 ? found.words : "The store has nothing of it in this time.";
      if (found.times.length > 0) plot(place, found, from, to);
    } catch (error) {
      words.textContent = String(error);
    }
  };
  choice.addEventListener("change", draw);
  void draw();
  return element("section", {}, choice, place, words);
}

function plot(place: HTMLElement, { times, lines, unit }: Past, from: number, to: number) {
  const ink = getComputedStyle(document.body).color;
  const axis = { stroke: ink, grid: { stroke: "rgba(128,128,128,.25)" } };
  const points = { show: times.length < 100 };
  new uPlot(
    {
      width: Math.max(280, place.clientWidth || 320),
      height: 200,
      scales: { x: { min: from / 1000, max: to / 1000 }, y: { range: (_plot, _low, high) => [0, Math.max(high, 1)] } },
      axes: [axis, { ...axis, size: 70, values: (_plot, values) => values.map((value) => short(value, unit)) }],
      series: [{}, ...lines.map(({ label, colour }) => ({ label, stroke: colour, width: 2, points, value: (_plot: uPlot, value: number | null) => short(value ?? 0, unit) }))],
    },
    [times.map((time) => time / 1000), ...lines.map(({ values }) => values)],
    place,
  );
}
