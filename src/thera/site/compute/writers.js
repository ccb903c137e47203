// Files made from bands of rows. PNG is written as the rows come, of any size; JPEG and WebP by the browser's canvas.

import { joined, piped, withMetadata } from "./metadata.js";

const CHUNK = 8 << 20; // compressed bytes that are handed to the browser at a time, which may store them on disk
const MOST_CANVAS = 1 << 27; // pixels of a canvas: half a gigabyte
const LONGEST = { "image/jpeg": 16384, "image/webp": 16383 };

/**
 * Opens a file of `type`, to which `rows` (Uint8ClampedArray of whole rows of `channels` samples: 1 grey, 3 RGB or
 * 4 RGBA) are written; `end` gives the Blob.
 */
export function openWriter(type, width, height, channels, metadata, quality) {
  if (type === "image/png") return new PngWriter(width, height, channels, metadata);
  return new CanvasWriter(type, width, height, channels, metadata, quality);
}

/** Why a file of this type and size cannot be written here; "" if it can. */
export function refusal(type, width, height) {
  if (type === "image/png") return "";
  const name = type === "image/jpeg" ? "JPEG" : "WebP";
  if (Math.max(width, height) <= LONGEST[type] && width * height <= MOST_CANVAS) return "";
  return `${width} × ${height} is more than a browser writes as ${name}: choose PNG, or a smaller size.`;
}

class CanvasWriter {
  constructor(type, width, height, channels, metadata, quality) {
    this.type = type;
    this.width = width;
    this.channels = channels;
    this.metadata = metadata;
    this.quality = quality;
    this.row = 0;
    this.canvas = new OffscreenCanvas(width, height);
    const context = this.canvas.getContext("2d", { alpha: channels === 4, willReadFrequently: true });
    if (!context) throw new Error(`This browser has no room for ${width} × ${height} pixels: choose PNG.`);
    this.context = context;
  }

  async rows(samples) {
    const { width, channels } = this;
    const count = samples.length / channels / width;
    const image = new ImageData(width, count);
    const opaque = this.type === "image/jpeg"; // which has no transparency: it is put on white
    for (let i = 0; i < width * count; i++) {
      const alpha = channels === 4 ? samples[4 * i + 3] : 255;
      for (let k = 0; k < 3; k++) {
        const value = samples[i * channels + (channels === 1 ? 0 : k)];
        image.data[4 * i + k] = opaque ? 255 + ((value - 255) * alpha) / 255 : value;
      }
      image.data[4 * i + 3] = opaque ? 255 : alpha;
    }
    this.context.putImageData(image, 0, this.row);
    this.row += count;
  }

  async end() {
    const { type } = this;
    const file = await this.canvas.convertToBlob({ type, quality: this.quality / 100 });
    if (file.type !== type) throw new Error(`This browser cannot write ${type.slice(6)}: choose PNG.`);
    return withMetadata(file, this.metadata);
  }
}

class PngWriter {
  constructor(width, height, channels, metadata) {
    this.width = width;
    this.height = height;
    this.channels = channels;
    this.metadata = metadata;
    /** @type {Blob[]} */
    this.parts = [];
    this.stream = new CompressionStream("deflate");
    this.writer = this.stream.writable.getWriter();
    this.reading = this.#read();
    this.above = new Uint8Array(width * channels);
  }

  async #read() {
    const reader = this.stream.readable.getReader();
    /** @type {Uint8Array[]} */
    let waiting = [];
    let count = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (value) waiting.push(value);
      count += value?.length ?? 0;
      if (count > CHUNK || (done && count)) {
        this.parts.push(new Blob([chunk("IDAT", joined(waiting))]));
        [waiting, count] = [[], 0];
      }
      if (done) return;
    }
  }

  async rows(samples) {
    const { channels } = this;
    const stride = this.width * channels;
    const count = samples.length / stride;
    const filtered = new Uint8Array(count * (stride + 1));
    for (let row = 0; row < count; row++) {
      const line = samples.subarray(row * stride, (row + 1) * stride);
      paeth(line, this.above, filtered.subarray(row * (stride + 1), (row + 1) * (stride + 1)), channels);
      this.above.set(line);
    }
    await this.writer.ready;
    await this.writer.write(filtered);
  }

  async end() {
    await this.writer.close();
    await this.reading;
    const { icc, exif } = this.metadata;
    const header = new Uint8Array(13);
    const view = new DataView(header.buffer);
    view.setUint32(0, this.width);
    view.setUint32(4, this.height);
    header.set([8, { 1: 0, 3: 2, 4: 6 }[this.channels], 0, 0, 0], 8);
    const before = [Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a), chunk("IHDR", header)];
    if (icc) {
      const name = new TextEncoder().encode("ICC profile\0\0");
      before.push(chunk("iCCP", joined([name, await piped(icc, new CompressionStream("deflate"))])));
    }
    if (exif) before.push(chunk("eXIf", exif));
    return new Blob([...before, ...this.parts, chunk("IEND", new Uint8Array(0))], { type: "image/png" });
  }
}

/** PNG's filter 4: the difference to the neighbour that predicts a sample best. */
function paeth(line, above, out, channels) {
  out[0] = 4;
  for (let i = 0; i < line.length; i++) {
    const a = i < channels ? 0 : line[i - channels];
    const b = above[i];
    const c = i < channels ? 0 : above[i - channels];
    const [pa, pb, pc] = [Math.abs(b - c), Math.abs(a - c), Math.abs(a + b - 2 * c)];
    out[i + 1] = line[i] - (pa <= pb && pa <= pc ? a : pb <= pc ? b : c);
  }
}

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});

function chunk(kind, data) {
  const bytes = new Uint8Array(data.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set(new TextEncoder().encode(kind), 4);
  bytes.set(data, 8);
  let crc = 0xffffffff;
  for (let i = 4; i < data.length + 8; i++) crc = CRC[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
  view.setUint32(data.length + 8, crc ^ 0xffffffff);
  return bytes;
}
