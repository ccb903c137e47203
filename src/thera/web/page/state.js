// The state of the page, and what can be said of it. Nothing here changes anything.

import { about } from "./sizes.js";

/** @typedef {import("./backend.js").Picture} Picture */
/** @typedef {import("./backend.js").Job} Job */

/**
 * The encoding of what is shown.
 * @typedef {Object} Encoding
 * @property {string} picture its id
 * @property {string} model
 * @property {number[] | null} region null for all of it
 * @property {"starting" | "working" | "loading" | "drawn" | "stopped" | "failed"} phase
 * @property {string} job its id, once it has one
 * @property {string} message why it failed
 */

/** A file on its way in. @typedef {{id: number, name: string, share: number}} Upload */
/** A sentence that a person should read. @typedef {{id: number, text: string}} Notice */

/**
 * @typedef {Object} State
 * @property {import("./backend.js").About | null} about
 * @property {boolean} connected the backend has told something
 * @property {Picture[]} pictures
 * @property {Job[]} jobs
 * @property {string[]} fresh ids of jobs that were just started, and that the backend has not told of yet
 * @property {Record<string, number>} speeds
 * @property {Upload[]} uploads
 * @property {Notice[]} notices
 * @property {string | null} current the id of the picture that is shown
 * @property {string} model
 * @property {Encoding | null} encoding
 * @property {{mode: string, busy: string, share: number, reason: string}} drawn what the viewer draws
 * @property {{zoom: number, angle: number, tilt: number, near: boolean}} view near: what is in view of a large
 * picture can be encoded
 * @property {{filter: string, sharpness: number, shown: string}} look
 * @property {{other: string, split: boolean}} compare other: "", "nearest", "bicubic" or a model
 * @property {import("./sizes.js").SizeChoice} size
 * @property {{format: string, quality: number, ensemble: boolean}} file
 * @property {boolean} sheet on a phone: the settings are open
 */

/** @type {State} */
export const INITIAL = {
  about: null,
  connected: false,
  pictures: [],
  jobs: [],
  fresh: [],
  speeds: {},
  uploads: [],
  notices: [],
  current: null,
  model: "",
  encoding: null,
  drawn: { mode: "pixels", busy: "", share: 0, reason: "" },
  view: { zoom: 1, angle: 0, tilt: 0, near: false },
  look: { filter: "gaussian", sharpness: 1, shown: "picture" },
  compare: { other: "", split: false },
  size: { preset: "4", by: "scale", scale: 3, width: 0, height: 0, locked: true, paper: "30 × 20 cm", ppi: 300 },
  file: { format: "", quality: 95, ensemble: false },
  sheet: false,
};

const NAMES = /** @type {Record<string, string>} */ ({
  nearest: "As given", bicubic: "Bicubic", "photo-air": "Photo Air",
});
const NOTES = /** @type {Record<string, string>} */ ({
  "edsr-air": "Quick, and live while you zoom",
  "edsr-plus": "Finer detail, slower",
  "edsr-pro": "Finest detail, slowest",
  photo: "Removes JPEG blocks, noise and blur",
  "photo-air": "Removes JPEG blocks, noise and blur; quick",
  zoom: "As a longer lens would show it, for camera pictures",
});

/** The picture that is shown. @param {State} state */
export const currentOf = (state) => state.pictures.find(({ id }) => id === state.current) ?? null;

/** The state with a job that was just started, unless more is known of it already. @param {State} state @param {Job} job */
export const withJob = (state, job) =>
  state.jobs.some(({ id }) => id === job.id) ? {} : { jobs: [...state.jobs, job], fresh: [...state.fresh, job.id] };

/**
 * The state with what the backend tells. It may have been said before a job was started here.
 * @param {State} state
 * @param {import("./backend.js").Snapshot} snapshot
 */
export function withSnapshot(state, { pictures, jobs, speeds }) {
  const fresh = state.fresh.filter((id) => !jobs.some((job) => job.id === id));
  const kept = state.jobs.filter(({ id }) => fresh.includes(id));
  const here = pictures.some(({ id }) => id === state.current);
  const current = here ? state.current : (pictures.at(state.current ? -1 : 0)?.id ?? null);
  return { pictures, jobs: [...jobs, ...kept], fresh, speeds, current, connected: true };
}

/** The name of a model or of another method, for people. @param {string} name */
export function titleOf(name) {
  const last = name.split(/[-/\\]/).at(-1) ?? name;
  return NAMES[name] ?? last.charAt(0).toUpperCase() + last.slice(1);
}

/** What a model is good for, and how long it takes for this picture here. @param {State} state @param {string} model */
export function describeModel(state, model) {
  const picture = currentOf(state);
  const speed = state.speeds[model];
  const known = picture && speed !== undefined;
  const time = known ? about((speed * picture.width * picture.height) / 1e6) : "";
  return { note: NOTES[model] ?? model, time };
}

/** Whether the page's GPU draws this picture by this model. @param {State} state @param {Picture} picture */
export const drawnLive = (state, picture) =>
  !picture.transparent && Boolean(state.about?.models.find(({ name }) => name === state.model)?.live);

/**
 * What is on the screen, in a sentence: derived from the state, and never stored.
 * @param {State} state
 * @returns {{mode: string, text: string, share: number | null, action: "" | "cancel" | "restart"}}
 */
export function statusOf(state) {
  const picture = currentOf(state);
  const { drawn, encoding } = state;
  const say = (/** @type {string} */ text, extra = {}) => ({
    mode: drawn.mode, text, share: null, action: /** @type {const} */ (""), ...extra,
  });
  if (!picture) return say("");
  const model = titleOf(state.model);
  const phase = encoding?.phase;
  if (phase === "starting" || phase === "working" || phase === "loading") {
    const job = state.jobs.find(({ id }) => id === encoding?.job);
    const waits = job?.state === "queued";
    const time = job?.left && phase === "working" ? ` · ${about(job.left)} left` : "";
    const text = waits ? `${model} waits for other work` : `${model} is working out the detail${time}`;
    return say(text, { share: phase === "loading" ? 1 : (job?.share ?? 0), action: "cancel" });
  }
  if (phase === "failed") return say(encoding?.message ?? "", { action: "restart" });
  if (phase === "stopped") return say("Stopped. You see plain bicubic enlargement", { action: "restart" });
  if (drawn.mode === "live") return say(`${model}, drawn live${picture.whole ? "" : ": this part"}`);
  if (drawn.mode === "tiles") {
    if (drawn.busy) return say(`${model} is rendering what you see`);
    return say(drawn.reason ? `${model}, in tiles. ${drawn.reason}` : `${model}, in tiles`);
  }
  if (drawn.reason) return say(drawn.reason);
  if (!picture.whole && !state.view.near) return say("A large picture: zoom in to see the detail");
  return say("Plain bicubic enlargement");
}
