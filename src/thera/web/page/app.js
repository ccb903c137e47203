// Puts the page together: a store, a backend, the view and the panels. Panels read the state and call actions;
// actions ask the backend and change the state.

import { createControls } from "./controls.js";
import { createDownloads } from "./downloads.js";
import { createPictures } from "./pictures.js";
import { INITIAL, currentOf, withJob, withSnapshot } from "./state.js";
import { createStore } from "./store.js";
import { createView } from "./view.js";
import { sizeOf } from "./sizes.js";

/** @typedef {import("./backend.js").Picture} Picture */
/** @typedef {import("./backend.js").Job} Job */
/** @typedef {ReturnType<typeof createActions>} Actions */
/** @typedef {import("./store.js").Store<import("./state.js").State>} Store */

const ALONE = "This view can only be saved as the plain picture: turn the comparison off, and show the picture.";
const LATER = "This view is not drawn in full yet: save it when it is sharp.";
const PAUSE = 400; // milliseconds between two files that are saved

/** Starts the page on a backend. @param {import("./backend.js").Backend} backend */
export async function start(backend) {
  const store = createStore(INITIAL);
  const stage = /** @type {HTMLElement} */ (document.getElementById("stage"));
  const viewer = createView(store, backend, stage);
  /** @type {any} */ (globalThis).thera = viewer; // for the console, and for tests
  const actions = createActions(store, backend, viewer);
  createPictures(store, actions, backend);
  createDownloads(store, actions, backend);
  createControls(store, actions, viewer);
  try {
    const about = await backend.about();
    store.set({ about, model: about.model });
    await new Promise((resolve) =>
      backend.listen((snapshot) => resolve(actions.receive(snapshot)), actions.complain));
  } catch (error) {
    actions.complain(/** @type {Error} */ (error));
  }
  document.body.dataset.ready = "";
}

/** @param {Store} store @param {import("./backend.js").Backend} backend @param {import("./viewer/viewer.js").Viewer} viewer */
function createActions(store, backend, viewer) {
  let count = 0;
  /** Downloads that this page has ordered: their files are saved as soon as they are made. @type {Set<string>} */
  const ordered = new Set();

  /** @param {Error} error */
  function complain(error) {
    const text = error.message;
    const others = store.state.notices.filter((notice) => notice.text !== text);
    store.set({ notices: [...others, { id: ++count, text }].slice(-3) });
  }
  /** @template {unknown[]} A @param {(...given: A) => Promise<unknown>} work */
  const guarded = (work) => (/** @type {A} */ ...given) => void work(...given).catch(complain);

  let saved = Promise.resolve();
  /** Saves a file. Browsers drop all but the last of several at once. @param {Job} job */
  function save(job) {
    saved = saved.then(() => {
      const link = document.createElement("a");
      link.href = backend.result(job);
      link.download = job.name ?? "";
      link.click();
      return new Promise((resolve) => setTimeout(resolve, PAUSE));
    });
  }

  /** @param {Picture} picture */
  async function order(picture) {
    const { file, look, model, size } = store.state;
    const lossy = store.state.about?.formats.find(({ name }) => name === file.format)?.lossy;
    const job = await backend.download(picture, {
      ...sizeOf(size, picture),
      model,
      filter: look.filter,
      sharpness: look.sharpness,
      ensemble: file.ensemble,
      format: file.format || null,
      quality: lossy ? file.quality : null,
    });
    started(job);
  }
  /** @param {Job} job */
  function started(job) {
    ordered.add(job.id);
    store.set(withJob(store.state, job));
    saveMade(); // a quick one is done before its order is answered
  }
  /** Saves the files that this page has ordered and that are made. */
  function saveMade() {
    for (const job of store.state.jobs) {
      if (job.state === "done" && ordered.delete(job.id)) save(job);
    }
  }

  /** @param {File} file */
  async function open(file) {
    const id = ++count;
    const others = () => store.state.uploads.filter((upload) => upload.id !== id);
    const tell = (/** @type {number} */ share) => store.set({ uploads: [...others(), { id, name: file.name, share }] });
    tell(0);
    try {
      const picture = await backend.open(file, tell);
      const rest = store.state.pictures.filter((each) => each.id !== picture.id);
      store.set({ pictures: [...rest, picture], current: picture.id });
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      complain(new Error(message.includes(file.name) ? message : `${file.name}: ${message}`));
    } finally {
      store.set({ uploads: others() });
    }
  }

  return {
    complain,
    save,
    /** Takes what the backend tells. @param {import("./backend.js").Snapshot} snapshot */
    receive(snapshot) {
      store.set(withSnapshot(store.state, snapshot));
      saveMade();
    },
    /** Opens files one after the other. @type {(files: File[]) => void} */
    add: guarded(async (files) => {
      store.set({ notices: [] });
      for (const file of files) await open(file);
    }),
    /** @param {string} id */
    show: (id) => store.set({ current: id }),
    /** @type {(picture: Picture) => void} */
    close: guarded(async (picture) => {
      await backend.close(picture);
      const pictures = store.state.pictures.filter(({ id }) => id !== picture.id);
      const current = store.state.current === picture.id ? (pictures.at(-1)?.id ?? null) : store.state.current;
      store.set({ pictures, current });
    }),
    /** Downloads the picture that is shown. */
    download: guarded(async () => {
      const picture = currentOf(store.state);
      if (picture) await order(picture);
    }),
    downloadAll: guarded(async () => {
      for (const picture of store.state.pictures) await order(picture);
    }),
    /** Saves what is seen: at once if the GPU has all of it, otherwise by the backend, which draws the picture alone. */
    saveView: guarded(async () => {
      const picture = currentOf(store.state);
      if (!picture) return;
      const seen = viewer.capture();
      if (!seen) {
        const { compare, look, model } = store.state;
        const plain = !compare.other && look.shown === "picture";
        if (viewer.painter && !viewer.complete && !(plain && backend.can.view)) throw new Error(LATER);
        if (!plain) throw new Error(ALONE);
        const { mapping, size } = viewer.frame;
        started(await backend.view(picture, { ...look, model, mapping, size }));
        return;
      }
      const canvas = new OffscreenCanvas(seen.width, seen.height);
      canvas.getContext("2d")?.putImageData(seen, 0, 0);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await canvas.convertToBlob());
      link.download = `${picture.name.replace(/\.[^.]*$/, "")}_view.png`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    }),
    /** @type {(job: Job) => void} */
    cancel: guarded((job) => backend.cancel(job)),
    /** @type {(job: Job) => void} */
    retry: guarded(async (job) => {
      ordered.add(job.id);
      await backend.retry(job);
    }),
    /** @type {(job: Job) => void} */
    remove: guarded((job) => backend.remove(job)),
    /** Stops encoding what is shown. */
    stopEncoding() {
      const { encoding, jobs } = store.state;
      const job = jobs.find(({ id }) => id === encoding?.job);
      if (job) backend.cancel(job).catch(complain);
      if (encoding) store.set({ encoding: { ...encoding, phase: "stopped", job: "" } });
    },
    restartEncoding: () => store.set({ encoding: null }),
    /** @param {number} id */
    dismiss: (id) => store.set({ notices: store.state.notices.filter((notice) => notice.id !== id) }),
  };
}
