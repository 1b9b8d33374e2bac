// The pages that are tables: jobs, errors, and the monitor itself.
// SPDX-License-Identifier: BSD-3-Clause

import { type Job, type JobLinks, type Rank, get } from "./api";
import { clock, element, exports, percent, short, table } from "./dom";

const EVERY_MS = 5000;

/** Shows what `make` gives, again and again; the function that it gives back ends it. */
export function repeated(place: HTMLElement, make: () => Promise<HTMLElement[]>): () => void {
  const show = async () => {
    try {
      place.replaceChildren(...(await make()));
    } catch (error) {
      place.replaceChildren(element("p", { class: "wrong" }, String(error)));
    }
  };
  void show();
  const timer = setInterval(() => void show(), EVERY_MS);
  return () => clearInterval(timer);
}

interface Jobs {
  jobs: Job[];
  errors: Record<string, string>;
}

export function jobs(place: HTMLElement): () => void {
  return repeated(place, async () => {
    const { jobs, errors } = await get<Jobs>("/api/jobs");
    const rows = jobs.map((job) => {
      const link = element("a", { href: `#job/${job.source}/${encodeURIComponent(job.id)}` }, job.id);
      const nodes = job.nodes.length > 4 ? `${job.nodes.slice(0, 4).join(" ")} and ${job.nodes.length - 4} more` : job.nodes.join(" ");
      const times = job.end ? `${clock(job.start)} to ${clock(job.end)}` : clock(job.start);
      return [link, job.source, job.user, job.name, job.state, String(job.ranks), nodes, times];
    });
    const wrong = Object.entries(errors).map(([source, why]) => element("p", { class: "wrong" }, `${source}: ${why}`));
    return [element("h1", {}, "Jobs"), ...wrong, table(["job", "from", "user", "name", "state", "ranks", "nodes", "time"], rows), exports({ view: "jobs" })];
  });
}

/** What a rank did, by groups of counters. */
const COLUMNS: [string, RegExp, string][] = [
  ["messages", /^(eager|rendezvous)_messages_sent$|^own_messages$|^(i?[bsr]?send|sendrecv.*)_calls$/, ""],
  ["sent", /^(own_bytes|eager_bytes_sent|rendezvous_bytes_sent)$|^(i?[bsr]?send|sendrecv.*)_bytes$/, "B"],
  ["received", /^(eager|rendezvous)_bytes_received$/, "B"],
  ["collectives", /^i?(barrier|bcast|gatherv?|scatterv?|allgatherv?|alltoall[vw]?|reduce.*|allreduce|scan|exscan|neighbor)_calls$/, ""],
  ["offloaded", /^offloaded$/, ""],
];

export function job(place: HTMLElement, source: string, id: string): () => void {
  return repeated(place, async () => {
    const { job, verdicts, storage } = await get<{ job: Omit<Job, "ranks"> & { ranks: Rank[] }; verdicts: string[]; storage: Record<string, number> }>("/api/job", { source, id });
    const network = await get<JobLinks>("/api/job/links", { source, id });
    const sum = (rank: Rank, which: RegExp) =>
      Object.entries(rank.counters).reduce((sum, [name, value]) => sum + (which.test(name) ? value : 0), 0);
    const rows = job.ranks.map((rank) => [
      String(rank.rank),
      rank.host,
      String(rank.pid),
      rank.state,
      ...COLUMNS.map(([, which, unit]) => short(sum(rank, which), unit)),
      `${((rank.counters["wait_ns"] ?? 0) / 1e9).toFixed(1)} s`,
      `${((rank.counters["cpu_ns"] ?? 0) / 1e9).toFixed(1)} s`,
      short(rank.counters["memory_bytes"] ?? 0, "B"),
      rank.waiting_for,
    ]);
    const head = ["rank", "host", "pid", "state", ...COLUMNS.map(([name]) => name), "waited", "CPU", "memory", "waits for"];
    return [
      element("h1", {}, `${job.name} (${job.source} ${job.id})`),
      element("p", {}, `${job.user}; ${job.state}; ${job.nodes.join(" ")}; since ${clock(job.start)}`),
      ...verdicts.map((verdict) => element("p", { class: "verdict" }, verdict)),
      ...calls(job.ranks),
      ...sizes(job.ranks),
      ...part(network, source, id),
      ...(Object.keys(storage).length > 0
        ? [element("h2", {}, "Lustre"), table(["", ""], Object.entries(storage).map(([name, value]) => [name.replaceAll("_", " "), short(value, name.endsWith("bytes") ? "B" : "")]))]
        : []),
      element("h2", {}, "Ranks"),
      element("p", { class: "note" }, "its course: ", element("a", { href: `api/job/trace?${new URLSearchParams({ source, id })}`, download: "" }, "trace for Perfetto")),
      exports({ view: "job", source, id, from: String(job.start), to: String((job.end ?? Date.now()) + 1000) }),
      job.ranks.length > 0 ? table(head, rows) : element("p", { class: "note" }, "Nothing tells of this job's ranks."),
    ];
  });
}

/** What a job did inside MPI by operation, and who waited least in it. */
function calls(ranks: Rank[]): HTMLElement[] {
  const names = new Set(ranks.flatMap((rank) => Object.keys(rank.counters).filter((name) => name.endsWith("_calls"))));
  const seconds = (rank: Rank, name: string) => (rank.counters[name] ?? 0) / 1e9;
  const rows = [...names].sort().map((name) => {
    const kind = name.replace("_calls", "");
    const sum = (counter: string) => ranks.reduce((sum, rank) => sum + (rank.counters[counter] ?? 0), 0);
    const waits = ranks.map((rank) => ({ rank: rank.rank, s: seconds(rank, `${kind}_wait_ns`) })).sort((one, other) => one.s - other.s);
    const [least, most] = [waits[0]!, waits[waits.length - 1]!];
    const waited = most.s > 0 ? [short(sum(`${kind}_waits`)), `${least.s.toFixed(1)} s (rank ${least.rank})`, `${most.s.toFixed(1)} s (rank ${most.rank})`] : ["", "", ""];
    return [kind.replaceAll("_", " "), short(sum(name)), ...waited];
  });
  return rows.length > 0 ? [element("h2", {}, "Calls"), table(["operation", "calls", "with a wait", "waited least", "waited most"], rows)] : [];
}

/** Which links carry what a job's nodes send each other. */
function part(network: JobLinks, source: string, id: string): HTMLElement[] {
  if (network.links.length === 0) return [];
  const rows = network.hottest.map((end) => [`${end.node} ${end.port}`, `${end.to} ${end.to_port}`, percent(end.sent)]);
  const all = element("a", { href: `#network/${source}/${encodeURIComponent(id)}` }, `all ${network.links.length} links in the network`);
  return [element("h2", {}, "Its part of the network"), table(["from port", "to port", "use"], rows), element("p", {}, all)];
}

const CLASSES = ["0", "128", "2K", "32K", "512K", "8M", "more"];

/** Calls by size and by where the peer is, and bytes between nodes: what the watch library tells. */
function sizes(ranks: Rank[]): HTMLElement[] {
  const sums = new Map<string, number>();
  const between = new Map<string, number>();
  const nodes = new Set<string>();
  for (const rank of ranks) {
    for (const [name, value] of Object.entries(rank.counters)) {
      if (name.startsWith("bytes_to.")) {
        const to = name.slice("bytes_to.".length);
        nodes.add(rank.host).add(to);
        between.set(`${rank.host}\n${to}`, (between.get(`${rank.host}\n${to}`) ?? 0) + value);
      } else if (/\.(near|far)$/.test(name)) sums.set(name, (sums.get(name) ?? 0) + value);
    }
  }
  const made: HTMLElement[] = [];
  const calls = [...new Set([...sums.keys()].map((name) => name.split(".")[0]!))];
  const lines = calls.flatMap((call) =>
    ["near", "far"].map((place) => [call.replaceAll("_", " "), place === "near" ? "on the node" : "between nodes", ...CLASSES.map((size) => sums.get(`${call}.${size}.${place}`) ?? 0)] as const),
  );
  const rows = lines.filter((line) => line.slice(2).some((value) => Number(value) > 0)).map((line) => line.map((cell) => (typeof cell === "number" ? (cell > 0 ? short(cell) : "") : cell)));
  if (rows.length > 0) made.push(element("h2", {}, "Calls by bytes"), table(["operation", "peer", "none", ...CLASSES.slice(1, -1).map((size) => `to ${size}`), "more"], rows));
  if (between.size > 0) {
    const names = [...nodes].sort();
    const cells = names.map((from) => [from, ...names.map((to) => short(between.get(`${from}\n${to}`) ?? 0, "B"))]);
    made.push(element("h2", {}, "Bytes sent from node (line) to node (column)"), table(["", ...names], cells));
  }
  return made;
}

export function errors(place: HTMLElement): () => void {
  return repeated(place, async () => {
    const { names, rows } = await get<{ names: string[]; rows: (string | number)[][] }>("/api/errors");
    const lines = rows.map(([node, port, all, ...each]) => {
      const kinds = names.map((name, at) => [name, Number(each[at])] as const).filter(([, value]) => value > 0);
      return [String(node), String(port), short(Number(all)), kinds.map(([name, value]) => `${name.replaceAll("_", " ")}: ${value}`).join("; ")];
    });
    const none = element("p", { class: "note" }, "No port had an error in the last hour.");
    return [element("h1", {}, "Errors of the last hour"), lines.length > 0 ? table(["node", "port", "errors", "which"], lines) : none, exports({ view: "errors" })];
  });
}

interface Status {
  fabric: Record<string, unknown> & { ports: number; mads: Record<string, number> };
  jobs: Record<string, string>;
  store: Record<string, number | string>;
  sizes: [string, number, number, number][];
  sizes_error: string;
  notifications: Record<string, number | string>;
}

export function status(place: HTMLElement): () => void {
  const ports = element("input", { type: "number", value: "38400", min: "1" });
  const seconds = element("input", { type: "number", value: "10", min: "1" });
  return repeated(place, async () => {
    const now = await get<Status>("/api/status");
    const facts = (values: Record<string, unknown>) =>
      table(["", ""], Object.entries(values).map(([name, value]) => [name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : String(value)]));
    const raw = now.sizes.find(([name]) => name === "port_samples");
    const perRow = raw && raw[1] > 0 ? raw[2] / raw[1] : NaN;
    const days = (count: number) => short(((perRow * Number(ports.value)) / Number(seconds.value)) * 86_400 * count, "B");
    return [
      element("h1", {}, "The monitor"),
      element("h2", {}, "Fabric"),
      facts(now.fabric),
      element("h2", {}, "Store"),
      facts(now.store),
      ...(now.sizes_error ? [element("p", { class: "wrong" }, `These sizes are old: ${now.sizes_error}`)] : []),
      table(
        ["table", "rows", "bytes on disk", "bytes a row", "merged parts, dropped soon"],
        now.sizes.map(([name, rows, bytes, merged]) => [name, short(rows), short(bytes, "B"), rows ? (bytes / rows).toFixed(1) : "", short(merged, "B")]),
      ),
      element("h2", {}, "Notifications"),
      facts(now.notifications),
      element("h2", {}, "Size calculator"),
      element("p", {}, element("label", {}, "ports ", ports), element("label", {}, " every ", seconds, " s")),
      element("p", {}, Number.isNaN(perRow) ? "No row is stored yet." : `${perRow.toFixed(1)} bytes a row, measured: ${days(1)} a day, ${days(30)} in 30 days; leave as much again free for merges.`),
    ];
  });
}
