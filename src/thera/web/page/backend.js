// What the page asks of whoever reads, encodes and scales its pictures. `ServerBackend` asks the program that
// serves the page. Another backend can do the work itself: it has the same members, and the page does not
// know the difference.
//
// @ts-check

import { download, reason } from "./viewer/field.js";

/**
 * @typedef {Object} Picture
 * @property {string} id
 * @property {string} name of its file
 * @property {number} width
 * @property {number} height
 * @property {boolean} whole all of it can be encoded at once; otherwise only the part in view is
 * @property {boolean} transparent it cannot be drawn live, but in tiles
 * @property {string[]} notes what a person should know of it, in sentences
 */

/**
 * @typedef {Object} About
 * @property {string} version
 * @property {{name: string, live: boolean}[]} models live: the page's GPU can draw its fields
 * @property {string} model the one to start with
 * @property {{name: string, lossy: boolean, alpha: boolean}[]} formats that downloads can have
 * @property {number} most_cells pixels of a part that can be encoded at once
 */

/**
 * @typedef {Object} Job
 * @property {string} id
 * @property {"field" | "download"} kind
 * @property {"queued" | "running" | "done" | "failed" | "cancelled"} state
 * @property {number} share that is done, from 0 to 1
 * @property {number | null} left seconds that it still takes, about
 * @property {string} message why it failed, in a sentence
 * @property {string} picture the id of its picture
 * @property {string} [name] of the file that it makes
 * @property {number} [bytes] of that file
 * @property {boolean} [tiles] of an encoding job: it has no field to draw, and the page asks for tiles
 */

/**
 * What to download: a size (`scale`, `width`, `height`, both of these, or `fit`, a box [height, width] that it
 * fills, or `paper`, such as 30x20cm, with its `dpi`), and how.
 * @typedef {Object} Order
 * @property {string} model
 * @property {string} [paper]
 * @property {number} [dpi]
 * @property {number} [scale]
 * @property {number} [width]
 * @property {number} [height]
 * @property {number[]} [fit]
 * @property {string} filter
 * @property {number} sharpness
 * @property {boolean} ensemble the mean over four rotations
 * @property {string | null} format as the picture's own if null
 * @property {number | null} quality from 1 to 100, of formats that have one
 */

/**
 * What is seen of a view: `mapping` (3×3) takes a (row, column) of an image of `size` = [rows, columns] to the
 * picture.
 * @typedef {{model: string, mapping: number[][], size: number[], filter: string, sharpness: number}} View
 */

/** @typedef {{pictures: Picture[], jobs: Job[], speeds: Record<string, number>}} Snapshot speeds: seconds for a
 * million pixels, by model, where it was measured on this machine. */

/**
 * @typedef {Object} Backend
 * @property {{open: boolean, download: boolean, tiles: boolean, view: boolean}} can what it is able to do; other
 * controls are not shown
 * @property {string} privacy a sentence on where pictures go
 * @property {() => Promise<About>} about
 * @property {(listener: (snapshot: Snapshot) => void, lost: (error: Error) => void) => void} listen calls the
 * listener now and after each change, also of what other pages do, and keeps this page's jobs alive; `lost` when
 * nothing can be heard any more
 * @property {(file: File, progress: (share: number) => void) => Promise<Picture>} open reads a file. Rejects
 * with a sentence if it is no picture
 * @property {(picture: Picture) => Promise<void>} close
 * @property {(picture: Picture) => string} image the URL of its pixels, reduced if it is large
 * @property {(picture: Picture) => string} thumbnail a URL, too
 * @property {(picture: Picture, model: string, tile: import("./viewer/tiles.js").Tile) =>
 *   string | Promise<string>} tile the URL of a tile
 * @property {(picture: Picture, model: string, region: number[] | null) => Promise<Job>} encode starts a job.
 * `region`: [top, left, bottom, right]; null for all of it
 * @property {(job: Job) => Promise<Uint8Array | null>} field the packed field that an encoding job has made, once;
 * null if it is drawn in tiles
 * @property {(picture: Picture, order: Order) => Promise<Job>} download starts a job. Rejects with a sentence
 * if the order cannot be met
 * @property {(picture: Picture, view: View) => Promise<Job>} view starts a download of what is seen
 * @property {(job: Job) => Promise<void>} cancel
 * @property {(job: Job) => Promise<void>} retry starts a job again that has failed or was cancelled
 * @property {(job: Job) => Promise<void>} remove forgets a job and its file
 * @property {(job: Job) => string} result the URL of the file that a download has made
 */

/** @implements {Backend} */
export class ServerBackend {
  can = { open: true, download: true, tiles: true, view: true };
  privacy = "Only this computer can reach this page: it listens on 127.0.0.1, and no picture leaves it.";
  #page = crypto.randomUUID();

  about() {
    return call("GET", "about");
  }

  /** @param {(snapshot: Snapshot) => void} listener @param {(error: Error) => void} lost */
  listen(listener, lost) {
    const open = () => {
      const events = new EventSource(`api/events?page=${this.#page}`);
      events.onmessage = ({ data }) => listener(JSON.parse(data));
      events.onerror = () => lost(new Error(LOST)); // the browser goes on trying
      // What this page alone waits for is cancelled when it stops listening.
      addEventListener("pagehide", () => events.close(), { once: true });
    };
    open();
    addEventListener("pageshow", ({ persisted }) => persisted && open());
  }

  /** @param {File} file @param {(share: number) => void} progress @returns {Promise<Picture>} */
  open(file, progress) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest(); // fetch does not tell how much was sent
      request.open("POST", `api/pictures?name=${encodeURIComponent(file.name)}`);
      request.upload.onprogress = ({ loaded, total }) => progress(loaded / Math.max(1, total));
      request.onerror = () => reject(new Error(LOST));
      request.onload = async () => {
        if (request.status === 201) resolve(JSON.parse(request.responseText));
        else reject(new Error(await reason(new Response(request.responseText, { status: request.status }))));
      };
      request.send(file);
    });
  }

  /** @param {Picture} picture */
  close(picture) {
    return call("DELETE", `pictures/${picture.id}`);
  }

  /** @param {Picture} picture */
  image(picture) {
    return `api/pictures/${picture.id}/image`;
  }

  /** @param {Picture} picture */
  thumbnail(picture) {
    return `api/pictures/${picture.id}/thumbnail`;
  }

  /** @param {Picture} picture @param {string} model @param {import("./viewer/tiles.js").Tile} tile */
  tile(picture, model, { region: [x, y, w, h], size: [width, height], filter, sharpness, shown }) {
    const query = Object.entries({ model, x, y, w, h, width, height, filter, sharpness, shown });
    return `api/pictures/${picture.id}/tile?${new URLSearchParams(query.map(([k, v]) => [k, String(v)]))}`;
  }

  /** @param {Picture} picture @param {string} model @param {number[] | null} region @returns {Promise<Job>} */
  encode(picture, model, region) {
    return call("POST", `pictures/${picture.id}/field`, { model, region, page: this.#page });
  }

  /** @param {Job} job @returns {Promise<Uint8Array | null>} */
  async field(job) {
    if (job.tiles) return this.remove(job).then(() => null, () => null);
    return download(this.result(job));
  }

  /** @param {Picture} picture @param {Order} order @returns {Promise<Job>} */
  download(picture, order) {
    return call("POST", `pictures/${picture.id}/download`, order);
  }

  /** @param {Picture} picture @param {View} view @returns {Promise<Job>} */
  view(picture, view) {
    return call("POST", `pictures/${picture.id}/view`, view);
  }

  /** @param {Job} job */
  cancel(job) {
    return call("POST", `jobs/${job.id}/cancel`);
  }

  /** @param {Job} job */
  retry(job) {
    return call("POST", `jobs/${job.id}/retry`);
  }

  /** @param {Job} job */
  remove(job) {
    return call("DELETE", `jobs/${job.id}`);
  }

  /** @param {Job} job */
  result(job) {
    return `api/jobs/${job.id}/result`;
  }
}

const LOST = "The program does not answer. Is `thera app` still running?";

/** @param {string} method @param {string} path @param {object} [order] @returns {Promise<any>} */
async function call(method, path, order) {
  const body = order && JSON.stringify(order);
  const headers = body ? { "Content-Type": "application/json" } : undefined;
  const response = await fetch(`api/${path}`, { method, body, headers }).catch(() => {
    throw new Error(LOST);
  });
  if (!response.ok) throw new Error(await reason(response));
  return response.status === 204 ? null : response.json();
}
