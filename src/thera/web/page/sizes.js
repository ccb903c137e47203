// Sizes of downloads, computed as the program computes them.

/** @typedef {import("./backend.js").Picture} Picture */

/**
 * What a person chose. `by` is the field that was changed last of a size of one's own.
 * @typedef {Object} SizeChoice
 * @property {"2" | "4" | "8" | "4k" | "print" | "own"} preset
 * @property {"scale" | "width" | "height"} by
 * @property {number} scale
 * @property {number} width
 * @property {number} height
 * @property {boolean} locked the aspect ratio is the picture's
 * @property {string} paper a name in PAPERS
 * @property {number} ppi
 */

/** Papers, in centimetres. @type {Record<string, [number, number]>} */
export const PAPERS = {
  "15 × 10 cm": [15, 10],
  "18 × 13 cm": [18, 13],
  "30 × 20 cm": [30, 20],
  "45 × 30 cm": [45, 30],
  "75 × 50 cm": [75, 50],
  A4: [29.7, 21],
  A3: [42, 29.7],
  A2: [59.4, 42],
};
const UHD = [3840, 2160];

/** Rounds as Python does: halves to the even neighbour. @param {number} x */
export function round(x) {
  const low = Math.floor(x);
  if (x - low !== 0.5) return Math.round(x);
  return low % 2 === 0 ? low : low + 1;
}

/** The size of an order, as the program takes it. @param {SizeChoice} choice @param {Picture} picture */
export function sizeOf(choice, picture) {
  if (choice.preset === "4k") return { fit: box(UHD, picture) };
  if (choice.preset === "print") return { paper: `${PAPERS[choice.paper].join("x")}cm`, dpi: choice.ppi };
  if (choice.preset !== "own") return { scale: Number(choice.preset) };
  if (choice.by === "scale") return { scale: choice.scale };
  if (!choice.locked) return { width: choice.width, height: choice.height };
  return choice.by === "width" ? { width: choice.width } : { height: choice.height };
}

/** A box [height, width] that lies or stands as the picture does. @param {number[]} sides @param {Picture} picture */
const box = ([long, short], { width, height }) => (height > width ? [long, short] : [short, long]);

/**
 * The pixels of a download, [width, height].
 * @param {{scale?: number, width?: number, height?: number, fit?: number[], paper?: string, dpi?: number}} size
 * @param {{width: number, height: number}} picture
 */
export function pixelsOf({ scale, width, height, fit, paper, dpi = 300 }, picture) {
  if (width !== undefined && height !== undefined) return [width, height];
  const own = [picture.height, picture.width];
  const inches = (paper?.replace("cm", "").split("x") ?? []).map((side) => Number(side) * (1 / 2.54));
  const wanted = fit ?? [height, width];
  const factors = paper
    ? sorted(inches.map((side) => side * dpi)).map((side, i) => side / sorted(own)[i])
    : wanted.map((side, i) => (side === undefined ? Infinity : side / own[i]));
  const factor = scale ?? Math.min(...factors);
  const sides = [round(picture.width * factor), round(picture.height * factor)];
  return scale === undefined ? sides.map((side) => Math.max(1, side)) : sides;
}

/** @param {number[]} numbers */
const sorted = (numbers) => [...numbers].sort((a, b) => a - b);

/** Seconds for people, about. @param {number} seconds */
export function about(seconds) {
  if (seconds < 1) return "under 1 s";
  if (seconds < 90) return `about ${Math.round(seconds)} s`;
  if (seconds < 5400) return `about ${Math.round(seconds / 60)} min`;
  return `about ${(seconds / 3600).toFixed(1)} h`;
}

/** Bytes for people. @param {number} count */
export function fileSize(count) {
  if (count < 1e6) return `${Math.max(1, Math.round(count / 1e3))} kB`;
  return count < 1e9 ? `${(count / 1e6).toFixed(1)} MB` : `${(count / 1e9).toFixed(2)} GB`;
}
