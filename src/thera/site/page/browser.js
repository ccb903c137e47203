// The backend of `thera site`: pictures are read, encoded and scaled in this browser, and stay in it.

import { refusal } from "./compute/writers.js";
import { pixelsOf } from "./sizes.js";

/** @typedef {import("./backend.js").Picture} Picture */
/** @typedef {import("./backend.js").Job} Job */
/** @typedef {import("./backend.js").Backend} Backend */
/** @typedef {import("./compute/engine.js").Engine} Engine */

/** @typedef {import("./compute/engine.js").Source} Source */
/** @typedef {{picture: Picture, source: Source, type: string, image: string, thumbnail: string}} Entry */
/**
 * @typedef {Object} Work
 * @property {Job} job
 * @property {(signal: AbortSignal) => Promise<any>} run
 * @property {AbortController} stop
 * @property {any} result
 * @property {string} url of its file
 */

const LIVE = 64; // components that the page's GPU sums
const MOST_CELLS = 1 << 19; // that are encoded for one view: 140 MB of packed field
const MOST_PIXELS = 1 << 22; // of the plain picture that is shown
const THUMBNAIL = 160;
const MOST_OUTPUT = 2 ** 31; // pixels of a file
const QUALITY = 95;
const TYPES = /** @type {Record<string, string>} */ ({ png: "image/png", jpeg: "image/jpeg", webp: "image/webp" });
const FORMATS = [
  { name: "png", lossy: false, alpha: true },
  { name: "jpeg", lossy: true, alpha: false },
  { name: "webp", lossy: true, alpha: true },
];

/** @implements {Backend} */
export class BrowserBackend {
  can = { open: true, download: true, tiles: true, view: false };
  privacy = "All of the work is done in this browser: no picture leaves your computer.";
  /** @type {(snapshot: import("./backend.js").Snapshot) => void} */
  #listener = () => {};
  /** @type {Map<string, Entry>} */
  #pictures = new Map();
  /** @type {Map<string, Work>} */
  #jobs = new Map();
  #count = 0;

  /** @param {any} site the content of site.json @param {Engine} engine */
  constructor(site, engine) {
    this.site = site;
    this.engine = engine;
    addEventListener("beforeunload", (event) => {
      const working = [...this.#jobs.values()].some(({ job }) => job.kind === "download" && job.state === "running");
      if (working) event.preventDefault(); // the browser asks whether to leave
    });
  }

  async about() {
    const models = this.site.models.map(({ name, components }) => ({ name, live: components <= LIVE }));
    return { version: this.site.version, models, model: models[0].name, formats: FORMATS, most_cells: MOST_CELLS };
  }

  /** @param {(snapshot: import("./backend.js").Snapshot) => void} listener */
  listen(listener) {
    this.#listener = listener;
    this.#openFirst().finally(() => this.#tell());
  }

  // The pictures that the site was made with.
  async #openFirst() {
    for (const { name, file } of this.site.pictures) {
      const response = await fetch(file).catch(() => null);
      if (!response?.ok) continue;
      const blob = await response.blob();
      await this.open(new File([blob], name, { type: blob.type }), () => {}).catch(() => {});
    }
  }

  #tell() {
    const speeds = /** @type {Record<string, number>} */ ({});
    if (this.engine.measured) {
      // With the halos of tiles, as the time that is left has them.
      for (const { name } of this.site.models) speeds[name] = this.engine.estimate(name, [1000, 1000]);
    }
    const pictures = [...this.#pictures.values()].map(({ picture }) => picture);
    this.#listener({ pictures, jobs: [...this.#jobs.values()].map(({ job }) => ({ ...job })), speeds });
  }

  // ---- Pictures

  /** @param {File} file @param {(share: number) => void} progress @returns {Promise<Picture>} */
  async open(file, progress) {
    progress(1);
    const key = `picture${++this.#count}`;
    const source = { key, blob: file };
    const { width, height, alpha, icc, exif } = await this.engine.describe(source);
    const notes = ["Samples have 8 bits here; the installed program keeps 16"];
    if (alpha) notes.unshift("Transparency is shown on white; PNG and WebP keep it");
    if (icc) notes.unshift("The view shows its colours in sRGB; a download keeps its colour profile");
    if (exif) notes.unshift("A download keeps its EXIF data");
    /** @type {Picture} */
    const picture = {
      id: key,
      name: file.name,
      width,
      height,
      whole: width * height <= MOST_CELLS,
      transparent: false, // it is drawn on white
      notes: alpha || icc || exif ? notes.slice(0, -1) : [],
    };
    const [image, thumbnail] = await Promise.all([
      reduced(file, width, height, Math.sqrt(MOST_PIXELS / (width * height))),
      reduced(file, width, height, THUMBNAIL / Math.max(width, height)),
    ]);
    this.#pictures.set(key, { picture, source, type: file.type, image, thumbnail });
    this.#tell();
    return picture;
  }

  /** @param {Picture} picture */
  async close(picture) {
    const entry = this.#entry(picture.id);
    for (const { job } of this.#jobs.values()) {
      if (job.picture === picture.id && job.kind !== "download") await this.remove(job);
    }
    this.#pictures.delete(picture.id);
    this.engine.forget(entry.source); // after the downloads that are ordered already
    for (const url of [entry.image, entry.thumbnail]) URL.revokeObjectURL(url);
    this.#tell();
  }

  #entry(/** @type {string} */ id) {
    const found = this.#pictures.get(id);
    if (!found) throw new Error("This picture is not open any more: open it again.");
    return found;
  }

  /** @param {Picture} picture */
  image({ id }) {
    return this.#pictures.get(id)?.image ?? "";
  }

  /** @param {Picture} picture */
  thumbnail({ id }) {
    return this.#pictures.get(id)?.thumbnail ?? "";
  }

  /** @param {Picture} picture @param {string} model @param {import("./viewer/tiles.js").Tile} tile */
  async tile(picture, model, { region, size, filter, sharpness, shown }) {
    if (shown !== "picture") throw new Error("Only a model that is drawn live has derivatives here.");
    const blob = await this.engine.tile(this.#entry(picture.id).source, model, { region, size, filter, sharpness });
    const url = URL.createObjectURL(blob);
    setTimeout(() => URL.revokeObjectURL(url), 60_000); // by then it is on the page
    return url;
  }

  // ---- Jobs

  /** @param {Picture} picture @param {string} model @param {number[] | null} region @returns {Promise<Job>} */
  async encode(picture, model, region) {
    const { source } = this.#entry(picture.id);
    const shape = [picture.height, picture.width];
    const live = this.engine.model(model).components <= LIVE;
    return this.#start({ kind: "field", picture: picture.id, tiles: !live }, (watch) =>
      live ? this.engine.field(source, model, region, shape, watch) : this.engine.prepare(source, model, shape, watch));
  }

  /** @param {Job} job @returns {Promise<Uint8Array | null>} */
  async field(job) {
    const found = this.#jobs.get(job.id)?.result ?? null;
    await this.remove(job);
    return job.tiles ? null : found;
  }

  /** @param {Picture} picture @param {import("./backend.js").Order} order @returns {Promise<Job>} */
  async download(picture, order) {
    const { source, type: own } = this.#entry(picture.id);
    const [width, height] = pixelsOf(order, picture);
    const type = order.format ? TYPES[order.format] : Object.values(TYPES).includes(own) ? own : TYPES.png;
    if (![width, height].every((side) => Number.isInteger(side) && side >= 1)) {
      throw new Error("This size makes no picture: give whole numbers of pixels from 1 up.");
    }
    if (width * height > MOST_OUTPUT) throw new Error(`${width} × ${height} pixels are more than a browser can make.`);
    const reason = refusal(type, width, height);
    if (reason) throw new Error(reason);
    const { model, filter, sharpness, ensemble } = order;
    const wanted = { width, height, type, filter, sharpness, ensemble, quality: order.quality ?? QUALITY };
    const ending = type === TYPES.jpeg ? "jpg" : type.slice(6);
    const label = order.scale ? `x${order.scale}` : `${width}x${height}`;
    const name = `${picture.name.replace(/\.[^.]*$/, "")}_${label}.${ending}`;
    const shape = [picture.height, picture.width];
    return this.#start({ kind: "download", picture: picture.id, name }, (watch) =>
      this.engine.file(source, model, wanted, shape, watch));
  }

  /** @returns {Promise<Job>} */
  async view() {
    throw new Error("This view cannot be saved here: zoom in or tilt it less, use a browser with WebGL2, or download the picture.");
  }

  /**
   * @param {Partial<Job>} facts
   * @param {(watch: import("./compute/engine.js").Watch) => Promise<any>} work
   */
  #start(facts, work) {
    /** @type {any} */
    const job = { id: `job${++this.#count}`, state: "queued", share: 0, left: null, message: "", ...facts };
    const entry = { job, stop: new AbortController(), result: null, url: "", run: (/** @type {AbortSignal} */ signal) => {
      const progress = (/** @type {number} */ share, /** @type {number | null} */ left) => {
        Object.assign(job, { state: "running", share: Math.max(job.share, share), left });
        this.#tell();
      };
      return work({ progress, signal });
    } };
    this.#jobs.set(job.id, entry);
    this.#run(entry);
    return { ...job };
  }

  async #run(/** @type {any} */ entry) {
    const { job } = entry;
    entry.stop = new AbortController();
    Object.assign(job, { state: "queued", share: 0, left: null, message: "" });
    this.#tell();
    try {
      entry.result = await entry.run(entry.stop.signal);
      Object.assign(job, { state: "done", share: 1, left: null });
      if (entry.result instanceof Blob) job.bytes = entry.result.size;
    } catch (error) {
      const { name, message } = /** @type {Error} */ (error);
      if (name === "AbortError") job.state = "cancelled";
      else Object.assign(job, { state: "failed", message });
    }
    this.#tell();
  }

  /** @param {Job} job */
  async cancel({ id }) {
    this.#jobs.get(id)?.stop.abort();
  }

  /** @param {Job} job */
  async retry({ id }) {
    const entry = this.#jobs.get(id);
    if (entry && (entry.job.state === "failed" || entry.job.state === "cancelled")) this.#run(entry);
  }

  /** @param {Job} job */
  async remove({ id }) {
    const entry = this.#jobs.get(id);
    if (!entry) return;
    this.#jobs.delete(id);
    entry.stop.abort();
    if (entry.url) URL.revokeObjectURL(entry.url);
    this.#tell();
  }

  /** @param {Job} job */
  result({ id }) {
    const entry = this.#jobs.get(id);
    if (!(entry?.result instanceof Blob)) return "";
    entry.url ||= URL.createObjectURL(entry.result);
    return entry.url;
  }
}

/**
 * The URL of a picture on white, made smaller by `factor` if that is below 1.
 * @param {File} file @param {number} width @param {number} height @param {number} factor
 */
async function reduced(file, width, height, factor) {
  const scale = Math.min(1, factor);
  const [w, h] = [width, height].map((side) => Math.max(1, Math.round(side * scale)));
  const bitmap = await createImageBitmap(file, { resizeWidth: w, resizeHeight: h, resizeQuality: "high" });
  const canvas = new OffscreenCanvas(w, h);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = "white";
  context.fillRect(0, 0, w, h);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return URL.createObjectURL(await canvas.convertToBlob());
}
