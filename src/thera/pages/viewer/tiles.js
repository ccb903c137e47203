// Shows the picture as tiles that a server renders. Each is an <img> that the browser moves, turns and tilts.

import { clamp, multiply, scaling } from "./geometry.js";

const SIDE = 256;
const KEPT = 120; // tiles that are kept, also out of sight

/**
 * @typedef {Object} Tile
 * @property {number[]} region [left, top, width, height] in the picture's pixels; they need not be whole
 * @property {number[]} size [width, height] of the tile
 * @property {number} scale of the tile, a power of two
 * @property {string} filter
 * @property {number} sharpness
 * @property {string} shown "picture", "gradient" or "laplacian"
 */
/** @typedef {(tile: Tile) => string | Promise<string>} TileSource The URL of a tile, now or later. */

export class TileLayer {
  /** @param {HTMLElement} element @param {TileSource} urlOf */
  constructor(element, urlOf, { onchange = () => {}, most = 64 } = {}) {
    this.element = element;
    this.urlOf = urlOf;
    this.onchange = onchange;
    this.most = most; // the largest scale that tiles are asked at
    this.levels = new Map(); // level -> <div> of tiles, of 2^level pixels to one of the picture
    this.level = 0; // the one that is looked at
    this.look = "";
  }

  /** The number of tiles that are still loading. */
  get waiting() {
    return this.element.querySelectorAll("img:not([data-done])").length;
  }

  clear() {
    // Without its src, the browser cancels the request of an image.
    this.element.querySelectorAll("img").forEach((image) => image.removeAttribute("src"));
    this.element.replaceChildren();
    this.levels.clear();
  }

  update(camera, { filter, sharpness, shown }, ratio = 1) {
    const look = JSON.stringify([filter, sharpness, shown]);
    if (look !== this.look) this.clear();
    this.look = look;
    const wanted = Math.ceil(Math.log2(camera.zoom * ratio) - 0.1);
    const level = clamp(wanted, -12, Math.floor(Math.log2(this.most)));
    const scale = 2 ** level;
    this.level = level;
    if (!this.levels.has(level)) this.levels.set(level, this.addLevel(level));
    this.levels.forEach((layer, each) => {
      layer.style.transform = matrix3d(multiply(camera.projection, scaling(2 ** -each)));
      layer.style.zIndex = each === level ? 1 : 0;
    });
    this.request(level, scale, camera, { filter, sharpness, shown });
    this.tidy(level);
  }

  addLevel(level) {
    const layer = document.createElement("div");
    layer.className = "thera-level";
    layer.dataset.level = level;
    this.element.append(layer);
    return layer;
  }

  request(level, scale, camera, look) {
    const layer = this.levels.get(level);
    const [rows, cols] = camera.picture.map((n) => Math.max(1, Math.round(n * scale)));
    const [top, left, bottom, right] = camera.visible.map((n) => Math.floor((n * scale) / SIDE));
    const last = [Math.ceil(rows / SIDE) - 1, Math.ceil(cols / SIDE) - 1];
    const middle = camera.centre.map((n) => (n * scale) / SIDE);
    const wanted = new Map();
    for (let i = Math.max(0, top); i <= Math.min(bottom, last[0]); i++) {
      for (let j = Math.max(0, left); j <= Math.min(right, last[1]); j++) wanted.set(`${i} ${j}`, [i, j]);
    }
    for (const image of layer.querySelectorAll("img:not([data-done])")) {
      if (!wanted.has(image.dataset.place)) image.removeAttribute("src"), image.remove();
    }
    const there = new Set([...layer.children].map((image) => image.dataset.place));
    const missing = [...wanted].filter(([place]) => !there.has(place));
    const distance = ([i, j]) => Math.hypot(i + 0.5 - middle[0], j + 0.5 - middle[1]);
    missing.sort(([, a], [, b]) => distance(a) - distance(b));
    for (const [place, [i, j]] of missing) {
      const size = [Math.min(SIDE, cols - j * SIDE), Math.min(SIDE, rows - i * SIDE)];
      const [high, wide] = [camera.picture[0] / rows, camera.picture[1] / cols];
      const region = [j * SIDE * wide, i * SIDE * high, size[0] * wide, size[1] * high];
      const image = new Image(...size);
      image.alt = "";
      image.draggable = false;
      image.dataset.place = place;
      image.style.left = `${j * SIDE}px`;
      image.style.top = `${i * SIDE}px`;
      image.onload = image.onerror = () => {
        image.dataset.done = "";
        this.onchange();
      };
      const url = this.urlOf({ region, size, scale, ...look });
      if (typeof url === "string") image.src = url;
      else url.then((later) => image.isConnected && (image.src = later), image.onerror);
      layer.append(image);
    }
    if (missing.length) this.onchange();
  }

  /**
   * The tiles in view on one canvas, over the plain pixels where some are missing, and the box of the picture that it
   * covers, in whole pixels; null if it would have more than `most` pixels a side.
   */
  together(pixels, camera, most) {
    const scale = 2 ** this.level;
    const step = Math.max(1, 1 / scale); // the picture's pixels, or those of the canvas if they are larger
    const box = camera.visible.map((at, i) => (i < 2 ? Math.floor : Math.ceil)(at / step) * step);
    const [top, left, bottom, right] = box.map((at) => at * scale);
    if (Math.max(bottom - top, right - left) > most) return null;
    const canvas = new OffscreenCanvas(Math.max(1, right - left), Math.max(1, bottom - top));
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.translate(-left, -top);
    if (pixels.naturalWidth) context.drawImage(pixels, 0, 0, camera.picture[1] * scale, camera.picture[0] * scale);
    const far = (level) => Math.abs(level - this.level);
    for (const level of [...this.levels.keys()].sort((a, b) => far(b) - far(a))) {
      const factor = 2 ** (this.level - level);
      for (const image of this.levels.get(level).querySelectorAll("img[data-done]")) {
        if (!image.naturalWidth) continue;
        const [row, col] = image.dataset.place.split(" ").map((n) => n * SIDE * factor);
        context.drawImage(image, col, row, image.width * factor, image.height * factor);
      }
    }
    return { canvas, box };
  }

  // Drops tiles when there are too many: those of the farthest levels first.
  tidy(level) {
    const all = this.element.querySelectorAll("img");
    if (all.length <= KEPT) return;
    const far = [...this.levels.keys()].sort((a, b) => Math.abs(b - level) - Math.abs(a - level));
    for (const each of far) {
      if (each === level || this.element.querySelectorAll("img").length <= KEPT) break;
      this.levels.get(each).remove();
      this.levels.delete(each);
    }
    const done = [...(this.levels.get(level)?.querySelectorAll("img[data-done]") ?? [])];
    done.slice(0, Math.max(0, done.length - KEPT)).forEach((image) => image.remove());
  }
}

/** A homography of (row, column) as a CSS transform of (x, y). */
export function matrix3d(m) {
  const [[a, b, c], [d, e, f], [g, h, i]] = m;
  // x is the column, y the row.
  return `matrix3d(${[e, b, 0, h, d, a, 0, g, 0, 0, 1, 0, f, c, 0, i].join(",")})`;
}
