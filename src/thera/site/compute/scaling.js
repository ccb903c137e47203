// A picture at another size, tile by tile: encode, render, write. Never more than a tile is held as a field.

import { aroundBox, fillLevels, filledColours, limitAlpha } from "./alpha.js";
import { filterNamed } from "./filters.js";
import { cellsNeeded, firstAt, since, wholeAxis } from "./grid.js";
import { cropped } from "./network.js";
import { openWriter } from "./writers.js";

const LEAST = 32; // cells of a tile's side
const BAND = 64 << 20; // bytes of output that are held
const WRITTEN = 64; // rows that are written at a time

/** Cuts n cells into equal parts of at most `side`. */
export function cuts(n, side) {
  const count = Math.ceil(n / side);
  return Array.from({ length: count + 1 }, (_, i) => Math.round((n * i) / count));
}

/** The parts of the two axes of cells for tiles of at most `pixels`, their halo included, and `tallest` rows. */
export function tileCuts([H, W], pixels, halo, tallest = Infinity) {
  if (H * W <= pixels && H <= tallest) return [[0, H], [0, W]]; // one tile, whatever its shape
  const square = Math.max(LEAST, Math.floor(Math.sqrt(pixels)) - 2 * halo);
  // Along an axis that one tile spans no halo is needed, so that the other may be longer.
  const longest = W <= square ? Math.floor(pixels / W) - 2 * halo : square;
  const down = Math.max(LEAST, Math.min(H, tallest, longest));
  const along = Math.max(LEAST, Math.floor(pixels / Math.min(H, down + 2 * halo)) - 2 * halo);
  return [cuts(H, down), cuts(W, along)];
}

/** Pixels that are encoded for a picture of this shape, halos included. */
export function encodedPixels([H, W], { tilePixels, halo }) {
  const [rows, cols] = tileCuts([H, W], tilePixels, halo);
  const sum = (at, n) => {
    let total = 0;
    for (let i = 0; i + 1 < at.length; i++) total += Math.min(n, at[i + 1] + halo) - Math.max(0, at[i] - halo);
    return total;
  };
  return sum(rows, H) * sum(cols, W);
}

/**
 * Scales `picture` to `order` = { width, height, filter, sharpness, ensemble, type, quality } and gives a Blob.
 * turn(work) runs work when it is this job's turn; progress is called with the share that is done.
 */
export async function scaled(network, picture, order, turn, progress) {
  const { width, height } = order;
  const filter = filterNamed(order.filter, order.sharpness, network.kappa);
  const [H, W] = picture.shape;
  const planes = picture.alpha ? 4 : picture.grey ? 1 : 3;
  const writer = openWriter(order.type, width, height, planes, picture.metadata, order.quality);
  const identity = width === W && height === H && order.filter === "gaussian" && order.sharpness === 1;
  const tallest = Math.floor((BAND / (width * planes)) * (H / height));
  const [rowCuts, colCuts] = tileCuts(picture.shape, network.model.tilePixels, network.model.halo, tallest);
  const tiles = [];
  for (let r = 0; r + 1 < rowCuts.length; r++) {
    const [start, stop] = [rowCuts[r], rowCuts[r + 1]].map((cut) => firstAt(H, height, cut));
    tiles.push({ start, stop, columns: [] });
    for (let c = 0; c + 1 < colCuts.length; c++) {
      const [left, right] = [colCuts[c], colCuts[c + 1]].map((cut) => firstAt(W, width, cut));
      if (stop > start && right > left) tiles[r].columns.push([left, right]);
    }
  }
  const total = tiles.reduce((sum, { columns }) => sum + columns.length, 0);
  let done = 0;
  for (const { start, stop, columns } of tiles) {
    if (stop === start) continue;
    const band = new Uint8ClampedArray((stop - start) * width * planes);
    const rows = wholeAxis(H, height, start, stop);
    for (const [left, right] of columns) {
      const cols = wholeAxis(W, width, left, right);
      const part = identity
        ? ownPixels(picture, rows, cols, planes)
        : await renderTile(network, picture, rows, cols, filter, planes, order.ensemble ? 4 : 1, turn);
      for (let y = 0; y < stop - start; y++) {
        const from = y * (right - left) * planes;
        band.set(part.subarray(from, from + (right - left) * planes), (y * width + left) * planes);
      }
      progress(++done / total);
    }
    const line = WRITTEN * width * planes;
    for (let at = 0; at < band.length; at += line) await writer.rows(band.subarray(at, at + line));
  }
  return writer.end();
}

function ownPixels(picture, rows, cols, planes) {
  const data = picture.samples([rows.cell[0], cols.cell[0], rows.cell.at(-1) + 1, cols.cell.at(-1) + 1]);
  if (planes === 4) return data;
  const found = new Uint8ClampedArray((data.length / 4) * planes);
  for (let i = 0; i < found.length; i++) found[i] = data[Math.floor(i / planes) * 4 + (i % planes)];
  return found;
}

/** Samples of the output pixels of two axes: rows × columns × planes. */
async function renderTile(network, picture, rows, cols, filter, planes, turns, turn) {
  const [H, W] = picture.shape;
  const [top, bottom] = cellsNeeded(rows, H, filter);
  const [left, right] = cellsNeeded(cols, W, filter);
  const box = [top, left, bottom, right];
  const [y, x] = [since(rows, top), since(cols, left)];
  const values = async (read) => {
    let sum = new Float32Array(0);
    for (let quarters = 0; quarters < turns; quarters++) {
      const found = await turn(async () => {
        const cells = await network.encode(box, picture.shape, read, quarters);
        return network.render(cells, y, x, filter, [top, left], picture.shape);
      });
      sum = quarters ? sum.map((value, i) => value + found[i]) : found;
    }
    return turns === 1 ? sum : sum.map((value) => value / turns);
  };
  const colours = await values((wide) => readColours(picture, wide, network.model.halo));
  const count = rows.cell.length * cols.cell.length;
  const out = new Uint8ClampedArray(count * planes);
  if (planes === 1) {
    for (let i = 0; i < count; i++) out[i] = 85 * (colours[3 * i] + colours[3 * i + 1] + colours[3 * i + 2]);
    return out;
  }
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < 3; k++) out[i * planes + k] = 255 * colours[3 * i + k];
  }
  if (planes === 4) {
    const alpha = await renderAlpha(picture, box, rows, cols, values);
    for (let i = 0; i < count; i++) out[4 * i + 3] = alpha[i];
  }
  return out;
}

function readColours(picture, box, halo) {
  if (!picture.alpha) return picture.colours(box);
  const levels = fillLevels(halo);
  const wide = aroundBox(box, picture.shape, levels);
  const shape = [wide[2] - wide[0], wide[3] - wide[1]];
  const filled = filledColours(picture.samples(wide), shape[0], shape[1], levels);
  return cropped(filled, 3, shape, [box[0] - wide[0], box[1] - wide[1], box[2] - wide[0], box[3] - wide[1]]);
}

async function renderAlpha(picture, box, rows, cols, values) {
  const alphaOf = (data) => Float32Array.from({ length: data.length / 4 }, (_, i) => data[4 * i + 3]);
  const around = [0, 1].map((i) => Math.ceil([rows, cols][i].step) + 1);
  const [H, W] = picture.shape;
  const window = [
    Math.max(0, box[0] - around[0]),
    Math.max(0, box[1] - around[1]),
    Math.min(H, box[2] + around[0]),
    Math.min(W, box[3] + around[1]),
  ];
  const alpha = alphaOf(picture.samples(window));
  const first = alpha[0];
  if (alpha.every((value) => value === first)) return new Float32Array(rows.cell.length * cols.cell.length).fill(first);
  const found = await values((wide) => {
    const plane = alphaOf(picture.samples(wide)).map((value) => value / 255);
    const three = new Float32Array(3 * plane.length);
    for (let k = 0; k < 3; k++) three.set(plane, k * plane.length);
    return three;
  });
  const mean = new Float32Array(found.length / 3);
  for (let i = 0; i < mean.length; i++) mean[i] = 85 * (found[3 * i] + found[3 * i + 1] + found[3 * i + 2]);
  const shape = [window[2] - window[0], window[3] - window[1]];
  limitAlpha(mean, alpha, shape, since(rows, window[0]), since(cols, window[1]));
  return mean;
}
