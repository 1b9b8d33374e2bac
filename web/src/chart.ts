// A port's past as a chart.

import uPlot from "uplot";
import { get } from "./api";
import { element, short } from "./dom";

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

/** A chart of a port, with a choice of how far it reaches back. */
export function history(node: string, port: number): HTMLElement {
  const place = element("div", { class: "chart" });
  const choice = element("select", { "aria-label": "how far back" });
  for (const [name, span] of SPANS) choice.append(element("option", { value: String(span) }, name));
  const words = element("p", { class: "note" });
  const draw = async () => {
    const to = Date.now();
    const from = to - Number(choice.value);
    try {
      const answer = await get<History>("/api/history", { node, port: String(port), from: String(from), to: String(to) });
      place.replaceChildren();
      if (answer.rows.length === 0) {
        words.textContent = "The store has nothing of this port in this time.";
        return;
      }
      words.textContent = `one point: ${answer.step / 1000} s; errors in all: ${short(answer.rows.reduce((sum, row) => sum + row[6], 0))}`;
      plot(place, answer, from, to);
    } catch (error) {
      words.textContent = String(error);
    }
  };
  choice.addEventListener("change", draw);
  void draw();
  return element("section", {}, choice, place, words);
}

function plot(place: HTMLElement, answer: History, from: number, to: number) {
  const column = (at: 0 | 3 | 4) => answer.rows.map((row) => row[at]);
  const times = column(0).map((time) => (time ?? 0) / 1000);
  const ink = getComputedStyle(document.body).color;
  const axis = { stroke: ink, grid: { stroke: "rgba(128,128,128,.25)" } };
  const points = { show: times.length < 100 };
  new uPlot(
    {
      width: Math.max(280, place.clientWidth || 320),
      height: 200,
      scales: { x: { min: from / 1000, max: to / 1000 }, y: { range: (_plot, _low, high) => [0, Math.max(high, 1)] } },
      axes: [axis, { ...axis, size: 70, values: (_plot, values) => values.map((value) => short(value, "B/s")) }],
      series: [
        {},
        { label: "sent", stroke: "#3a7bd5", width: 2, points, value: (_plot, value) => short(value ?? 0, "B/s") },
        { label: "received", stroke: "#e0a100", width: 2, points, value: (_plot, value) => short(value ?? 0, "B/s") },
      ],
    },
    [times, column(3), column(4)],
    place,
  );
}
