// A field as the viewer reads it: the format of thera/web/packing.py, which viewer/field.js parses.

const MAGIC = "THERAFLD";

/** The packed field of a box of cells, filled in part by part. */
export class PackedField {
  /** @param {number[]} box @param {number[][]} bank @param {number} kappa */
  constructor([top, left, bottom, right], bank, kappa) {
    this.origin = [top, left];
    this.height = bottom - top;
    this.width = right - left;
    this.count = bank[0].length;
    const facts = { width: this.width, height: this.height, components: bank, kappa };
    let header = new TextEncoder().encode(JSON.stringify(facts));
    const pad = (16 - ((12 + header.length) % 16)) % 16;
    header = new TextEncoder().encode(JSON.stringify(facts) + " ".repeat(pad));
    const start = 12 + header.length;
    this.bytes = new Uint8Array(start + 8 * (this.count + 1) * this.height * this.width);
    this.bytes.set(new TextEncoder().encode(MAGIC));
    new DataView(this.bytes.buffer).setUint32(8, header.length, true);
    this.bytes.set(header, 12);
    this.layers = new Uint16Array(this.bytes.buffer, start);
  }

  /**
   * Puts in some cells, the first of which is `first` of the picture: their waves (c×P×4 half floats) and pixels.
   * @param {Uint16Array} waves @param {Float32Array} pixels @param {number[]} first @param {number[]} shape
   */
  put(waves, pixels, first, [h, w]) {
    const [top, left] = [first[0] - this.origin[0], first[1] - this.origin[1]];
    const area = h * w;
    for (let row = 0; row < h; row++) {
      const place = (layer) => 4 * ((layer * this.height + top + row) * this.width + left);
      let at = place(0);
      for (let col = 0; col < w; col++, at += 4) {
        for (let k = 0; k < 3; k++) this.layers[at + k] = half(pixels[k * area + row * w + col]);
        this.layers[at + 3] = ONE;
      }
      for (let k = 0; k < this.count; k++) {
        const from = 4 * (k * area + row * w);
        this.layers.set(waves.subarray(from, from + 4 * w), place(k + 1));
      }
    }
  }
}

const ONE = 0x3c00;

/** The half float nearest to a number from 0 up, as 16 bits. */
export function half(value) {
  if (value < 2 ** -14) return roundEven(Math.max(0, value) * 2 ** 24);
  if (value >= 65520) return 0x7c00;
  const exponent = Math.floor(Math.log2(value));
  return ((exponent + 15) << 10) + roundEven((value / 2 ** exponent) * 1024) - 1024;
}

function roundEven(value) {
  const rounded = Math.round(value);
  return rounded - value === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}
