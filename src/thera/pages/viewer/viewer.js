// The viewer: shows a picture, drawn from its field by the GPU, or as tiles from a server.
//
//   const viewer = new Viewer(element, { onstatus: (status) => …, onview: (camera) => … });
//   await viewer.open({
//     width, height,                 // of the picture, in its own pixels
//     image: "picture.png",          // its pixels: shown until the field is there, and left of the curtain
//     field: "picture.field",        // packed by thera.web.packing.pack; without it, tiles
//     tiles: ({ region: [x, y, w, h], size: [w, h], scale, filter, sharpness, shown }) => "tile.png",
//     wait: true,                    // the field comes later: setField or useTiles will be called
//   });
//   viewer.look = { filter: "gaussian", sharpness: 1, shown: "picture", other: "bicubic" };
//   viewer.curtain = 0.5;            // a share of the width; null removes it
//   viewer.split = true;             // side by side instead of a curtain
//   viewer.otherTiles = (tile) => …  // what is compared with: tiles as above; null for the pixels
//
// `status` is { mode: "live" | "tiles" | "pixels", busy, share, reason }: reason says why it is not live.

import { captured, complete } from "./capture.js";
import { download, parse } from "./field.js";
import { Camera, clamp, multiply, translation } from "./geometry.js";
import { listen } from "./gestures.js";
import { Painter } from "./painter.js";
import { TileLayer, matrix3d } from "./tiles.js";

const REST = 140; // milliseconds after which a view is at rest
const FLUENT = 34; // milliseconds a frame may take while the view moves
const PLAIN = { filter: "gaussian", sharpness: 1, shown: "picture", other: "bicubic" };

/** @typedef {{mode: "live" | "tiles" | "pixels", busy: string, share: number, reason: string}} Status */

/**
 * @typedef {Object} Opened
 * @property {number} width
 * @property {number} height
 * @property {string} image
 * @property {string | Uint8Array | null} [field]
 * @property {import("./tiles.js").TileSource | null} [tiles]
 * @property {number} [most] the largest scale that tiles are asked at
 * @property {boolean} [wait]
 */

export class Viewer {
  #look = { ...PLAIN };
  /** @type {number | null} */
  #curtain = null;
  #split = false;
  /** @type {import("./tiles.js").TileSource | null} */
  #otherTiles = null;
  #opened = 0; // counts pictures, so that what was asked for an earlier one is dropped
  #cost = 0; // milliseconds of a pixel, by the last frame
  #moved = 0;
  #queued = false;

  /**
   * @param {HTMLElement} element
   * @param {{onstatus?: (status: Status) => void, onview?: (camera: Camera) => void, webgl?: boolean}} [options]
   */
  constructor(element, { onstatus = () => {}, onview = () => {}, webgl = true } = {}) {
    this.element = element;
    this.onstatus = onstatus;
    this.onview = onview;
    this.camera = new Camera();
    /** @type {Status} */
    this.status = { mode: "pixels", busy: "", share: 0, reason: "" };
    element.classList.add("thera-viewer");
    element.tabIndex = 0;
    element.setAttribute("role", "application");
    this.half = append(element, "div", "thera-half");
    this.image = append(this.half, "img", "thera-image");
    this.tileElement = append(this.half, "div", "thera-tiles");
    this.canvas = append(element, "canvas", "thera-canvas");
    this.otherHalf = append(element, "div", "thera-half");
    this.otherImage = append(this.otherHalf, "img", "thera-image");
    this.otherElement = append(this.otherHalf, "div", "thera-tiles");
    this.handle = this.#makeHandle();
    /** @type {TileLayer | null} */
    this.tiles = null;
    /** @type {TileLayer | null} */
    this.others = null;
    /** @type {{tiles: import("./tiles.js").TileSource, most: number} | null} */
    this.tileSource = null;
    /** @type {AbortController | null} */
    this.pending = null;
    this.drawing = this.again = false;
    /** @type {Painter | null} */
    this.painter = null;
    try {
      if (!webgl) throw new Error("WebGL2 was turned off.");
      this.painter = new Painter(this.canvas);
    } catch (error) {
      this.canvas.remove();
      this.status.reason = messageOf(error);
    }
    this.canvas.addEventListener("webglcontextlost", () => {
      this.painter = null;
      this.canvas.remove();
      this.#tell({ mode: this.tiles ? "tiles" : "pixels", reason: "The GPU was taken away; reload the page." });
      this.draw();
    });
    this.stop = listen(element, this.camera, () => this.moved());
    new ResizeObserver(() => this.#resize()).observe(element);
    this.#resize();
    setTimeout(() => this.#opened || this.painter?.warm());
  }

  /** Shows a picture: its pixels at once, then its field. Resolves when it is complete. @param {Opened} opened */
  async open({ width, height, image, field = null, tiles = null, most = 64, wait = false }) {
    const turn = ++this.#opened;
    this.pending?.abort();
    this.pending = new AbortController();
    this.painter?.clear();
    this.tiles?.clear();
    this.others?.clear();
    this.others = null;
    this.camera.picture = [height, width];
    this.#resize();
    this.camera.fit();
    this.onview(this.camera);
    this.tiles = null;
    this.tileSource = tiles ? { tiles, most } : null;
    this.#tell({ mode: "pixels", busy: "", share: 0, reason: this.painter ? "" : this.status.reason });
    this.image.src = this.otherImage.src = image;
    await this.image.decode().catch(() => {});
    if (turn !== this.#opened) return;
    if (this.painter && this.image.naturalWidth) {
      const bitmap = await createImageBitmap(this.image, { colorSpaceConversion: "none" });
      if (turn !== this.#opened) return;
      this.painter.setPixels(bitmap);
    }
    this.draw();
    if (wait) return;
    if (field && this.painter) await this.setField(field);
    else if (tiles) this.useTiles();
  }

  /** Draws this field from now on: a URL or packed bytes. `window` is its first cell. */
  async setField(field, window = [0, 0]) {
    const turn = this.#opened;
    const { painter } = this;
    if (!painter) return;
    try {
      this.#tell({ busy: "loading", share: 0 });
      const progress = (share) => turn === this.#opened && this.#tell({ share });
      const bytes =
        field instanceof Uint8Array ? field : await download(field, { signal: this.pending?.signal, progress });
      if (turn !== this.#opened) return;
      painter.setField(parse(bytes), window);
      this.tiles?.clear();
      this.tiles = null;
      this.draw();
      await painter.finished();
      this.#tell({ mode: "live", busy: "", share: 1, reason: "" });
    } catch (error) {
      if (turn !== this.#opened || (error instanceof Error && error.name === "AbortError")) return;
      this.#tell({ busy: "", reason: messageOf(error) });
      this.useTiles();
    }
  }

  /** Draws the server's tiles from now on; `status` shows the reason. */
  useTiles(reason = this.status.reason) {
    if (!this.tileSource) return this.#tell({ busy: "", reason });
    const { tiles, most } = this.tileSource;
    this.painter?.setField(null);
    this.tiles?.clear();
    this.tiles = new TileLayer(this.tileElement, tiles, {
      most,
      onchange: () => this.#tell({ busy: this.tiles?.waiting ? "tiles" : "" }),
    });
    this.#tell({ mode: "tiles", busy: "", share: 0, reason });
    this.draw();
  }

  /** Draws the plain pixels from now on, until setField or useTiles is called. */
  showPixels() {
    this.painter?.setField(null);
    this.tiles?.clear();
    this.tiles = null;
    this.#tell({ mode: "pixels", busy: "", share: 0, reason: this.painter ? "" : this.status.reason });
    this.draw();
  }

  /** What is seen: the mapping (3×3) from an image of `size` [rows, columns] to the picture. */
  get frame() {
    const ratio = globalThis.devicePixelRatio || 1;
    return { mapping: this.camera.mapping(ratio), size: this.camera.size.map((n) => Math.round(n * ratio)) };
  }

  get look() {
    return this.#look;
  }

  set look(look) {
    this.#look = { ...this.#look, ...look };
    this.draw();
  }

  /** Side by side: what it is compared with left, Thera right, the same part in both. */
  get split() {
    return this.#split;
  }

  set split(split) {
    this.#split = split;
    this.element.classList.toggle("thera-split", split);
    this.#resize();
  }

  /** Tiles of what it is compared with; null for the pixels, enlarged as `look.other` says. */
  set otherTiles(tiles) {
    this.#otherTiles = tiles;
    this.others?.clear();
    this.others = null;
    this.draw();
  }

  get curtain() {
    return this.#curtain;
  }

  set curtain(share) {
    const held = share === null ? null : clamp(share, 0, 1);
    this.#curtain = held;
    this.handle.hidden = held === null;
    if (held !== null) {
      this.handle.style.left = `${100 * held}%`;
      this.handle.setAttribute("aria-valuenow", String(Math.round(100 * held)));
    }
    this.draw();
  }

  /** Call this after a change of the camera: draws fast while it moves, and sharp when it rests. */
  moved() {
    this.#moved = performance.now();
    this.draw();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.draw(), REST);
    this.onview(this.camera);
  }

  draw() {
    if (this.#queued) return;
    this.#queued = true;
    requestAnimationFrame(() => {
      this.#queued = false;
      this.#paint();
    });
  }

  #paint() {
    const { camera, painter } = this;
    const screen = globalThis.devicePixelRatio || 1;
    this.tiles?.update(camera, this.#look, screen);
    const compared = this.#split || this.#curtain !== null;
    if (compared && this.#otherTiles) {
      this.others ??= new TileLayer(this.otherElement, this.#otherTiles, { most: this.tileSource?.most });
      this.others.update(camera, this.#look, screen);
    }
    this.#placeImages(compared);
    if (!painter) return;
    if (this.drawing) return void (this.again = true); // the GPU is not done with the last frame
    const moving = performance.now() - this.#moved < REST;
    const ratio = moving ? screen * this.#affordable(screen) : screen;
    const size = this.extent(ratio);
    if (this.canvas.width !== size[1] || this.canvas.height !== size[0]) {
      [this.canvas.height, this.canvas.width] = size;
    }
    this.#paintHalves(size[1], ratio, (mapping, look, box) =>
      painter.paint(mapping, size, camera.picture, { preview: !this.tiles, ...look }, box));
    this.#pace(size[0] * size[1]);
  }

  /** The whole view in pixels, [rows, columns], with `ratio` of them to a pixel of the page. */
  extent(ratio) {
    const [rows, cols] = this.camera.size;
    return [rows, this.#split ? 2 * cols : cols].map((n) => Math.max(1, Math.round(n * ratio)));
  }

  // Calls paint(mapping, look, columns) for the view, or for each half of it.
  #paintHalves(cols, ratio, paint) {
    const mapping = this.camera.mapping(ratio);
    if (!this.#split) return paint(mapping, { ...this.#look, curtain: (this.#curtain ?? 0) * cols }, null);
    const middle = Math.round(cols / 2);
    paint(mapping, { ...this.#look, curtain: cols }, [0, middle]);
    paint(multiply(mapping, translation(0, -middle)), { ...this.#look, curtain: 0 }, [middle, cols]);
  }

  /** True if nothing of what is seen is still to come. */
  get complete() {
    return complete(this);
  }

  /** What is seen now as an image of the screen's resolution; null if the GPU cannot draw it, or not yet. */
  capture() {
    return captured(this);
  }

  // A frame of half the resolution is as exact as any, with larger pixels: it is what a slow GPU gets while
  // the view moves.
  #affordable(full) {
    const [rows, cols] = this.extent(1);
    return clamp(Math.sqrt(FLUENT / (this.#cost * full * full * rows * cols)), 1 / 4, 1);
  }

  async #pace(pixels) {
    const began = performance.now();
    this.drawing = true;
    await this.painter?.finished();
    this.drawing = false;
    this.#cost = (performance.now() - began) / pixels;
    if (this.again) {
      this.again = false;
      this.draw();
    }
  }

  // The browser enlarges the pixels below tiles that are still loading; without WebGL2, also what is compared.
  #placeImages(compared) {
    const { camera } = this;
    this.image.hidden = Boolean(this.painter && !this.tiles);
    this.otherImage.hidden = Boolean(this.painter);
    this.otherHalf.hidden = !compared;
    for (const image of [this.image, this.otherImage]) {
      if (image.hidden || !image.naturalWidth) continue;
      image.style.transform = matrix3d(camera.projection);
      image.style.width = `${camera.picture[1]}px`;
      image.style.height = `${camera.picture[0]}px`;
    }
    this.otherImage.style.imageRendering = this.#look.other === "nearest" ? "pixelated" : "auto";
    const cut = this.#split ? null : `${100 * (this.#curtain ?? 0)}%`;
    this.half.style.clipPath = cut ? `inset(0 0 0 ${cut})` : "";
    this.otherHalf.style.clipPath = cut ? `inset(0 calc(100% - ${cut}) 0 0)` : "";
  }

  #resize() {
    const { clientHeight, clientWidth } = this.element;
    const whole = Math.abs(this.camera.zoom / this.camera.fitting - 1) < 1e-6;
    this.camera.size = [Math.max(1, clientHeight), Math.max(1, this.#split ? clientWidth / 2 : clientWidth)];
    if (whole) this.camera.fit();
    this.draw();
    this.onview(this.camera);
  }

  #makeHandle() {
    const handle = append(this.element, "div", "thera-curtain");
    handle.hidden = true;
    handle.tabIndex = 0;
    handle.setAttribute("role", "slider");
    handle.setAttribute("aria-label", "Curtain: other methods left of it, Thera right of it");
    handle.setAttribute("aria-valuemin", "0");
    handle.setAttribute("aria-valuemax", "100");
    const follow = (event) => {
      const box = this.element.getBoundingClientRect();
      this.curtain = (event.clientX - box.left) / box.width;
    };
    handle.addEventListener("pointerdown", (event) => {
      event.stopPropagation();
      handle.setPointerCapture(event.pointerId);
      handle.addEventListener("pointermove", follow);
    });
    handle.addEventListener("pointerup", () => handle.removeEventListener("pointermove", follow));
    handle.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.curtain = (this.curtain ?? 0.5) + step;
    });
    return handle;
  }

  #tell(change) {
    this.status = { ...this.status, ...change };
    this.onstatus(this.status);
  }
}

/** @param {unknown} error */
const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * @template {keyof HTMLElementTagNameMap} N
 * @param {HTMLElement} parent
 * @param {N} name
 * @param {string} className
 * @returns {HTMLElementTagNameMap[N]}
 */
function append(parent, name, className) {
  const element = document.createElement(name);
  element.className = className;
  if (element instanceof HTMLImageElement) element.alt = "";
  parent.append(element);
  return element;
}
