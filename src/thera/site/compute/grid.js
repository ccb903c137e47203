// Where output pixels lie, and which samples of the field they are made of, as in thera/field/grid.py.
//
// An axis is { cell, offset, step }: of each output pixel the input pixel that its centre falls in, the offset in it
// (-½ to ½), and the size of an output pixel in input pixels.

const LARGEST_PATCH = 40; // samples of a cell that are evaluated together, along an axis
const BLEND_REACH = 0.1; // input pixels from a border within which both cells are blended
const SAMPLES_PER_FOOTPRINT = 3;
const SMALL_FOOTPRINT = 6;

/** Rounds halves to even, as Python does. */
export function round(value) {
  const low = Math.floor(value);
  const rest = value - low;
  if (rest !== 0.5) return Math.round(value);
  return low % 2 === 0 ? low : low + 1;
}

/** Output pixels [start, stop) of `size` over all cells, exact even for a centre on a border. */
export function wholeAxis(cells, size, start = 0, stop = size) {
  const cell = new Int32Array(stop - start);
  const offset = new Float64Array(stop - start);
  for (let i = start; i < stop; i++) {
    const at = (2 * i + 1) * cells;
    const found = Math.floor(at / (2 * size));
    cell[i - start] = found;
    offset[i - start] = (at - found * 2 * size) / (2 * size) - 0.5;
  }
  return { cell, offset, step: cells / size };
}

/** The same output pixels in a field whose first cell is `first`. */
export const since = ({ cell, offset, step }, first) => ({ cell: cell.map((at) => at - first), offset, step });

/** The first output pixel whose centre lies at or beyond the cell `edge`. */
export function firstAt(cells, size, edge) {
  // (2i + 1) · cells ≥ 2 · size · edge
  return Math.max(0, Math.min(size, Math.ceil((2 * size * edge - cells) / (2 * cells))));
}

/** The cells [low, high) of an axis of `cells` that its output pixels need. */
export function cellsNeeded(axis, cells, filter) {
  const footprint = (filter.footprint ?? 0) * axis.step;
  const margin =
    footprint > 1 ? filter.radius(footprint, 0) + 2 : axis.step < filter.finest ? 1.001 * BLEND_REACH : 0;
  const centre = (i) => axis.cell[i] + axis.offset[i] + 0.5;
  const low = Math.max(0, Math.floor(centre(0) - margin));
  const high = Math.min(cells, Math.floor(centre(axis.cell.length - 1) + margin) + 1);
  return [Math.min(low, high - 1), high];
}

/**
 * How output pixels sample the field along an axis: { axis, step, taps }. The samples of `axis` have a footprint of
 * `step` input pixels. taps: [{ index, weight }, …], sums of samples that make the output pixels; null if every sample
 * is one. `first` and `cells`: the part of the whole picture's cells that the field has.
 */
export function sampling(axis, cells, filter, first = 0, total = cells) {
  if (axis.step < filter.finest) return blended(axis, cells, filter.finest);
  if (filter.footprint === null || filter.footprint * axis.step <= 1) return { axis, step: axis.step, taps: null };
  return averaged(axis, cells, filter, first, total);
}

// Output pixels larger than a cell are weighted sums of samples 1/m apart.
function averaged(axis, cells, filter, first, total) {
  const size = filter.footprint * axis.step;
  const m = Math.max(Math.ceil(SAMPLES_PER_FOOTPRINT / size), size < SMALL_FOOTPRINT ? 2 : 1);
  const radius = filter.radius(size, 1 / m) * m;
  const count = Math.ceil(2 * radius) + 2;
  const length = axis.cell.length;
  const taps = Array.from({ length: count }, () => ({ index: new Int32Array(length), weight: new Float32Array(length) }));
  const weights = new Float64Array(count);
  for (let i = 0; i < length; i++) {
    const centre = (axis.cell[i] + axis.offset[i] + 0.5) * m - 0.5;
    const low = Math.floor(centre - radius);
    let sum = 0;
    for (let k = 0; k < count; k++) {
      const inside = low + k >= -first * m && low + k < (total - first) * m;
      weights[k] = inside ? filter.weight((low + k - centre) / m, size, 1 / m) : 0;
      sum += weights[k];
    }
    for (let k = 0; k < count; k++) {
      taps[k].index[i] = Math.max(0, Math.min(cells * m - 1, low + k));
      taps[k].weight[i] = weights[k] / sum;
    }
  }
  return { axis: wholeAxis(cells, cells * m), step: 1 / (m * filter.footprint), taps };
}

// Output pixels far smaller than a cell: near a border the samples of both cells are blended.
function blended(axis, cells, step) {
  const length = axis.cell.length;
  const reach = 1.001 * BLEND_REACH;
  const [low, high] = [Math.max(axis.cell[0] - 1, 0), Math.min(axis.cell[length - 1] + 2, cells)];
  /** @type {number[][]} */
  const [cell, offset] = [[], []];
  const place = new Map(); // of each cell, the sample of output pixel 0 as if it had one
  let i0 = 0;
  const centre = (i) => axis.cell[i] + axis.offset[i] + 0.5;
  for (let p = low; p < high; p++) {
    while (i0 < length && centre(i0) < p - reach) i0++;
    place.set(p, cell.length - i0);
    for (let i = i0; i < length && centre(i) < p + 1 + reach; i++) {
      cell.push(p);
      offset.push(centre(i) - p - 0.5);
    }
  }
  const own = { index: new Int32Array(length), weight: new Float32Array(length) };
  const other = { index: new Int32Array(length), weight: new Float32Array(length) };
  for (let i = 0; i < length; i++) {
    const ahead = axis.cell[i] + (axis.offset[i] > 0 ? 1 : -1); // the cell across the nearest border
    const gap = 0.5 - Math.abs(axis.offset[i]);
    const share = gap < BLEND_REACH && ahead >= 0 && ahead < cells ? 0.5 - gap / (2 * BLEND_REACH) : 0;
    own.index[i] = place.get(axis.cell[i]) + i;
    own.weight[i] = 1 - share;
    other.index[i] = share > 0 ? place.get(ahead) + i : own.index[i];
    other.weight[i] = share;
  }
  const samples = { cell: Int32Array.from(cell), offset: Float64Array.from(offset), step: axis.step };
  return { axis: samples, step, taps: [own, other] };
}

/**
 * An axis cut into patches of `length` equally spaced samples: patch u samples cell[u] at shift[u] + j · step.
 * index: the sample of each position of the axis.
 */
export function patches({ cell, offset, step }) {
  const n = cell.length;
  const within = new Int32Array(n);
  let longest = 0;
  for (let i = 1; i < n; i++) {
    within[i] = cell[i] === cell[i - 1] ? within[i - 1] + 1 : 0;
    longest = Math.max(longest, within[i]);
  }
  longest += 1;
  const length = Math.ceil(longest / Math.ceil(longest / LARGEST_PATCH));
  /** @type {number[][]} */
  const [cells, shift] = [[], []];
  const index = new Int32Array(n);
  for (let i = 0; i < n; i++) {
    if (within[i] % length === 0) {
      cells.push(cell[i]);
      shift.push(offset[i]);
    }
    index[i] = (cells.length - 1) * length + (within[i] % length);
  }
  return { cell: Int32Array.from(cells), shift: Float64Array.from(shift), length, step, index };
}
