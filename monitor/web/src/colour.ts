// Use as a colour. The scale is read by people of all kinds of colour vision: it goes from dark to bright as well as
// from blue to yellow.
// SPDX-License-Identifier: BSD-3-Clause

const STOPS: [number, [number, number, number]][] = [
  [0, [58, 92, 140]],
  [0.25, [86, 120, 130]],
  [0.5, [150, 150, 118]],
  [0.75, [214, 184, 88]],
  [1, [255, 226, 60]],
];

export const UNKNOWN = "#8a8a8a";
export const WRONG = "#d6336c";

export function ofUse(use: number): string {
  if (Number.isNaN(use)) return UNKNOWN;
  const at = Math.min(1, Math.max(0, use));
  for (let index = 1; index < STOPS.length; index += 1) {
    const [low, from] = STOPS[index - 1]!;
    const [high, to] = STOPS[index]!;
    if (at <= high) {
      const share = (at - low) / (high - low);
      const mix = (channel: 0 | 1 | 2) => Math.round(from[channel] + share * (to[channel] - from[channel]));
      return `rgb(${mix(0)},${mix(1)},${mix(2)})`;
    }
  }
  return UNKNOWN;
}
