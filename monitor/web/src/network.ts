// The network: its picture with the use of each link now, the hottest links, and what was chosen.
// SPDX-License-Identifier: BSD-3-Clause

import { MultiUndirectedGraph } from "graphology";
import Sigma from "sigma";
import { type Frame, type JobLinks, type Link, type Node, type PortNow, type Topology, bytes, frame, get } from "./api";
import { history } from "./chart";
import { UNKNOWN, WRONG, ofUse } from "./colour";
import { clock, element, percent, short, table } from "./dom";

const HOTTEST = 15;
const SPANS: [string, number][] = [
  ["1 hour", 3_600_000],
  ["6 hours", 21_600_000],
  ["1 day", 86_400_000],
  ["7 days", 604_800_000],
  ["30 days", 2_592_000_000],
  ["1 year", 31_536_000_000],
];
const STEPS = 1000;

/** The page, of a job's links if one is named; the function that it gives back ends it. */
export function network(place: HTMLElement, job?: { source: string; id: string }): () => void {
  const view = new View(place, job);
  void view.load();
  view.listen();
  return () => view.end();
}

class View {
  private topology: Topology = { version: 0, nodes: [], links: [], error: "" };
  private graph = new MultiUndirectedGraph();
  private sigma: Sigma | undefined;
  private socket: WebSocket | undefined;
  private last: Frame | undefined;
  /** The links of the job that is shown; nothing: all. */
  private chosen: Set<number> | undefined;
  /** The time that is shown, in milliseconds since 1970; nothing: now. */
  private past: number | undefined;
  private readonly slider = element("input", { type: "range", min: "0", max: String(STEPS), value: String(STEPS), "aria-label": "time" });
  private readonly span = element("select", { "aria-label": "how far back the slider goes" });
  private readonly time = element("output", {}, "live");
  private readonly jobs = element("div");
  private isOver = false;
  private readonly picture = element("div", { class: "picture", role: "img", "aria-label": "picture of the network" });
  private readonly words = element("p", { class: "note", role: "status" }, "waiting for the first sweep");
  private readonly hottest = element("div");
  private readonly detail = element("div");
  private readonly search = element("input", { type: "search", placeholder: "find a node ( / )", "aria-label": "find a node" });

  constructor(
    place: HTMLElement,
    private readonly job?: { source: string; id: string },
  ) {
    const scale = element("span", { class: "scale", title: "use of a link, 0 to 100 %" });
    const side = element("aside", {}, this.search, this.words, element("h2", {}, "Hottest links"), this.hottest, this.jobs, this.detail);
    for (const [name, span] of SPANS) this.span.append(element("option", { value: String(span) }, name));
    const live = element("button", { type: "button" }, "live");
    live.addEventListener("click", () => this.travel(STEPS));
    this.slider.addEventListener("input", () => this.travel(Number(this.slider.value)));
    this.span.addEventListener("change", () => this.travel(Number(this.slider.value)));
    const times = element("div", { class: "times" }, this.span, this.slider, live, this.time);
    place.replaceChildren(element("div", { class: "network" }, element("div", { class: "stage" }, this.picture, scale, times), side));
    this.search.addEventListener("change", () => this.find(this.search.value));
  }

  async load() {
    try {
      this.topology = await get<Topology>("/api/topology");
      const links = this.job && (await get<JobLinks>("/api/job/links", this.job));
      // The version differs only if the fabric changed in between; the next frame then leads here again.
      this.chosen = links?.version === this.topology.version ? new Set(links.links) : undefined;
    } catch (error) {
      this.words.textContent = String(error);
      return;
    }
    if (this.isOver) return;
    if (this.topology.error && !this.topology.nodes.length) {
      this.words.textContent = `There is no fabric: ${this.topology.error}. It is tried again; jobs and hosts are shown without it.`;
      setTimeout(() => this.isOver || void this.load(), 10_000);
    }
    this.draw();
    if (this.last) this.show(this.last);
  }

  /** Follows the frames; a connection that ends is made again. */
  listen() {
    this.socket = new WebSocket(new URL("api/live", location.href.replace(/^http/, "ws")));
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = (message) => {
      this.last = frame(message.data as ArrayBuffer);
      if (this.past !== undefined) return;
      if (this.last.version === this.topology.version) this.show(this.last);
      else void this.load();
    };
    this.socket.onclose = () => {
      if (this.isOver) return;
      this.words.textContent = "the connection is lost; trying again";
      setTimeout(() => this.isOver || this.listen(), 2000);
    };
  }

  /** Shows another time: a step of the slider, of which the last is now. */
  private travel(step: number) {
    this.slider.value = String(step);
    if (step === STEPS) {
      this.past = undefined;
      this.time.textContent = "live";
      this.jobs.replaceChildren();
      if (this.last) this.show(this.last);
      return;
    }
    const at = Math.round(Date.now() - (Number(this.span.value) * (STEPS - step)) / STEPS);
    this.past = at;
    this.time.textContent = clock(at);
    // While the slider moves, only the time at which it rests is requested.
    setTimeout(() => this.past === at && void this.showPast(at), 150);
  }

  private async showPast(at: number) {
    try {
      const [data, then] = await Promise.all([bytes("/api/picture", { at: String(at) }), get<{ jobs: [string, string, string, string, string[]][] }>("/api/jobs/at", { at: String(at) })]);
      if (this.past !== at || this.isOver) return;
      this.show(frame(data));
      const rows = then.jobs.map(([source, id, user, name, nodes]) => [element("a", { href: `#job/${source}/${encodeURIComponent(id)}` }, name), user, nodes.slice(0, 4).join(" ")]);
      this.jobs.replaceChildren(element("h2", {}, "Jobs then"), table(["job", "user", "nodes"], rows));
      document.body.dataset["past"] = String(at);
    } catch (error) {
      this.words.textContent = String(error);
    }
  }

  end() {
    this.isOver = true;
    this.socket?.close();
    this.sigma?.kill();
  }

  private draw() {
    this.sigma?.kill();
    const graph = new MultiUndirectedGraph();
    this.topology.nodes.forEach((node, at) => {
      const size = node.kind === "host" ? 4 : 8 + 2 * node.tier;
      graph.addNode(String(at), { x: node.x, y: node.y, size, label: node.name, color: colourOf(node) });
    });
    // Links between the same two nodes are one line: it shows the hottest of them.
    const bundles = new Map<string, number[]>();
    this.topology.links.forEach((link, at) => {
      const key = `${link.from}-${link.to}`;
      bundles.set(key, [...(bundles.get(key) ?? []), at]);
    });
    for (const [key, links] of bundles) {
      if (this.chosen && !links.some((at) => this.chosen!.has(at))) continue;
      const link = this.topology.links[links[0]!]!;
      graph.addEdgeWithKey(key, String(link.from), String(link.to), { links, size: 2, color: UNKNOWN });
    }
    this.graph = graph;
    const ink = getComputedStyle(document.body).color;
    this.sigma = new Sigma(graph, this.picture, {
      enableEdgeEvents: true,
      labelColor: { color: ink },
      labelRenderedSizeThreshold: 6,
      allowInvalidContainer: true,
    });
    this.sigma.on("clickNode", ({ node }) => this.showNode(Number(node)));
    this.sigma.on("clickEdge", ({ edge }) => this.showLinks(graph.getEdgeAttribute(edge, "links") as number[]));
    document.body.dataset["drawn"] = String(this.topology.nodes.length);
  }

  private show(now: Frame) {
    this.graph.updateEachEdgeAttributes(
      (_key, attributes) => {
        const links = attributes["links"] as number[];
        const use = links.map((at) => useOf(now, at)).filter((value) => !Number.isNaN(value));
        const isWrong = links.some((at) => (now.states[at] ?? 0) & 1);
        const most = use.length > 0 ? Math.max(...use) : NaN;
        attributes["color"] = isWrong ? WRONG : ofUse(most);
        attributes["size"] = 1.5 + Math.min(3, links.length / 2) + 4 * (Number.isNaN(most) ? 0 : most);
        return attributes;
      },
      { attributes: ["color", "size"] },
    );
    this.graph.updateEachNodeAttributes((key, attributes) => {
      const at = Number(key);
      attributes["color"] = now.nodes[at] ? WRONG : colourOf(this.topology.nodes[at]!);
      return attributes;
    });
    const away = now.nodes.reduce((sum, state) => sum + state, 0);
    const { nodes, links } = this.topology;
    const shown = this.chosen ? `${this.chosen.size} links of ${this.job!.source} ${this.job!.id}` : `${links.length} links`;
    this.words.textContent = `${nodes.length} nodes, ${shown}, ${away} unreachable; ${clock(now.time)}`;
    document.body.dataset["frames"] = String(Number(document.body.dataset["frames"] ?? 0) + 1);
    this.showHottest(now);
  }

  private showHottest(now: Frame) {
    const order = this.topology.links.map((_, at) => at).filter((at) => !Number.isNaN(useOf(now, at)) && (this.chosen?.has(at) ?? true));
    order.sort((one, other) => useOf(now, other) - useOf(now, one));
    const rows = order.slice(0, HOTTEST).map((at) => {
      const link = this.topology.links[at]!;
      const button = element("button", { type: "button" }, this.nameOf(link));
      button.addEventListener("click", () => this.showLinks([at]));
      const [up, down] = [now.use[2 * at], now.use[2 * at + 1]];
      const mark = element("span", { class: "mark" });
      mark.style.background = ofUse(useOf(now, at));
      return [mark, button, percent(up), percent(down), (now.states[at] ?? 0) & 1 ? "errors" : ""];
    });
    // The list is not replaced while one of its elements has the keyboard's focus.
    if (!this.hottest.contains(document.activeElement)) {
      this.hottest.replaceChildren(table(["", "link", "up", "down", ""], rows));
    }
  }

  private nameOf(link: Link): string {
    const name = (at: number) => this.topology.nodes[at]?.name ?? "?";
    return `${name(link.from)} ${link.from_port} – ${name(link.to)} ${link.to_port}`;
  }

  private showNode(at: number) {
    const links = this.topology.links.map((_, link) => link);
    const own = links.filter((link) => this.topology.links[link]!.from === at || this.topology.links[link]!.to === at);
    this.showLinks(own, this.topology.nodes[at]);
  }

  /** Both ends of links, with their counters now and the past of the first. */
  private showLinks(links: number[], node?: Node) {
    const title = node ? `${node.name} (${node.kind}, GUID ${node.guid}${node.rack ? `, ${node.rack}` : ""})` : "Links";
    const list = element("div");
    const past = element("div");
    this.detail.replaceChildren(element("h2", {}, title), list, past);
    const ends = links.flatMap((at) => {
      const link = this.topology.links[at]!;
      const both = [
        { at: link.from, port: link.from_port, speed: link.speed },
        { at: link.to, port: link.to_port, speed: link.speed },
      ];
      return node ? both.filter((end) => this.topology.nodes[end.at]?.guid === node.guid) : both;
    });
    const rows = ends.map((end) => {
      const of = this.topology.nodes[end.at]!;
      const button = element("button", { type: "button" }, `${of.name} ${end.port}`);
      button.addEventListener("click", () => void this.showPort(past, of, end.port));
      return [button, end.speed];
    });
    list.append(table(["port", "speed"], rows));
    const first = ends[0];
    if (first) void this.showPort(past, this.topology.nodes[first.at]!, first.port);
  }

  private async showPort(place: HTMLElement, node: Node, port: number) {
    try {
      const asked = { node: node.guid, port: String(port) };
      const [now, { jobs }] = await Promise.all([get<PortNow | null>("/api/port", asked), get<{ jobs: LinkJob[] }>("/api/port/jobs", asked)]);
      const rows = jobs.map((job) => [element("a", { href: `#job/${job.source}/${encodeURIComponent(job.id)}` }, job.name), job.user, short(job.bytes_per_second, "B/s")]);
      const facts = Object.entries(now?.since ?? {}).filter(([, value]) => value > 0);
      const state = now ? `sends ${percent(now.sent)}, receives ${percent(now.received)} ${now.flags.join(", ")}` : "no answer";
      place.replaceChildren(
        element("h3", {}, `${node.name}, port ${port}`),
        element("p", {}, state),
        ...(rows.length > 0 ? [table(["sends for the job", "user", "whose nodes send"], rows)] : []),
        history(node.guid, port),
        table(["since the sweep before", ""], facts.map(([name, value]) => [name.replaceAll("_", " "), short(value)])),
      );
    } catch (error) {
      place.replaceChildren(element("p", {}, String(error)));
    }
  }

  private find(text: string) {
    const at = this.topology.nodes.findIndex((node) => node.name.toLowerCase().includes(text.toLowerCase()) || node.guid === text);
    if (at < 0 || text === "") {
      this.words.textContent = `no node is called ${text}`;
      return;
    }
    const shown = this.sigma?.getNodeDisplayData(String(at));
    if (shown) void this.sigma?.getCamera().animate({ x: shown.x, y: shown.y, ratio: 0.4 });
    this.showNode(at);
  }
}

interface LinkJob {
  id: string;
  source: string;
  user: string;
  name: string;
  bytes_per_second: number;
}

/** The higher use of a link's two ways. */
function useOf(now: Frame, at: number): number {
  const [up, down] = [now.use[2 * at] ?? NaN, now.use[2 * at + 1] ?? NaN];
  return Number.isNaN(up) ? down : Number.isNaN(down) ? up : Math.max(up, down);
}

function colourOf(node: Node): string {
  return node.kind === "host" ? "#7d8ca3" : "#4d6fa8";
}
