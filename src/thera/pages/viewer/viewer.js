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
//
// `status` is { mode: "live" | "tiles" | "pixels", busy, share, reason }: reason says why it is not live.

import { download, parse } from "./field.js";
import { Camera, clamp } from "./geometry.js";
import { listen } from "./gestures.js";
import { Painter } from "./painter.js";
import { TileLayer, matrix3d } from "./tiles.js";

const REST = 140; // milliseconds after which a view is at rest
const FLUENT = 34; // milliseconds a frame may take while the view moves
const PLAIN = { filter: "gaussian", sharpness: 1, shown: "picture", other: "bicubic" };

export class Viewer {
  #look = { ...PLAIN };
  #curtain = null;
  #opened = 0; // counts pictures, so that what was asked for an earlier one is dropped
  #cost = 0; // milliseconds of a pixel, by the last frame
  #moved = 0;
  #queued = false;

  constructor(element, { onstatus = () => {}, onview = () => {}, webgl = true } = {}) {
    this.element = element;
    this.onstatus = onstatus;
    this.onview = onview;
    this.camera = new Camera();
    this.status = { mode: "pixels", busy: "", share: 0, reason: "" };
    element.classList.add("thera-viewer");
    element.tabIndex = 0;
    element.setAttribute("role", "application");
    this.image = append(element, "img", "thera-image");
    this.tileElement = append(element, "div", "thera-tiles");
    this.canvas = append(element, "canvas", "thera-canvas");
    this.handle = this.#makeHandle();
    try {
      if (!webgl) throw new Error("WebGL2 was turned off.");
      this.painter = new Painter(this.canvas);
    } catch (error) {
      this.painter = null;
      this.canvas.remove();
      this.status.reason = error.message;
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
  }

  /** Shows a picture: its pixels at once, then its field. Resolves when it is complete. */
  async open({ width, height, image, field = null, tiles = null, most = 64, wait = false }) {
    const turn = ++this.#opened;
    this.pending?.abort();
    this.pending = new AbortController();
    this.painter?.setField(null);
    this.tileElement.replaceChildren();
    this.camera.picture = [height, width];
    this.#resize();
    this.camera.fit();
    this.onview(this.camera);
    this.tiles = null;
    this.tileSource = tiles ? { tiles, most } : null;
    this.#tell({ mode: "pixels", busy: "", share: 0, reason: this.painter ? "" : this.status.reason });
    this.image.src = image;
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
    try {
      this.#tell({ busy: "loading", share: 0 });
      const progress = (share) => turn === this.#opened && this.#tell({ share });
      const bytes =
        field instanceof Uint8Array ? field : await download(field, { signal: this.pending?.signal, progress });
      if (turn !== this.#opened) return;
      this.painter.setField(parse(bytes), window);
      this.tiles?.clear();
      this.tiles = null;
      this.draw();
      await this.painter.finished();
      this.#tell({ mode: "live", busy: "", share: 1, reason: "" });
    } catch (error) {
      if (error.name === "AbortError" || turn !== this.#opened) return;
      this.#tell({ busy: "", reason: error.message });
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

  get look() {
    return this.#look;
  }

  set look(look) {
    this.#look = { ...this.#look, ...look };
    this.draw();
  }

  get curtain() {
    return this.#curtain;
  }

  set curtain(share) {
    this.#curtain = share === null ? null : clamp(share, 0, 1);
    this.handle.hidden = share === null;
    if (share !== null) {
      this.handle.style.left = `${100 * this.#curtain}%`;
      this.handle.setAttribute("aria-valuenow", Math.round(100 * this.#curtain));
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
    this.tiles?.update(camera, this.#look, globalThis.devicePixelRatio || 1);
    this.image.hidden = Boolean(painter && !this.tiles);
    if (!this.image.hidden) this.#placeImage();
    if (!painter) return;
    if (this.drawing) return void (this.again = true); // the GPU is not done with the last frame
    const moving = performance.now() - this.#moved < REST;
    const full = globalThis.devicePixelRatio || 1;
    const ratio = moving ? full * this.#affordable(full) : full;
    const size = camera.size.map((n) => Math.max(1, Math.round(n * ratio)));
    if (this.canvas.width !== size[1] || this.canvas.height !== size[0]) {
      [this.canvas.height, this.canvas.width] = size;
    }
    const curtain = this.#curtain === null ? 0 : this.#curtain * size[1];
    painter.paint(camera.mapping(ratio), size, camera.picture, { ...this.#look, curtain, preview: !this.tiles });
    this.#pace(size[0] * size[1]);
  }

  // A frame of half the resolution is as exact as any, with larger pixels: it is what a slow GPU gets while
  // the view moves.
  #affordable(full) {
    const [rows, cols] = this.camera.size;
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

  // The browser enlarges the pixels below tiles that are still loading; without WebGL2, also left of the curtain.
  #placeImage() {
    const { camera, image } = this;
    if (!image.naturalWidth) return;
    image.style.transform = matrix3d(camera.projection);
    image.style.width = `${camera.picture[1]}px`;
    image.style.height = `${camera.picture[0]}px`;
    image.style.imageRendering = this.#look.other === "nearest" ? "pixelated" : "auto";
    const cut = this.#curtain === null ? 0 : this.#curtain * camera.size[1];
    this.tileElement.style.clipPath = `inset(0 0 0 ${cut}px)`;
  }

  #resize() {
    const { clientHeight, clientWidth } = this.element;
    const whole = Math.abs(this.camera.zoom / this.camera.fitting - 1) < 1e-6;
    this.camera.size = [Math.max(1, clientHeight), Math.max(1, clientWidth)];
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
    handle.setAttribute("aria-valuemin", 0);
    handle.setAttribute("aria-valuemax", 100);
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
      this.curtain += step;
    });
    return handle;
  }

  #tell(change) {
    this.status = { ...this.status, ...change };
    this.onstatus(this.status);
  }
}

function append(parent, name, className) {
  const element = document.createElement(name);
  element.className = className;
  if (name === "img") element.alt = "";
  parent.append(element);
  return element;
}
