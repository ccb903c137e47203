// Keeps what is drawn in step with the state: opens pictures, has them encoded, hands fields to the viewer.

import { currentOf, drawnLive, withJob } from "./state.js";
import { Viewer } from "./viewer/viewer.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./state.js").Encoding} Encoding */
/** @typedef {import("./backend.js").Picture} Picture */

const REST = 400; // milliseconds that a view rests before what is in it is encoded

/**
 * @param {import("./store.js").Store<State>} store
 * @param {import("./backend.js").Backend} backend
 * @param {HTMLElement} element
 */
export function createView(store, backend, element) {
  /** @type {string | null} */
  let opened = null;
  let model = "";
  let compared = "";
  /** Resolves once the pixels of the picture are drawn. */
  let pixels = Promise.resolve();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let resting;

  const viewer = new Viewer(element, {
    webgl: !new URLSearchParams(location.search).has("tiles"),
    onstatus: (drawn) => store.set({ drawn }),
    onview: ({ zoom, angle, tilt }) => {
      store.set({ view: { ...store.state.view, zoom, angle, tilt } });
      clearTimeout(resting);
      resting = setTimeout(() => store.set({ view: { ...store.state.view, near: Boolean(partInView()) } }), REST);
    },
  });

  /** The part of a large picture that is in view, with a margin; null if it is too much to encode. */
  function partInView() {
    const picture = currentOf(store.state);
    if (!picture) return null;
    const [top, left, bottom, right] = viewer.camera.visible;
    const margin = [(bottom - top) / 4, (right - left) / 4];
    const part = [
      Math.max(0, Math.floor(top - margin[0])),
      Math.max(0, Math.floor(left - margin[1])),
      Math.min(picture.height, Math.ceil(bottom + margin[0])),
      Math.min(picture.width, Math.ceil(right + margin[1])),
    ];
    return (part[2] - part[0]) * (part[3] - part[1]) > (store.state.about?.most_cells ?? 0) ? null : part;
  }

  /** True if what is in view lies within a region. @param {number[]} region */
  function covers([top, left, bottom, right]) {
    const [t, l, b, r] = viewer.camera.visible;
    return t >= top && l >= left && b <= bottom && r <= right;
  }

  /** @param {Partial<Encoding>} change */
  const update = (change) => {
    if (store.state.encoding) store.set({ encoding: { ...store.state.encoding, ...change } });
  };
  /** @param {Encoding | null} encoding */
  const abandon = (encoding) => {
    const job = store.state.jobs.find(({ id }) => id === encoding?.job);
    if (job && (job.state === "queued" || job.state === "running")) backend.remove(job).catch(() => {});
  };

  /** @param {Picture} picture @param {number[] | null} region */
  async function encode(picture, region) {
    abandon(store.state.encoding);
    /** @type {Encoding} */
    const encoding = { picture: picture.id, model: store.state.model, region, phase: "starting", job: "", message: "" };
    store.set({ encoding });
    const still = () => store.state.encoding?.picture === encoding.picture && !store.state.encoding.job &&
      store.state.encoding.model === encoding.model && store.state.encoding.region === region;
    try {
      await pixels; // a person sees the picture first: encoding takes all cores
      if (!still()) return;
      const job = await backend.encode(picture, encoding.model, region);
      if (!still()) return void backend.remove(job).catch(() => {});
      store.set(withJob(store.state, job));
      update({ phase: "working", job: job.id });
    } catch (error) {
      if (still()) update({ phase: "failed", message: String(/** @type {any} */ (error).message) });
    }
  }

  /** @param {import("./backend.js").Job} job */
  async function take(job) {
    update({ phase: "loading" });
    const encoding = store.state.encoding;
    const mine = () => store.state.encoding?.job === job.id;
    try {
      const bytes = await backend.field(job);
      if (!mine() || !encoding) return;
      if (bytes && viewer.painter) await viewer.setField(bytes, encoding.region?.slice(0, 2));
      else viewer.useTiles(tileReason());
      if (mine()) update({ phase: "drawn" });
    } catch (error) {
      if (mine()) update({ phase: "failed", message: String(/** @type {any} */ (error).message) });
    }
  }

  function tileReason() {
    if (!viewer.painter) return viewer.status.reason;
    return currentOf(store.state)?.transparent ? "Transparency is shown on white." : "";
  }

  /** Starts what the state asks for and is not there yet. @param {State} state */
  function reconcile(state) {
    const picture = currentOf(state);
    if ((picture?.id ?? null) !== opened || state.model !== model) {
      abandon(state.encoding);
      const other = picture?.id !== opened;
      opened = picture?.id ?? null;
      model = state.model;
      store.set({ encoding: null });
      if (!picture) return;
      if (other) open(picture);
      else viewer.showPixels();
      return;
    }
    if (!picture) return;
    follow(state, picture);
    const others = state.about?.models.some(({ name }) => name === state.compare.other) ? state.compare.other : "";
    if (compared !== `${picture.id} ${others}`) {
      compared = `${picture.id} ${others}`;
      viewer.otherTiles = others ? (tile) => backend.tile(picture, others, tile) : null;
    }
  }

  /** @param {State} state @param {Picture} picture */
  function follow(state, picture) {
    const { encoding } = state;
    const job = state.jobs.find(({ id }) => id === encoding?.job);
    if (encoding?.phase === "working") {
      if (job?.state === "done") take(job);
      else if (job?.state === "failed") update({ phase: "failed", message: job.message });
      else if (!job || job.state === "cancelled") update({ phase: "stopped" });
      return;
    }
    if (encoding?.phase === "starting" || encoding?.phase === "loading") return;
    if (picture.whole) {
      if (!encoding) encode(picture, null);
    } else if (!drawnLive(state, picture) || !viewer.painter) {
      if (viewer.status.mode !== "tiles") viewer.useTiles(tileReason());
    } else if (state.view.near && encoding?.phase !== "failed" && encoding?.phase !== "stopped") {
      const part = partInView();
      if (part && !(encoding?.region && covers(encoding.region))) encode(picture, part);
    }
  }

  /** @param {Picture} picture */
  function open(picture) {
    store.set({ view: { ...store.state.view, near: false } });
    pixels = viewer.open({
      width: picture.width,
      height: picture.height,
      image: backend.image(picture),
      tiles: backend.can.tiles ? (tile) => backend.tile(picture, store.state.model, tile) : null,
      wait: true,
    }).catch(() => {}); // the status says what is drawn
  }

  store.subscribe(reconcile);
  store.subscribe(({ look, compare }) => {
    const other = compare.other === "nearest" ? "nearest" : "bicubic";
    if (JSON.stringify({ ...look, other }) !== JSON.stringify(viewer.look)) viewer.look = { ...look, other };
    const split = Boolean(compare.other) && compare.split;
    if (viewer.split !== split) viewer.split = split;
    const curtain = compare.other && !split ? (viewer.curtain ?? 0.5) : null;
    if (viewer.curtain !== curtain) viewer.curtain = curtain;
  });
  return viewer;
}
