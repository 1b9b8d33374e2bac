// Hosts: what they tell of themselves, and the past of each number.
// SPDX-License-Identifier: BSD-3-Clause

import { get } from "./api";
import { past } from "./chart";
import { clock, element, exports, percent, short, table } from "./dom";
import { repeated } from "./tables";

interface Summary {
  name: string;
  state: "up" | "unreachable";
  seen: number;
  cpu: number | null;
  memory: number | null;
  sent: number;
  received: number;
  watts: number;
  read: number;
  written: number;
  errors: Record<string, string>;
}

interface Host {
  summary: Summary;
  gauges: Record<string, number>;
  counters: Record<string, number>;
  rates: Record<string, number>;
  facts: Record<string, string>;
  jobs: { id: string; source: string; name: string; user: string }[];
  interval_s: number;
}

const rate = (value: number) => (value > 0 ? short(value, "B/s") : "");

function state(host: Summary): HTMLElement {
  return element("span", { class: `state ${host.state === "up" ? "cleared" : "raised"}` }, host.state);
}

export function hosts(place: HTMLElement): () => void {
  return repeated(place, async () => {
    const { hosts } = await get<{ hosts: Summary[] }>("/api/hosts");
    const rows = hosts.map((host) => [
      element("a", { href: `#host/${encodeURIComponent(host.name)}` }, host.name),
      state(host),
      percent(host.cpu),
      percent(host.memory),
      rate(host.sent),
      rate(host.received),
      host.watts > 0 ? `${host.watts.toFixed(0)} W` : "",
      rate(host.read),
      rate(host.written),
      Object.keys(host.errors).join(" "),
    ]);
    const head = ["host", "state", "CPU", "memory", "sends", "receives", "power", "reads", "writes", "without an answer"];
    return [element("h1", {}, "Hosts"), table(head, rows), exports({ view: "hosts" })];
  });
}

export function host(place: HTMLElement, name: string): () => void {
  const numbers = element("div");
  const chart = element("div");
  place.replaceChildren(numbers, chart);
  const choose = (metric: string, unit: string) => chart.replaceChildren(past(name, metric, unit));
  choose("cpu.busy_ms", "ms/s");
  return repeated(numbers, async () => {
    const now = await get<Host>("/api/host", { name });
    const { summary } = now;
    const wrong = Object.entries(summary.errors).map(([source, why]) => element("p", { class: "wrong" }, `${source}: ${why}`));
    const jobs = now.jobs.map((job) => element("a", { href: `#job/${job.source}/${encodeURIComponent(job.id)}` }, `${job.name} (${job.user}) `));
    return [
      element("h1", {}, `Host ${summary.name}`),
      element("p", {}, state(summary), ` last report ${clock(summary.seen)}, every ${now.interval_s} s; CPU ${percent(summary.cpu)}, memory ${percent(summary.memory)}`),
      ...wrong,
      ...(jobs.length > 0 ? [element("p", {}, "Jobs: ", ...jobs)] : []),
      exports({ view: "hosts", host: name }),
      ...groups(now, choose),
    ];
  });
}

/** A table for each group of names: `eth0.sent_bytes` is sent_bytes of eth0. */
function groups(now: Host, choose: (metric: string, unit: string) => void): HTMLElement[] {
  const found = new Map<string, (HTMLElement | string)[][]>();
  const add = (name: string, value: string, unit: string) => {
    const at = name.lastIndexOf(".");
    const [group, quantity] = [name.slice(0, at), name.slice(at + 1)];
    const button = element("button", { type: "button" }, quantity.replaceAll("_", " "));
    button.addEventListener("click", () => choose(name, unit));
    found.set(group, [...(found.get(group) ?? []), [button, value]]);
  };
  for (const [name, value] of Object.entries(now.gauges)) add(name, short(value, name.endsWith("bytes") ? "B" : ""), name.endsWith("bytes") ? "B" : "");
  for (const [name, total] of Object.entries(now.counters)) {
    const [value, unit] = [now.rates[name], name.endsWith("bytes") ? "B/s" : "/s"];
    if (total > 0) add(name, `${value === undefined ? "?" : short(value, unit)} (${short(total)} in all)`, unit);
  }
  return [...found.entries()].map(([group, rows]) => {
    const words = ["kind", "state", "speed"].map((fact) => now.facts[`${group}.${fact}`]).filter((word) => word !== undefined);
    return element("details", { open: "" }, element("summary", {}, [group, ...words].join(", ")), table(["", ""], rows));
  });
}
