// An exported page: the picture and its field are in the document, and no program is behind it.

import { start } from "./app.js";

const part = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const facts = JSON.parse(part("facts").textContent ?? "");
const image = `data:image/png;base64,${part("image").textContent}`;
const none = () => Promise.reject(new Error("An exported page has one picture: use `thera app` for others."));
/** @type {import("./backend.js").Picture} */
const picture = { id: "one", whole: true, transparent: false, ...facts };
/** @type {import("./backend.js").Job} */
const job = { id: "field", kind: "field", state: "done", share: 1, left: null, message: "", picture: "one" };

/** @param {string} base64 */
function bytes(base64) {
  const decoder = /** @type {any} */ (Uint8Array);
  return decoder.fromBase64 ? decoder.fromBase64(base64) : Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

/** @type {import("./backend.js").Backend} */
const backend = {
  can: { open: false, download: false, tiles: false, view: false },
  privacy: "",
  about: async () => ({
    version: "", models: [{ name: facts.model, live: true }], model: facts.model, formats: [], most_cells: Infinity,
  }),
  listen: (listener) => listener({ pictures: [picture], jobs: [job], speeds: {} }),
  image: () => image,
  thumbnail: () => image,
  tile: () => image,
  encode: async () => job,
  field: async () => bytes(part("field").textContent ?? ""),
  open: none, close: none, download: none, view: none, cancel: none, retry: none, remove: none,
  result: () => "",
};

document.title = `${facts.name} · Thera`;
await start(backend);
