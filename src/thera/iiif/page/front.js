// The front page of `thera serve`: a list of the folder's images, and the viewer that opens them.
// It uses only the Image API, as any other client would.

import { Viewer } from "../viewer/viewer.js";

const IMAGES = new URL("iiif/3/", document.baseURI);
const THUMBNAIL = 256; // the least longer side of a thumbnail, in pixels, if the image is that large
const PREVIEW = 2 ** 21; // pixels of the image that is shown until tiles are there
const STEP = 1.5;
const NOTHING = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACADs="; // one transparent pixel
const byId = (id) => document.getElementById(id);

/** The info.json of an image. Throws the server's message if there is none. */
async function information(identifier, signal) {
  const response = await fetch(new URL(`${identifier}/info.json`, IMAGES), { signal });
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.json();
}

/** The URL of the whole image, at one of the sizes for which nothing has to be encoded. */
const whole = (identifier, { width, height }, format) =>
  new URL(`${identifier}/full/${width},${height}/0/default.${format}`, IMAGES).href;

async function fill(card) {
  const { identifier } = card.dataset;
  const frame = card.querySelector(".thumbnail");
  try {
    const info = await information(identifier);
    const size = info.sizes.find(({ width, height }) => Math.max(width, height) >= THUMBNAIL) ?? info.sizes.at(-1);
    const image = new Image();
    image.alt = "";
    image.src = whole(identifier, size, info.preferredFormats[0]);
    frame.replaceChildren(image);
    card.querySelector(".size").textContent = `${info.width} × ${info.height}`;
  } catch (error) {
    frame.textContent = "cannot be shown";
    frame.title = error.message;
  }
}

const seen = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      fill(target);
    }
  },
  { rootMargin: "200px" },
);

function card({ name, identifier }) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = `#${identifier}`;
  link.dataset.identifier = identifier;
  for (const part of ["thumbnail", "name", "size"]) {
    const element = document.createElement("span");
    element.className = part;
    link.append(element);
  }
  link.querySelector(".name").textContent = name;
  item.append(link);
  seen.observe(link);
  return item;
}

let viewer = null;
let last = ""; // the image that was open
let leaving = new AbortController(); // what is asked for the image that is open

/** The name of an image; what is no such thing is shown as it is. */
function named(identifier) {
  try {
    return decodeURIComponent(identifier);
  } catch {
    return identifier;
  }
}

/** Takes the image away, and ends all that is still on its way for it. */
function leave() {
  leaving.abort();
  leaving = new AbortController();
  byId("trouble").hidden = byId("info").hidden = byId("larger").hidden = byId("manifest").hidden = byId("zoom").hidden = true;
  return viewer?.open({ width: 1, height: 1, image: NOTHING, wait: true });
}

async function open(identifier) {
  byId("title").textContent = named(identifier);
  viewer ??= new Viewer(byId("stage"), {
    webgl: false, // fields stay on the server, which makes the tiles
    onview: ({ zoom }) => (byId("percent").textContent = `${Math.round(100 * zoom)}%`),
  });
  leave();
  const { signal } = leaving;
  try {
    const info = await information(identifier, signal);
    if (signal.aborted) return;
    const [format] = info.preferredFormats;
    const preview = info.sizes.findLast(({ width, height }) => width * height <= PREVIEW) ?? info.sizes[0];
    byId("info").href = `${info.id}/info.json`;
    byId("larger").href = `${info.service?.[0].id ?? info.id}/info.json`;
    byId("larger").hidden = !info.service;
    byId("manifest").href = `${info.id}/manifest.json`;
    byId("info").hidden = byId("manifest").hidden = byId("zoom").hidden = false;
    byId("stage").focus();
    await viewer.open({
      width: info.width,
      height: info.height,
      image: whole(identifier, preview, format),
      tiles: ({ region: [x, y, w, h], size: [width, height] }) => {
        // The Image API takes whole pixels. Only reduced tiles can have others.
        const [left, top, right, bottom] = [x, y, x + w, y + h].map(Math.round);
        const region = [left, top, Math.max(1, right - left), Math.max(1, bottom - top)];
        return new URL(`${identifier}/${region}/^${width},${height}/0/default.${format}`, IMAGES).href;
      },
    });
    if (!signal.aborted && !viewer.image.naturalWidth) throw new Error(`${named(identifier)} cannot be shown.`);
  } catch (error) {
    if (signal.aborted) return;
    byId("zoom").hidden = true;
    byId("trouble").textContent = error.message;
    byId("trouble").hidden = false;
  }
}

function show() {
  const identifier = location.hash.slice(1);
  const before = last;
  last = identifier;
  byId("list").hidden = Boolean(identifier);
  byId("view").hidden = byId("back").hidden = !identifier;
  byId("collection").hidden = Boolean(identifier);
  if (identifier) return open(identifier);
  leave();
  byId("title").textContent = document.title;
  if (before) document.querySelector(`[data-identifier="${CSS.escape(before)}"]`)?.focus();
}

function zoom(factor) {
  viewer.camera.zoomBy(factor, viewer.camera.size.map((side) => side / 2));
  viewer.moved();
}

byId("in").addEventListener("click", () => zoom(STEP));
byId("out").addEventListener("click", () => zoom(1 / STEP));
byId("fit").addEventListener("click", () => {
  viewer.camera.fit();
  viewer.moved();
});
addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && location.hash) location.hash = "";
});

const listed = await fetch(new URL("images.json", document.baseURI)).then((response) => response.json());
document.title = listed.folder;
byId("count").textContent = listed.images.length === 1 ? "1 image" : `${listed.images.length} images`;
byId("images").replaceChildren(...listed.images.map(card));
show();
