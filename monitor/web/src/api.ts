// What the monitor answers (monitor/crates/monitor/src/web/api.rs), and how it is asked.
// SPDX-License-Identifier: BSD-3-Clause

export interface Node {
  guid: string;
  name: string;
  rack: string;
  kind: "host" | "switch" | "router";
  tier: number;
  x: number;
  y: number;
  ports: number;
}

export interface Link {
  from: number;
  from_port: number;
  to: number;
  to_port: number;
  speed: string;
  bytes_per_second: number;
}

export interface Topology {
  version: number;
  nodes: Node[];
  links: Link[];
  /** Why there is no fabric; empty: there is one. */
  error: string;
}

/** A port's last sample. */
export interface PortNow {
  sent: number | null;
  received: number | null;
  errors: number;
  flags: string[];
  since: Record<string, number>;
  seconds: number;
}

export interface Job {
  id: string;
  source: string;
  user: string;
  name: string;
  nodes: string[];
  ranks: number;
  state: string;
  start: number;
  end: number | null;
}

/** The links of a job, by their number in the topology of that version, and its ports with the highest use. */
export interface JobLinks {
  version: number;
  links: number[];
  hottest: { node: string; port: number; to: string; to_port: number; sent: number | null }[];
}

export interface Rank {
  rank: number;
  host: string;
  pid: number;
  state: string;
  waiting_for: string;
  counters: Record<string, number>;
}

/** An answer that is an error, with the server's own sentence. */
export class Refused extends Error {
  constructor(
    readonly code: number,
    sentence: string,
  ) {
    super(sentence);
  }
}

async function read<T>(response: Response): Promise<T> {
  if (!response.ok) throw new Refused(response.status, (await response.text()) || response.statusText);
  return response.status === 204 ? (undefined as T) : ((await response.json()) as T);
}

/** Where the page is served: a proxy may have it below a path of its own. */
export const below = (path: string): string => path.slice(1);

export async function get<T>(path: string, query: Record<string, string> = {}): Promise<T> {
  const words = new URLSearchParams(query).toString();
  return read<T>(await fetch(below(words ? `${path}?${words}` : path)));
}

/** What is no JSON. */
export async function bytes(path: string, query: Record<string, string>): Promise<ArrayBuffer> {
  const response = await fetch(below(`${path}?${new URLSearchParams(query)}`));
  if (!response.ok) throw new Refused(response.status, (await response.text()) || response.statusText);
  return response.arrayBuffer();
}

export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  const headers = { "content-type": "application/json" };
  return read<T>(await fetch(below(path), { method: "POST", headers, body: JSON.stringify(body) }));
}

/** What all links do; Live.frame of the monitor writes it (monitor/crates/monitor/src/live.rs). */
export interface Frame {
  version: number;
  time: number;
  /** Two for each link: from its lower end to the upper, and back. NaN: not known. */
  use: Float32Array;
  /** Per link: 1 errors, 2 cleared, 4 latched. */
  states: Uint8Array;
  /** Per node: 1 unreachable. */
  nodes: Uint8Array;
}

export function frame(data: ArrayBuffer): Frame {
  const view = new DataView(data);
  const [links, nodes] = [view.getUint32(16, true), view.getUint32(20, true)];
  const states = 24 + 8 * links;
  return {
    version: view.getFloat64(0, true),
    time: view.getFloat64(8, true),
    use: new Float32Array(data.slice(24, states)),
    states: new Uint8Array(data, states, links),
    nodes: new Uint8Array(data, states + links, nodes),
  };
}
