// Elements and texts. Text is set as text everywhere, so no name of a node or job becomes markup.
// SPDX-License-Identifier: BSD-3-Clause

type Child = globalThis.Node | string;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function table(head: string[], rows: Child[][]): HTMLTableElement {
  const cells = (tag: "th" | "td", row: Child[]) => element("tr", {}, ...row.map((cell) => element(tag, {}, cell)));
  return element("table", {}, element("thead", {}, cells("th", head)), element("tbody", {}, ...rows.map((row) => cells("td", row))));
}

/** Links that bring what a view shows as a file, from a time on; without one the server's default. */
export function exports(query: Record<string, string>): HTMLElement {
  const links = ["csv", "parquet"].map((format) => element("a", { href: `api/export?${new URLSearchParams({ ...query, format })}`, download: "" }, format.toUpperCase()));
  return element("p", { class: "note" }, "as a file: ", links[0]!, " ", links[1]!);
}

const STEPS = ["", "k", "M", "G", "T", "P", "E"];

/** 12345678 as 12.3 M. */
export function short(value: number, unit = ""): string {
  let step = 0;
  while (Math.abs(value) >= 1000 && step < STEPS.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = step === 0 && Number.isInteger(value) ? 0 : value < 10 ? 2 : 1;
  return `${value.toFixed(digits)} ${STEPS[step]}${unit}`.trim();
}

export function percent(share: number | null | undefined): string {
  return share === null || share === undefined || Number.isNaN(share) ? "?" : `${(share * 100).toFixed(1)} %`;
}

export function clock(ms: number): string {
  return new Date(ms).toLocaleString();
}

/** A button; what its act is refused with is shown. */
export function button(text: string, act: () => Promise<unknown>, words: HTMLElement): HTMLElement {
  const made = element("button", { type: "button" }, text);
  made.addEventListener("click", async () => {
    try {
      await act();
    } catch (error) {
      words.textContent = String(error);
    }
  });
  return made;
}
