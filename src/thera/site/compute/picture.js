// A picture file that the browser can read, and windows of it as a network sees them.

import { readMetadata } from "./metadata.js";

const SCAN_ROWS = 256;

export class Picture {
  /**
   * Decodes a file. managed: true converts its colours to sRGB, for the screen; false keeps its samples as they are,
   * for a file with the same profile.
   */
  static async open(file, managed = false) {
    const options = /** @type {ImageBitmapOptions} */ ({
      colorSpaceConversion: managed ? "default" : "none",
      premultiplyAlpha: "none",
      imageOrientation: "from-image",
    });
    let bitmap;
    try {
      bitmap = await createImageBitmap(file, options);
    } catch {
      throw new Error(
        `${file.name ?? "This file"} is no picture that this browser can read. PNG, JPEG, WebP, AVIF, GIF and BMP work;` +
          " the program `thera app` also reads TIFF, HEIC and others.",
      );
    }
    const metadata = await readMetadata(new Uint8Array(await file.arrayBuffer()));
    return new Picture(bitmap, metadata);
  }

  grey = true;
  alpha = false;
  /** @type {OffscreenCanvas | null} */
  canvas = null;

  /** @param {ImageBitmap} bitmap @param {import("./metadata.js").Metadata} metadata */
  constructor(bitmap, metadata) {
    this.bitmap = bitmap;
    this.metadata = metadata;
    this.shape = [bitmap.height, bitmap.width];
    this.#scan();
  }

  // Whether all of it is grey, and whether anything shows through.
  #scan() {
    const [H, W] = this.shape;
    for (let top = 0; top < H; top += SCAN_ROWS) {
      const data = this.samples([top, 0, Math.min(H, top + SCAN_ROWS), W]);
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] < 255) this.alpha = true;
        if (data[i] !== data[i + 1] || data[i] !== data[i + 2]) this.grey = false;
      }
    }
  }

  /** The RGBA samples of a box [top, left, bottom, right]. @param {number[]} box */
  samples([top, left, bottom, right]) {
    const [h, w] = [bottom - top, right - left];
    if (!this.canvas || this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas = new OffscreenCanvas(w, h);
    }
    const context = /** @type {any} */ (this.canvas.getContext("2d", { willReadFrequently: true }));
    context.globalCompositeOperation = "copy";
    context.drawImage(this.bitmap, left, top, w, h, 0, 0, w, h);
    return context.getImageData(0, 0, w, h).data;
  }

  /** The colours of a box, 3×h×w in [0, 1]; what is transparent lies on white. @param {number[]} box */
  colours(box) {
    const data = this.samples(box);
    const area = data.length / 4;
    const found = new Float32Array(3 * area);
    for (let i = 0; i < area; i++) {
      const cover = data[4 * i + 3] / 255;
      for (let k = 0; k < 3; k++) found[k * area + i] = (data[4 * i + k] / 255) * cover + 1 - cover;
    }
    return found;
  }

  close() {
    this.bitmap.close();
  }
}
