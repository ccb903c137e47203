// Computes in the background. One job at a time; whoever wants it to stop ends this worker.
//
// Messages in: { id, task, ... } with the tasks below. Out: { id, progress: share }, then { id, result } or
// { id, error: message, computing }, which is true if the computation failed, as on a GPU, and not a file.

import { filterNamed } from "./filters.js";
import { cellsNeeded, since, wholeAxis } from "./grid.js";
import { ComputeError, Network, loadRuntime } from "./network.js";
import { PackedField } from "./packing.js";
import { Picture } from "./picture.js";
import { scaled, tileCuts } from "./scaling.js";

const SITE = new URL("../", import.meta.url);
const KEPT = 288 << 20; // bytes of encoded tiles that are kept for the view
const MEASURED = 96; // side of the picture that a model's speed is measured by before its first work
const VIEW_TILE = 192; // cells of a tile that is encoded for the view of a model drawn as tiles

/** Runs `work` when no other worker of this site computes, in this tab or another: two at once are no faster. */
const turn = (work) => (navigator.locks ? navigator.locks.request("thera-compute", work) : work());

/** @type {Promise<any> | null} */
let runtime = null;
const networks = new Map(); // name -> network
const pictures = new Map(); // file and colours -> picture

const tasks = {
  /** Loads the runtime and a model; gives its speed if asked to measure it. */
  async load({ model, threads, webgpu, measure }) {
    runtime ??= loadRuntime(new URL("runtime/", SITE).href, { threads, webgpu });
    const ort = await runtime;
    if (!networks.has(model.name)) {
      const url = new URL(model.file, SITE).href;
      networks.set(model.name, await Network.load(ort, { ...model, url }, new URL("compute/", SITE).href, webgpu));
    }
    const loaded = networks.get(model.name);
    loaded.model = model;
    return measure ? turn(() => measuredSpeed(loaded)) : 0;
  },

  /** The shape of a picture, and what its owner should know. */
  async describe({ file }) {
    const picture = await opened(file, false);
    const [height, width] = picture.shape;
    const { icc, exif } = picture.metadata;
    return { width, height, alpha: picture.alpha, grey: picture.grey, icc: Boolean(icc), exif: Boolean(exif) };
  },

  /** The packed field of the cells in `box`. */
  async field({ file, box, model }, id) {
    const loaded = networks.get(model);
    const picture = await opened(file, true);
    const [top, left, bottom, right] = box ?? [0, 0, ...picture.shape];
    const packed = new PackedField([top, left, bottom, right], loaded.bank, loaded.kappa);
    const [rows, cols] = tileCuts([bottom - top, right - left], loaded.model.tilePixels, loaded.model.halo);
    const total = (rows.length - 1) * (cols.length - 1);
    let done = 0;
    for (let r = 0; r + 1 < rows.length; r++) {
      for (let c = 0; c + 1 < cols.length; c++) {
        const part = [top + rows[r], left + cols[c], top + rows[r + 1], left + cols[c + 1]];
        await turn(async () => {
          const cells = await loaded.encode(part, picture.shape, (wide) => picture.colours(wide));
          packed.put(await loaded.waves(cells), cells.pixels, part, [cells.height, cells.width]);
        });
        report(id, ++done / total, loaded);
      }
    }
    return packed.bytes;
  },

  /** Encodes the whole picture, so that its tiles are there at once. */
  async prepare({ file, model }, id) {
    const loaded = networks.get(model);
    const picture = await opened(file, true);
    const [rows, cols] = picture.shape.map((n) => Math.ceil(n / VIEW_TILE));
    for (let i = 0; i < rows * cols; i++) {
      await keptTile(loaded, file, picture, [Math.floor(i / cols), i % cols]);
      report(id, (i + 1) / (rows * cols), loaded);
    }
  },

  /** A part of the picture at another size, as a PNG: `region` = [x, y, w, h], `size` = [width, height] pixels. */
  async tile({ file, model, region: [x, y, w, h], size: [width, height], filter, sharpness }) {
    const loaded = networks.get(model);
    const picture = await opened(file, true);
    const [H, W] = picture.shape;
    const [rows, cols] = [partAxis(H, height, y, y + h), partAxis(W, width, x, x + w)];
    const psf = filterNamed(filter, sharpness, loaded.kappa);
    const [top, bottom] = cellsNeeded(rows, H, psf);
    const [left, right] = cellsNeeded(cols, W, psf);
    const cells = await gathered(loaded, file, picture, [top, left, bottom, right]);
    const values = await turn(() =>
      loaded.render(cells, since(rows, top), since(cols, left), psf, [top, left], picture.shape),
    );
    const image = new ImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      for (let k = 0; k < 3; k++) image.data[4 * i + k] = 255 * values[3 * i + k];
      image.data[4 * i + 3] = 255;
    }
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext("2d")?.putImageData(image, 0, 0);
    return canvas.convertToBlob();
  },

  /** The picture at another size, as a file. */
  async file({ file, order, model }, id) {
    const loaded = networks.get(model);
    const picture = await opened(file, false);
    return scaled(loaded, picture, order, turn, (share) => report(id, share, loaded));
  },

  async forget({ file }) {
    for (const managed of [true, false]) {
      pictures.get(`${managed} ${file.key}`)?.then((picture) => picture.close());
      pictures.delete(`${managed} ${file.key}`);
    }
    for (const key of kept.keys()) if (key.startsWith(`${file.key} `)) kept.delete(key);
  },
};

/** How many pixels a second a network encodes, by a small picture. */
async function measuredSpeed(loaded) {
  const noise = Float32Array.from({ length: 3 * MEASURED ** 2 }, Math.random);
  let speed = 0;
  for (const side of [8, MEASURED]) { // the first encoding is slower
    await loaded.encode([0, 0, side, side], [side, side], () => noise.subarray(0, 3 * side ** 2));
    speed = speedOf(loaded);
    loaded.encoded = { pixels: 0, seconds: 0 };
  }
  return speed;
}

/** Tells the share that is done, and how many pixels a second were encoded so far, halos included. */
const report = (id, share, loaded) => postMessage({ id, progress: share, speed: speedOf(loaded) });

const speedOf = ({ encoded }) => (encoded.seconds ? encoded.pixels / encoded.seconds : 0);

/** @param {{ key: string, blob: File }} file */
function opened({ key, blob }, managed) {
  const name = `${managed} ${key}`;
  if (!pictures.has(name)) {
    const opening = Picture.open(blob, managed);
    opening.catch(() => pictures.delete(name));
    pictures.set(name, opening);
  }
  return pictures.get(name);
}

function partAxis(cells, size, low, high) {
  const step = (high - low) / size;
  const [whole, start] = [cells / step, low / step];
  const near = (value) => Math.abs(value - Math.round(value)) < 1e-6;
  if (near(whole) && near(start)) {
    return wholeAxis(cells, Math.round(whole), Math.round(start), Math.round(start) + size);
  }
  const cell = new Int32Array(size);
  const offset = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    const centre = low + (i + 0.5) * step;
    cell[i] = Math.max(0, Math.min(cells - 1, Math.floor(centre)));
    offset[i] = centre - cell[i] - 0.5;
  }
  return { cell, offset, step };
}

// ---- Encoded tiles of the view, the last used last

const kept = new Map();

async function keptTile(loaded, file, picture, [row, col]) {
  const key = `${file.key} ${loaded.model.name} ${row} ${col}`;
  let cells = kept.get(key);
  if (!cells) {
    const [H, W] = picture.shape;
    const box = [row * VIEW_TILE, col * VIEW_TILE, Math.min(H, (row + 1) * VIEW_TILE), Math.min(W, (col + 1) * VIEW_TILE)];
    cells = await turn(() => loaded.encode(box, picture.shape, (wide) => picture.colours(wide)));
  }
  kept.delete(key);
  kept.set(key, cells);
  let held = [...kept.values()].reduce((sum, each) => sum + each.features.byteLength, 0);
  for (const [old, each] of kept) {
    if (held <= KEPT || old === key) break;
    held -= each.features.byteLength;
    kept.delete(old);
  }
  return cells;
}

/** The cells of a box, put together from tiles that are kept. */
async function gathered(loaded, file, picture, [top, left, bottom, right]) {
  const [height, width] = [bottom - top, right - left];
  const whole = {
    width,
    height,
    features: new Float32Array(loaded.channels * height * width),
    pixels: new Float32Array(3 * height * width),
    turns: 0,
  };
  for (let row = Math.floor(top / VIEW_TILE); row * VIEW_TILE < bottom; row++) {
    for (let col = Math.floor(left / VIEW_TILE); col * VIEW_TILE < right; col++) {
      const cells = await keptTile(loaded, file, picture, [row, col]);
      for (const [name, planes] of [["features", loaded.channels], ["pixels", 3]]) {
        paste(whole[name], [height, width], cells[name], [cells.height, cells.width], planes, [
          row * VIEW_TILE - top,
          col * VIEW_TILE - left,
        ]);
      }
    }
  }
  return whole;
}

function paste(target, [H, W], source, [h, w], planes, [top, left]) {
  const [from, to] = [Math.max(0, -left), Math.min(w, W - left)];
  for (let k = 0; k < planes; k++) {
    for (let row = Math.max(0, -top); row < Math.min(h, H - top); row++) {
      const line = source.subarray((k * h + row) * w + from, (k * h + row) * w + to);
      target.set(line, (k * H + top + row) * W + left + from);
    }
  }
}

let last = Promise.resolve();
addEventListener("message", ({ data }) => {
  last = last.then(async () => {
    try {
      const result = await tasks[data.task](data, data.id);
      const transfer = result instanceof Uint8Array ? [result.buffer] : [];
      postMessage({ id: data.id, result }, { transfer });
    } catch (error) {
      const message = /** @type {Error} */ (error).message || String(error);
      postMessage({ id: data.id, error: message, computing: error instanceof ComputeError });
    }
  });
});
