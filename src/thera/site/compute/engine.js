// Work for the page: workers that are started when they are needed and ended when they are not, with progress, time
// estimates and cancellation.

import { encodedPixels } from "./scaling.js";

const IDLE = 60_000; // milliseconds after which a worker without work ends, and its memory is free again
const TICK = 250; // milliseconds between two estimates of the progress
const SPEED = "thera-speed";

/** @typedef {{ key: string, blob: File }} Source */
/** Progress: the share done, and the seconds left if they are known.
 * @typedef {(share: number, left: number | null) => void} Progress */
/** @typedef {{ progress?: Progress, signal?: AbortSignal }} Watch */

export class Engine {
  /** @param {any} site the content of site.json */
  static async start(site) {
    let webgpu = false;
    if (site.webgpu) {
      const adapter = await /** @type {any} */ (navigator).gpu?.requestAdapter().catch(() => null);
      webgpu = Boolean(adapter) && !adapter.info?.isFallbackAdapter;
    }
    const threads = globalThis.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency || 1, 8) : 1;
    return new Engine(site, { threads, webgpu });
  }

  constructor(site, how) {
    this.site = site;
    this.how = how;
    this.view = new Lane(this);
    this.files = new Lane(this);
    this.measured = this.#remembered;
  }

  /** Computes on the processor from now on, also what a GPU is computing now. */
  leaveGPU() {
    this.how = { ...this.how, webgpu: false };
    this.measured = this.#remembered;
    for (const lane of [this.view, this.files]) lane.leaveGPU();
  }

  get #speedKey() {
    return this.how.webgpu ? `${SPEED}-gpu` : SPEED;
  }

  get #remembered() {
    return Number(localStorage.getItem(this.#speedKey)) || 0;
  }

  model(name) {
    const found = this.site.models.find((model) => model.name === name);
    if (!found) throw new Error(`This site has no model ${name}.`);
    return found;
  }

  /** Seconds to encode so many pixels, halos included; 0 before anything was measured. */
  seconds(name, pixels) {
    const work = this.model(name).work / this.site.models[0].work;
    return this.measured && (pixels * work) / this.measured;
  }

  /** Seconds that a picture of this shape takes. */
  estimate(name, shape) {
    return this.seconds(name, encodedPixels(shape, this.model(name)));
  }

  /** Keeps how fast a model was on the GPU or the processor, whichever is used, as the speed of the first one. */
  learn(name, speed, webgpu) {
    if (!speed || webgpu !== this.how.webgpu) return;
    this.measured = (speed * this.model(name).work) / this.site.models[0].work;
    localStorage.setItem(this.#speedKey, String(this.measured));
  }

  /** Width, height and kind of a picture file. @param {Source} source */
  describe(source) {
    return this.view.ask({ task: "describe", file: source });
  }

  /** The packed field of a picture, or of a box of it. @param {Source} source @param {Watch} watch */
  field(source, name, box, shape, watch = {}) {
    const [H, W] = box ? [box[2] - box[0], box[3] - box[1]] : shape;
    return this.view.ask({ task: "field", file: source, box, model: name }, watch, () => this.estimate(name, [H, W]));
  }

  /** Encodes a picture for `tile`. @param {Source} source @param {Watch} watch */
  prepare(source, name, shape, watch = {}) {
    return this.view.ask({ task: "prepare", file: source, model: name }, watch, () => this.estimate(name, shape));
  }

  /** A part of a picture at another size, as a PNG. @param {Source} source @param {Watch} watch */
  tile(source, name, tile, watch = {}) {
    return this.view.ask({ task: "tile", file: source, model: name, ...tile }, watch);
  }

  /** A picture as a file of another size. @param {Source} source @param {Watch} watch */
  async file(source, name, order, shape, watch = {}) {
    const expected = () => this.estimate(name, shape) * (order.ensemble ? 4 : 1);
    const file = await this.files.ask({ task: "file", file: source, order, model: name }, watch, expected);
    this.files.rest(0);
    return file;
  }

  /** Lets go of a picture. @param {Source} source */
  forget(source) {
    this.view.forget(source);
    this.files.forget(source);
  }
}

/**
 * @typedef {Object} Task
 * @property {any} message to the worker
 * @property {Progress} progress
 * @property {() => number} expected seconds; 0 if nothing is known
 * @property {(result: any) => void} resolve
 * @property {(error: Error) => void} reject
 * @property {number} share that the worker has reported
 * @property {number} began in milliseconds
 * @property {number} since seconds from then to that report
 * @property {ReturnType<typeof setInterval> | undefined} ticking
 */

/** One worker and what waits for it. Tasks run in order; the one that runs is stopped by ending the worker. */
class Lane {
  /** @param {Engine} engine */
  constructor(engine) {
    this.engine = engine;
    /** @type {Worker | null} */
    this.worker = null;
    this.webgpu = false; // whether the worker uses the GPU
    this.models = new Set(); // that the worker has loaded
    /** @type {Task[]} */
    this.queue = [];
    /** @type {Task | null} */
    this.running = null;
    /** @type {(error: Error) => void} */
    this.stop = () => {}; // gives up what the worker was asked
    this.count = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.resting = undefined;
  }

  /** @param {any} message @param {Watch} watch @returns {Promise<any>} */
  ask(message, watch = {}, expected = () => 0) {
    const { progress = () => {}, signal } = watch;
    return new Promise((resolve, reject) => {
      /** @type {Task} */
      const task = {
        message, progress, expected, resolve, reject, share: 0, began: 0, since: 0, ticking: undefined,
      };
      if (signal?.aborted) return reject(aborted());
      signal?.addEventListener("abort", () => this.#drop(task));
      this.queue.push(task);
      this.#next();
    });
  }

  forget(source) {
    if (this.worker) this.ask({ task: "forget", file: source }).catch(() => {});
  }

  /** @param {Task} task */
  #drop(task) {
    if (task === this.running) {
      this.#end();
      this.running = null;
    } else if (this.queue.includes(task)) {
      this.queue = this.queue.filter((each) => each !== task);
    } else {
      return;
    }
    clearInterval(task.ticking);
    task.reject(aborted());
    this.#next();
  }

  #next() {
    if (this.running || this.queue.length === 0) return;
    // The tile that was asked for last is the one that is looked at.
    const last = this.queue.findLastIndex(({ message }) => message.task === "tile");
    const [task] = this.queue.splice(this.queue[0].message.task === "tile" ? last : 0, 1);
    this.running = task;
    clearTimeout(this.resting);
    task.progress(0, null);
    this.#run(task).then(task.resolve, task.reject).finally(() => {
      clearInterval(task.ticking);
      if (this.running === task) this.running = null;
      this.rest(IDLE);
      this.#next();
    });
  }

  /** Ends a worker that uses the GPU. */
  leaveGPU() {
    if (!this.worker || !this.webgpu) return;
    this.#end();
    this.stop(new LeftGPU());
  }

  // A GPU may be lost, have too little memory or compute something else. Then the processor does the work.
  /** @param {Task} task */
  async #run(task) {
    try {
      return await this.#attempt(task);
    } catch (error) {
      if (!(error instanceof LeftGPU)) throw error;
      clearInterval(task.ticking);
      return this.#attempt(task);
    }
  }

  /** @param {Task} task */
  async #attempt(task) {
    if (!this.worker) {
      this.worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
      this.webgpu = this.engine.how.webgpu;
    }
    const { model } = task.message;
    if (model && !this.models.has(model)) {
      const { threads } = this.engine.how;
      const measure = !this.engine.measured;
      const load = { task: "load", model: this.engine.model(model), threads, webgpu: this.webgpu, measure };
      this.engine.learn(model, await this.#send(load, task), this.webgpu);
      this.models.add(model);
    }
    this.#estimate(task);
    return this.#send(task.message, task);
  }

  // Until the first report of the worker, the clock says how far an encoding is. Of files, the percentage is told.
  /** @param {Task} task */
  #estimate(task) {
    Object.assign(task, { share: 0, began: performance.now(), since: 0 });
    const expected = task.expected();
    const tick = () => {
      const spent = (performance.now() - task.began) / 1000;
      const rest = 1 / task.share - 1;
      const soon = task.since * rest - (spent - task.since);
      const left = task.share ? (soon > 0 ? soon : spent * rest) : expected - spent;
      const guess = expected && task.message.task !== "file" ? Math.min(0.95, spent / expected) : 0;
      task.progress(task.share || guess, left > 0 ? left : null);
    };
    tick();
    task.ticking = setInterval(tick, TICK);
  }

  /** @param {any} message @param {Task} task @returns {Promise<any>} */
  #send(message, task) {
    const worker = /** @type {Worker} */ (this.worker);
    const id = ++this.count;
    return new Promise((resolve, reject) => {
      this.stop = reject;
      worker.onmessage = ({ data }) => {
        if (data.id !== id) return;
        if ("progress" in data) {
          task.share = data.progress;
          task.since = (performance.now() - task.began) / 1000;
          this.engine.learn(message.model, data.speed, this.webgpu);
        } else if (data.computing && this.webgpu) {
          this.engine.leaveGPU();
        } else if ("error" in data) {
          reject(new Error(data.error));
        } else {
          resolve(data.result);
        }
      };
      worker.onerror = (event) => {
        event.preventDefault();
        if (this.webgpu && task.message.model) return this.engine.leaveGPU();
        this.#end();
        reject(new Error(event.message || "This browser could not start the computation: reload the page."));
      };
      worker.postMessage({ ...message, id });
    });
  }

  /** Ends the worker after so many milliseconds without work. */
  rest(milliseconds) {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      if (!this.running && this.queue.length === 0) this.#end();
    }, milliseconds);
  }

  #end() {
    this.worker?.terminate();
    this.worker = null;
    this.models.clear();
  }
}

/** The worker was ended because the GPU is no longer used. */
class LeftGPU extends Error {}

const aborted = () => new DOMException("Cancelled.", "AbortError");
