// Alerts with their acknowledgement, and the criteria that raise them.
// SPDX-License-Identifier: BSD-3-Clause

import { get, post } from "./api";
import { button, clock, element, table } from "./dom";

interface Alert {
  id: number;
  name: string;
  subject: string;
  text: string;
  key: string;
  state: "raised" | "acknowledged" | "cleared";
  raised: number;
  acknowledged: number | null;
  acknowledged_by: string | null;
  cleared: number | null;
}

interface Criterion {
  id: number;
  name: string;
  metric: string;
  comparison: ">=" | "<=";
  threshold: number;
  for_s: number;
  clear_s: number;
  target: string;
  channels: string[];
  is_on: boolean;
}

interface Criteria {
  criteria: Criterion[];
  metrics: { name: string; of: string; unit: string; doc: string }[];
  channels: string[];
}

const EVERY_MS = 3000;

/** The page; the function that it gives back ends it. */
export function alerts(place: HTMLElement, role: string): () => void {
  const list = element("div");
  const desk = element("div");
  const words = element("p", { class: "wrong", role: "alert" });
  place.replaceChildren(element("h1", {}, "Alerts"), words, list, desk);
  const [isSupport, isAdmin] = [role === "support" || role === "admin", role === "admin"];
  const show = async () => {
    try {
      const { alerts } = await get<{ alerts: Alert[] }>("/api/alerts");
      const rows = alerts.map((alert) => {
        const actions = element("span");
        if (alert.state === "raised" && isSupport) actions.append(button("acknowledge", () => post("/api/alerts/acknowledge", { id: alert.id }).then(show), words));
        if (alert.state !== "cleared" && isAdmin && alert.key.startsWith("link ")) {
          actions.append(button("not expected any more", () => post("/api/links/forget", { key: alert.key }).then(show), words));
        }
        const by = alert.acknowledged_by ? `acknowledged by ${alert.acknowledged_by}` : alert.state;
        const times = alert.cleared ? `${clock(alert.raised)} to ${clock(alert.cleared)}` : clock(alert.raised);
        return [element("span", { class: `state ${alert.state}` }, alert.cleared ? "cleared" : by), alert.name, alert.subject, alert.text, times, actions];
      });
      const none = element("p", { class: "note" }, "There was no alert yet.");
      if (!list.contains(document.activeElement)) {
        list.replaceChildren(rows.length > 0 ? table(["state", "criterion", "where", "what", "time", ""], rows) : none);
      }
    } catch (error) {
      words.textContent = String(error);
    }
  };
  void show();
  if (isSupport) void criteria(desk, isAdmin, words);
  const timer = setInterval(() => void show(), EVERY_MS);
  return () => clearInterval(timer);
}

async function criteria(place: HTMLElement, isAdmin: boolean, words: HTMLElement) {
  const again = () => criteria(place, isAdmin, words);
  const found = await get<Criteria>("/api/criteria");
  const rows = found.criteria.map((one) => {
    const actions = element("span");
    if (isAdmin) {
      actions.append(
        button("change", async () => place.replaceChildren(element("h2", {}, "Criteria"), form(found, one, again, words)), words),
        button(one.is_on ? "off" : "on", () => post("/api/criteria", { ...one, is_on: !one.is_on }).then(again), words),
        button("remove", () => post("/api/criteria/remove", { id: one.id }).then(again), words),
      );
    }
    const rule = `${one.metric} ${one.comparison} ${one.threshold}`;
    return [one.name, rule, `${one.for_s} s`, `${one.clear_s} s`, one.target || "everything", one.channels.join(", "), one.is_on ? "on" : "off", actions];
  });
  const head = ["criterion", "holds if", "for", "cleared after", "where", "tells", "", ""];
  place.replaceChildren(element("h2", {}, "Criteria"), table(head, rows));
  if (isAdmin) {
    const fresh: Criterion = { id: 0, name: "", metric: "use", comparison: ">=", threshold: 0.9, for_s: 60, clear_s: 60, target: "", channels: [], is_on: true };
    place.append(element("h3", {}, "A new criterion"), form(found, fresh, again, words));
  }
}

function form(found: Criteria, one: Criterion, done: () => Promise<void>, words: HTMLElement): HTMLElement {
  const field = (name: string, value: string, type = "text") => element("input", { name, value, type, step: "any" });
  const [name, target] = [field("name", one.name), field("target", one.target)];
  const [threshold, forS, clearS] = [field("threshold", String(one.threshold), "number"), field("for_s", String(one.for_s), "number"), field("clear_s", String(one.clear_s), "number")];
  const metric = element("select", { name: "metric" });
  for (const each of found.metrics) metric.append(element("option", { value: each.name, title: each.doc }, each.name));
  metric.value = one.metric;
  const comparison = element("select", { name: "comparison" }, element("option", {}, ">="), element("option", {}, "<="));
  comparison.value = one.comparison;
  const doc = element("span", { class: "note" });
  const explain = () => {
    const each = found.metrics.find((each) => each.name === metric.value);
    doc.textContent = each ? `of a ${each.of}; ${each.doc} ${each.unit}` : "";
  };
  metric.addEventListener("change", explain);
  explain();
  const channels = found.channels.map((channel) => {
    const box = element("input", { type: "checkbox", value: channel });
    box.checked = one.channels.includes(channel);
    return box;
  });
  const made = element(
    "form",
    { class: "criterion" },
    element("label", {}, "name ", name),
    element("label", {}, "metric ", metric, " ", comparison, " ", threshold),
    doc,
    element("label", {}, "for seconds ", forS),
    element("label", {}, "cleared after seconds ", clearS),
    element("label", {}, "where (a part of a node's name, a rack, a part of a job's name; empty: everywhere) ", target),
    ...channels.map((box) => element("label", {}, box, ` tell ${box.value}`)),
    element("button", {}, one.id === 0 ? "add" : "change"),
  );
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const value = {
      ...one,
      name: name.value,
      metric: metric.value,
      comparison: comparison.value,
      threshold: Number(threshold.value),
      for_s: Number(forS.value),
      clear_s: Number(clearS.value),
      target: target.value,
      channels: channels.filter((box) => box.checked).map((box) => box.value),
    };
    try {
      await post("/api/criteria", value);
      words.textContent = "";
      await done();
    } catch (error) {
      words.textContent = String(error);
    }
  });
  return made;
}
