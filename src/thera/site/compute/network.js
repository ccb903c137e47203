// A model in the browser: ONNX Runtime encodes pixels into features, and turns features into pixels or a packed field.

import { patches, sampling } from "./grid.js";

const BLOCK_BYTES = 24 << 20; // of coefficients that are computed at once
const CHECKED = [7, 9]; // rows and columns that a GPU is checked on: odd, as GPUs work in fours
const SAME = 1e-3; // of the largest feature: less than a level of 255 in the picture

/** @typedef {{ width: number, height: number, features: Float32Array, pixels: Float32Array, turns: number }} Cells
 * Features C×h×w of the picture that was turned by `turns` quarters, turned back; and pixels 3×h×w in [0, 1]. */

/** ONNX Runtime failed, as it does if a GPU is lost. */
export class ComputeError extends Error {}

async function computing(work) {
  try {
    return await work();
  } catch (error) {
    throw new ComputeError(/** @type {Error} */ (error).message || String(error));
  }
}

/** Loads ONNX Runtime: the build with WebGPU if the folder has it and the browser can use it. */
export async function loadRuntime(folder, { webgpu = false, threads = 1 }) {
  const name = webgpu ? "ort.webgpu.min.mjs" : "ort.wasm.min.mjs";
  const ort = await computing(() => import(new URL(name, folder).href));
  ort.env.wasm.wasmPaths = folder;
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  return ort;
}

export class Network {
  /**
   * @param {any} ort ONNX Runtime
   * @param {{ url: string, halo: number, components: number, pixelBias: number[] }} model
   * @param {string} graphs the folder of the two graphs
   */
  static async load(ort, model, graphs, webgpu = false) {
    const wasm = { executionProviders: ["wasm"], graphOptimizationLevel: "all" };
    const create = async (url, options) => {
      const data = await bytes(url);
      const session = await computing(() => ort.InferenceSession.create(data, options));
      return {
        run: (...given) => computing(() => session.run(...given)),
        release: () => session.release(),
      };
    };
    let encoder = await create(model.url, wasm);
    const rendering = await create(new URL("rendering.onnx", graphs), wasm);
    const packing = await create(new URL("packing.onnx", graphs), wasm);
    if (webgpu) {
      const fast = await create(model.url, { executionProviders: ["webgpu"] });
      await checkEqual(ort, fast, encoder);
      await encoder.release();
      encoder = fast;
    }
    const network = new Network(ort, model, encoder, rendering, packing);
    await network.readHead();
    return network;
  }

  channels = 0;
  count = 0; // of the components
  kappa = 0;
  /** @type {number[][]} the frequencies: down the rows, along the columns */
  bank = [];
  /** @type {number[][][]} the bank for each number of quarter turns */
  banks = [];

  constructor(ort, model, encoder, rendering, packing) {
    this.ort = ort;
    this.model = model;
    this.encoder = encoder;
    this.rendering = rendering;
    this.packing = packing;
    /** @type {any} the last layer, transposed; and with its amplitudes channel by channel */
    this.head = this.headByChannel = null;
    this.encoded = { pixels: 0, seconds: 0 };
  }

  // The last layer, the bank and κ are outputs of the graph: running it on one pixel is the cheapest way to them.
  async readHead() {
    const image = this.tensor(new Float32Array(3), [1, 3, 1, 1]);
    const names = ["head_weight", "head_bias", "components", "kappa"];
    const found = await this.encoder.run({ image }, names);
    const [weight, bias] = [found.head_weight.data, found.head_bias.data];
    const [C, O] = found.head_weight.dims;
    const c = O / 4;
    // Transposed. By channel: first the c amplitudes of red, then of green, of blue, then the phases.
    const byChannel = (o) => (o < 3 * c ? (o % c) * 3 + Math.floor(o / c) : o);
    const ordered = (order) => {
      const matrix = new Float32Array(O * C);
      const vector = new Float32Array(O);
      for (let o = 0; o < O; o++) {
        vector[o] = bias[order(o)];
        for (let i = 0; i < C; i++) matrix[o * C + i] = weight[i * O + order(o)];
      }
      return { weight: this.tensor(matrix, [O, C]), bias: this.tensor(vector, [O, 1]) };
    };
    this.channels = C;
    this.count = c;
    this.head = ordered((o) => o);
    this.headByChannel = ordered(byChannel);
    this.kappa = Number(found.kappa.data[0]);
    const bank = [...found.components.data].map(Number);
    this.bank = [bank.slice(0, c), bank.slice(c)];
    // A quarter turn takes w = (w₁, w₂) to (w₂, -w₁).
    this.banks = [this.bank];
    for (let turn = 1; turn < 4; turn++) {
      const [w1, w2] = this.banks[turn - 1];
      this.banks.push([w2, w1.map((w) => -w)]);
    }
  }

  tensor(data, dims) {
    return new this.ort.Tensor("float32", data, dims);
  }

  integers(values, dims = [values.length]) {
    return new this.ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims);
  }

  /**
   * Encodes the cells of `box` = [top, left, bottom, right]. `read` gives the pixels of a box, 3×h×w in [0, 1].
   * turns: how many quarters the picture is turned before, for the mean of four turns.
   * @param {number[]} box @param {number[]} shape @param {(box: number[]) => Float32Array} read @param {number} turns
   * @returns {Promise<Cells>}
   */
  async encode(box, [H, W], read, turns = 0) {
    const { halo } = this.model;
    const wide = [
      Math.max(0, box[0] - halo),
      Math.max(0, box[1] - halo),
      Math.min(H, box[2] + halo),
      Math.min(W, box[3] + halo),
    ];
    const image = await read(wide);
    const [h, w] = [wide[2] - wide[0], wide[3] - wide[1]];
    const began = performance.now();
    const shape = turns % 2 ? [w, h] : [h, w];
    const input = this.tensor(turned(image, 3, [h, w], turns), [1, 3, ...shape]);
    const found = await this.encoder.run({ image: input }, ["features"]);
    this.encoded.pixels += h * w;
    this.encoded.seconds += (performance.now() - began) / 1000;
    const features = turned(found.features.data, this.channels, shape, (4 - turns) % 4);
    const inner = [box[0] - wide[0], box[1] - wide[1], box[2] - wide[0], box[3] - wide[1]];
    const pixels = cropped(image, 3, [h, w], inner);
    const { pixelBias } = this.model;
    const area = pixels.length / 3;
    if (pixelBias.some(Boolean)) pixels.forEach((value, i) => (pixels[i] = value + pixelBias[Math.floor(i / area)]));
    const result = {
      width: box[3] - box[1],
      height: box[2] - box[0],
      features: cropped(features, this.channels, [h, w], inner),
      pixels,
      turns,
    };
    found.features.dispose?.();
    return result;
  }

  /**
   * The field of some cells at the output pixels of two axes: rows × columns × 3 numbers, of which 1 is white.
   * `origin` is the first cell in a picture of `picture` = [H, W] cells; the axes count from `origin`.
   * @param {Cells} cells
   */
  async render(cells, rows, cols, filter, origin, picture) {
    const down = sampling(rows, cells.height, filter, origin[0], picture[0]);
    const along = sampling(cols, cells.width, filter, origin[1], picture[1]);
    const [y, x] = [patches(down.axis), patches(along.axis)];
    const bank = this.banks[cells.turns];
    const table = this.#table(bank, y, x, down.step, along.step, filter);
    const per = 4 * Math.max(10 * this.count, 6 * y.length * x.length);
    const block = Math.max(1, Math.floor(BLOCK_BYTES / per / Math.min(x.cell.length, 1024)));
    const stripe = x.cell.length * x.length * 3;
    const samples = new Float32Array(y.cell.length * y.length * stripe);
    const shared = {
      ...this.headByChannel,
      features: this.tensor(cells.features, [this.channels, cells.height, cells.width]),
      pixels: this.tensor(cells.pixels, [3, cells.height, cells.width]),
      table,
    };
    for (let q = 0; q < x.cell.length; q += 1024) {
      const across = part(x, q, Math.min(q + 1024, x.cell.length));
      for (let p = 0; p < y.cell.length; p += block) {
        const lines = part(y, p, Math.min(p + block, y.cell.length));
        const values = await this.#evaluate(bank, shared, lines, across);
        const width = across.cell.length * x.length * 3;
        for (let line = 0; line < lines.cell.length * y.length; line++) {
          const row = values.subarray(line * width, (line + 1) * width);
          samples.set(row, (p * y.length + line) * stripe + q * x.length * 3);
        }
      }
    }
    const wide = reduced(samples, [y.cell.length * y.length, stripe / 3], x.index, along.taps, 1);
    return reduced(wide.data, wide.shape, y.index, down.taps, 0).data;
  }

  async #evaluate(bank, shared, lines, across) {
    const phases = (waves, { shift }) => {
      const found = new Float32Array(waves.length * shift.length);
      waves.forEach((w, k) => shift.forEach((at, i) => (found[k * shift.length + i] = wrapped(w * at))));
      return found;
    };
    const [p, q] = [lines.cell.length, across.cell.length];
    const found = await this.rendering.run({
      ...shared,
      rows: this.integers(lines.cell),
      cols: this.integers(across.cell),
      down: this.tensor(phases(bank[0], lines), [this.count, p, 1]),
      along: this.tensor(phases(bank[1], across), [this.count, 1, q]),
      size: this.integers([p, q, lines.length, across.length]),
    });
    return found.values.data;
  }

  // sin(w·x) and cos(w·x) at the samples of a patch, times the filter's gain: S×2c.
  #table(bank, y, x, stepDown, stepAlong, filter) {
    const c = this.count;
    const table = new Float32Array(y.length * x.length * 2 * c);
    for (let k = 0; k < c; k++) {
      const [w1, w2] = [bank[0][k], bank[1][k]];
      const gain = filter.gain(stepDown * w1, stepAlong * w2);
      for (let i = 0; i < y.length; i++) {
        for (let j = 0; j < x.length; j++) {
          const at = (i * x.length + j) * 2 * c + k;
          const angle = w1 * i * y.step + w2 * j * x.step;
          table[at] = gain * Math.sin(angle);
          table[at + c] = gain * Math.cos(angle);
        }
      }
    }
    return this.tensor(table, [y.length * x.length, 2 * c]);
  }

  /** The waves of some cells as half floats, c×(h·w)×4, as a packed field holds them. @param {Cells} cells */
  async waves(cells) {
    const features = this.tensor(cells.features, [this.channels, cells.height * cells.width]);
    const found = await this.packing.run({ ...this.head, features, count: this.integers([this.count]) });
    const { data } = found.waves;
    return new Uint16Array(data.buffer, data.byteOffset, data.length);
  }

  async release() {
    await Promise.all([this.encoder, this.rendering, this.packing].map((session) => session.release()));
  }
}

/** Throws unless both sessions compute the same features. Drivers of GPUs have errors, which would not be told. */
async function checkEqual(ort, session, trusted) {
  const [height, width] = CHECKED;
  const values = Float32Array.from({ length: 3 * height * width }, (_, i) => (i * 0.618034) % 1); // an even spread
  const features = async (each) =>
    (await each.run({ image: new ort.Tensor("float32", values, [1, 3, height, width]) }, ["features"])).features.data;
  const [found, expected] = [await features(session), await features(trusted)];
  const largest = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const same = expected.every((value, i) => Math.abs(value - found[i]) <= SAME * largest);
  if (!same) throw new ComputeError("This GPU computes something else than the processor.");
}

/** Bytes of a file of the site. */
async function bytes(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${new URL(url, location.href).pathname} is missing from this site.`);
  return new Uint8Array(await response.arrayBuffer());
}

const wrapped = (angle) => angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));

const part = ({ cell, shift, length, step }, start, stop) => ({
  cell: cell.subarray(start, stop),
  shift: shift.subarray(start, stop),
  length,
  step,
});

/** Planes×h×w numbers, turned by quarters as numpy.rot90 does.
 * @param {Float32Array} data @param {number} planes @param {number[]} shape @param {number} quarters */
function turned(data, planes, [h, w], quarters) {
  if (quarters === 0) return data;
  const found = new Float32Array(data.length);
  const width = quarters % 2 ? h : w;
  for (let k = 0; k < planes; k++) {
    const plane = k * h * w;
    for (let row = 0; row < h; row++) {
      for (let col = 0; col < w; col++) {
        const [y, x] =
          quarters === 1 ? [w - 1 - col, row] : quarters === 2 ? [h - 1 - row, w - 1 - col] : [col, h - 1 - row];
        found[plane + y * width + x] = data[plane + row * w + col];
      }
    }
  }
  return found;
}

/** The part [top, left, bottom, right] of planes×h×w numbers.
 * @param {Float32Array} data @param {number} planes @param {number[]} shape @param {number[]} box */
export function cropped(data, planes, [h, w], [top, left, bottom, right]) {
  const [rows, cols] = [bottom - top, right - left];
  const found = new Float32Array(planes * rows * cols);
  for (let k = 0; k < planes; k++) {
    for (let row = 0; row < rows; row++) {
      const from = (k * h + top + row) * w + left;
      found.set(data.subarray(from, from + cols), (k * rows + row) * cols);
    }
  }
  return found;
}

// Samples (rows × columns × 3) to output pixels along one axis (0: down the rows). index: where the samples of the axis
// lie; taps: which of them make an output pixel.
/**
 * @param {Float32Array} data @param {number[]} shape @param {Int32Array} index
 * @param {{index: Int32Array, weight: Float32Array}[] | null} taps @param {number} axis
 * @returns {{data: Float32Array, shape: number[]}}
 */
function reduced(data, [rows, cols], index, taps, axis) {
  const sums = (taps ?? [{ index: index.map((_, i) => i), weight: null }]).map((tap) => ({
    index: tap.index.map((i) => index[i]),
    weight: tap.weight,
  }));
  const count = sums[0].index.length;
  if (!taps && count === (axis === 0 ? rows : cols)) return { data, shape: [rows, cols] };
  const shape = axis === 0 ? [count, cols] : [rows, count];
  const out = new Float32Array(shape[0] * shape[1] * 3);
  for (const { index: from, weight } of sums) {
    for (let row = 0; row < shape[0]; row++) {
      const factor = axis === 0 && weight ? weight[row] : 1;
      const source = (axis === 0 ? from[row] : row) * cols * 3;
      const target = row * shape[1] * 3;
      if (axis === 0) {
        if (factor === 0) continue;
        for (let i = 0; i < cols * 3; i++) out[target + i] += factor * data[source + i];
        continue;
      }
      for (let col = 0; col < count; col++) {
        const w = weight ? weight[col] : 1;
        const [a, b] = [target + 3 * col, source + 3 * from[col]];
        out[a] += w * data[b];
        out[a + 1] += w * data[b + 1];
        out[a + 2] += w * data[b + 2];
      }
    }
  }
  return { data: out, shape };
}
