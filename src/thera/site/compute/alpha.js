// Transparency, as in thera/values/alpha.py: colours under transparent pixels are filled in from visible ones around
// them, and alpha stays within the range of the input pixels around an output pixel.

/** Halvings of a picture after which one cell is as wide as what a network sees on one side. */
export const fillLevels = (halo) => Math.max(1, Math.ceil(Math.log2(halo)));

/** The box that transparent pixels of a box are filled in from: three blocks more on each side. */
export function aroundBox([top, left, bottom, right], [H, W], levels) {
  const block = 2 ** levels;
  const low = (at) => Math.max(0, Math.floor(at / block) - 3) * block;
  const high = (at, n) => Math.min(n, (Math.ceil(at / block) + 3) * block);
  return [low(top), low(left), high(bottom, H), high(right, W)];
}

/** Colours 3×h×w in [0, 1] of RGBA samples, with those under alpha 0 filled in. */
export function filledColours(data, height, width, levels) {
  const area = height * width;
  const planes = new Float32Array(3 * area);
  const known = new Float32Array(area);
  for (let i = 0; i < area; i++) {
    known[i] = data[4 * i + 3] > 0 ? 1 : 0;
    for (let k = 0; k < 3; k++) planes[k * area + i] = known[i] * (data[4 * i + k] / 255);
  }
  const { planes: filled, known: reached } = fill({ planes, known, height, width }, levels);
  // Farther away from all that is visible, samples stay as they are.
  for (let i = 0; i < area; i++) {
    if (reached[i]) continue;
    for (let k = 0; k < 3; k++) filled[k * area + i] = data[4 * i + k] / 255;
  }
  return filled;
}

function fill(image, levels) {
  const { planes, known, height, width } = image;
  if (levels === 0 || known.every((each) => each > 0) || !known.some((each) => each > 0)) return image;
  const coarse = fill(halved(image), levels - 1);
  const area = height * width;
  const filled = planes.slice();
  const reached = known.slice();
  const [rows, cols] = [between(height, coarse.height), between(width, coarse.width)];
  const small = coarse.height * coarse.width;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const i = y * width + x;
      if (known[i]) continue;
      const sums = [0, 0, 0];
      let total = 0;
      for (const [row, wy] of [[rows.low[y], 1 - rows.share[y]], [rows.high[y], rows.share[y]]]) {
        for (const [col, wx] of [[cols.low[x], 1 - cols.share[x]], [cols.high[x], cols.share[x]]]) {
          const at = row * coarse.width + col;
          const weight = wy * wx * coarse.known[at];
          total += weight;
          for (let k = 0; k < 3; k++) sums[k] += weight * coarse.planes[k * small + at];
        }
      }
      if (!(total > 0)) continue;
      reached[i] = 1;
      for (let k = 0; k < 3; k++) filled[k * area + i] = sums[k] / total;
    }
  }
  return { planes: filled, known: reached, height, width };
}

// The mean of the known values of each 2×2 block.
function halved({ planes, known, height, width }) {
  const [h, w] = [Math.ceil(height / 2), Math.ceil(width / 2)];
  const found = { planes: new Float32Array(3 * h * w), known: new Float32Array(h * w), height: h, width: w };
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (!known[y * width + x]) continue;
      const at = (y >> 1) * w + (x >> 1);
      found.known[at] += 1;
      for (let k = 0; k < 3; k++) found.planes[k * h * w + at] += planes[(k * height + y) * width + x];
    }
  }
  for (let i = 0; i < h * w; i++) {
    if (!found.known[i]) continue;
    for (let k = 0; k < 3; k++) found.planes[k * h * w + i] /= found.known[i];
    found.known[i] = 1;
  }
  return found;
}

// Of each fine position, the two coarse ones it lies between, and its share of the second.
function between(fine, coarse) {
  const found = { low: new Int32Array(fine), high: new Int32Array(fine), share: new Float32Array(fine) };
  for (let i = 0; i < fine; i++) {
    const position = (i + 0.5) / 2 - 0.5;
    const low = Math.floor(position);
    found.low[i] = Math.max(0, Math.min(coarse - 1, low));
    found.high[i] = Math.max(0, Math.min(coarse - 1, low + 1));
    found.share[i] = position - low;
  }
  return found;
}

/**
 * Limits `values` (rows × columns, in [0, 255]) to the range of the alpha around each output pixel. alpha: h×w, whose
 * first cell is 0 of both axes.
 * @param {Float32Array} values @param {Float32Array} alpha @param {number[]} shape @param {any} rows @param {any} cols
 */
export function limitAlpha(values, alpha, [h, w], rows, cols) {
  const reachOf = ({ step }) => (Math.max(rows.step, cols.step) > 1 ? Math.round(step / 2) : 0);
  /** @type {[number, number]} */
  const reach = [reachOf(rows), reachOf(cols)];
  const low = extreme(alpha, [h, w], reach, Math.min);
  const high = extreme(alpha, [h, w], reach, Math.max);
  const [ys, xs] = [neighbours(rows, h), neighbours(cols, w)];
  const count = cols.cell.length;
  for (let i = 0; i < values.length; i++) {
    const [y, x] = [Math.floor(i / count), i % count];
    let [least, most] = [255, 0];
    for (const row of [ys[0][y], ys[1][y]]) {
      for (const col of [xs[0][x], xs[1][x]]) {
        least = Math.min(least, low[row * w + col]);
        most = Math.max(most, high[row * w + col]);
      }
    }
    values[i] = Math.min(most, Math.max(least, values[i]));
  }
}

// The two cells between whose centres each output pixel lies; on a centre, that cell twice.
function neighbours({ cell, offset, step }, cells) {
  const clip = (at) => Math.max(0, Math.min(cells - 1, at));
  const other = cell.map((at, i) => {
    if (step > 1 - 1e-6 && Math.abs(offset[i]) < 1e-6) return clip(at);
    return clip(at + (offset[i] < 0 ? -1 : 1));
  });
  return [cell.map(clip), other];
}

function extreme(plane, [h, w], [down, along], pick) {
  const over = (data, reach, stride, length, clipped) => {
    if (reach === 0) return data;
    return data.map((value, i) => {
      for (let shift = -reach; shift <= reach; shift++) {
        value = pick(value, data[i + (clipped(i, shift) - Math.floor(i / stride) % length) * stride]);
      }
      return value;
    });
  };
  const within = (stride, length) => (i, shift) =>
    Math.max(0, Math.min(length - 1, (Math.floor(i / stride) % length) + shift));
  return over(over(plane, down, w, h, within(w, h)), along, 1, w, within(1, w));
}
