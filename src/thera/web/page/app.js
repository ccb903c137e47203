// The local page. The program behind it reads, encodes and scales the pictures.

import { connect, report, sharpnessOf } from "./controls.js";
import { reason } from "./viewer/field.js";
import { Viewer } from "./viewer/viewer.js";

const $ = (id) => document.getElementById(id);
const POLL = 150; // milliseconds between two requests for the state of a job

const state = { pictures: [], current: null, models: [], mostCells: 0, job: null, window: null };
const viewer = new Viewer($("stage"), {
  webgl: !new URLSearchParams(location.search).has("tiles"),
  onstatus: () => describe(),
});
connect(viewer);
globalThis.thera = viewer; // for the console, and for tests

async function call(method, path, body, headers = {}) {
  const response = await fetch(`api/${path}`, { method, body, headers });
  if (!response.ok) throw new Error(await reason(response));
  return response.status === 204 ? null : response.json();
}

const post = (path, order) => call("POST", path, JSON.stringify(order), { "Content-Type": "application/json" });

// ---- Jobs: one at a time, with a progress bar and a cancel button

async function run(title, start) {
  const job = { cancelled: false };
  state.job?.cancel();
  state.job = job;
  job.cancel = () => {
    job.cancelled = true;
    if (job.id) call("POST", `jobs/${job.id}/cancel`).catch(() => {});
    if (state.job === job) finish();
  };
  const finish = () => {
    state.job = null;
    $("work").hidden = true;
    describe();
  };
  $("doing").textContent = title;
  $("share").removeAttribute("value");
  $("work").hidden = false;
  try {
    let now = await start();
    job.id = now.id;
    if (job.cancelled) job.cancel();
    while (!job.cancelled && ["queued", "running"].includes(now.state)) {
      if (now.share > 0) $("share").value = now.share;
      await new Promise((resolve) => setTimeout(resolve, POLL));
      now = await call("GET", `jobs/${job.id}`);
    }
    if (now.state === "failed") throw new Error(now.message);
    return !job.cancelled && now.state === "done" ? `api/jobs/${job.id}/result` : null;
  } finally {
    if (state.job === job) finish();
  }
}

$("cancel").addEventListener("click", () => state.job?.cancel());

function complain(error) {
  $("trouble").textContent = error.message;
  $("trouble").hidden = false;
  clearTimeout(complain.timer);
  complain.timer = setTimeout(() => ($("trouble").hidden = true), 12000);
}

const guarded = (work) => (...given) => work(...given).catch(complain);

// ---- Pictures

async function add(files) {
  $("trouble").hidden = true;
  let last = null;
  for (const file of files) {
    try {
      last = await call("POST", `pictures?name=${encodeURIComponent(file.name)}`, file);
      state.pictures.push(last);
    } catch (error) {
      complain(new Error(error.message.includes(file.name) ? error.message : `${file.name}: ${error.message}`));
    }
  }
  list();
  if (last) await show(last);
}

function list() {
  document.body.classList.toggle("empty", state.pictures.length === 0);
  $("pictures").replaceChildren(
    ...state.pictures.map((picture) => {
      const item = document.createElement("li");
      const pick = button("pick", `Show ${picture.name}`, () => guarded(show)(picture));
      const image = new Image();
      image.src = `api/pictures/${picture.id}/image`;
      image.alt = "";
      pick.append(image);
      pick.setAttribute("aria-current", picture === state.current);
      const shut = button("shut", `Close ${picture.name}`, () => guarded(close)(picture));
      shut.textContent = "×";
      item.append(pick, shut);
      return item;
    }),
  );
}

function button(className, label, action) {
  const element = document.createElement("button");
  element.className = className;
  element.setAttribute("aria-label", label);
  element.title = label;
  element.addEventListener("click", action);
  return element;
}

async function close(picture) {
  state.pictures = state.pictures.filter((each) => each !== picture);
  await call("DELETE", `pictures/${picture.id}`);
  if (picture === state.current) {
    state.job?.cancel();
    state.current = null;
    if (state.pictures.length) await show(state.pictures.at(-1));
  }
  list();
}

async function show(picture) {
  state.job?.cancel();
  state.current = picture;
  state.window = null;
  list();
  $("title").textContent = `${picture.name}, ${picture.width} × ${picture.height}`;
  $("title").title = picture.notes.join("; ");
  $("width").value = 4 * picture.width;
  $("height").value = 4 * picture.height;
  $("download").disabled = false;
  outcome();
  await viewer.open({
    width: picture.width,
    height: picture.height,
    image: `api/pictures/${picture.id}/image`,
    tiles: (tile) => tileUrl(picture, tile),
    wait: true,
  });
  await encode();
}

function tileUrl(picture, { region: [x, y, w, h], size: [width, height], filter, sharpness, shown }) {
  const query = { model: $("model").value, x, y, w, h, width, height, filter, sharpness, shown };
  return `api/pictures/${picture.id}/tile?${new URLSearchParams(query)}`;
}

// ---- Fields: of the whole picture, or of the visible part of a large one

const live = () => viewer.painter && state.models.find(({ name }) => name === $("model").value)?.live;

async function encode() {
  const picture = state.current;
  if (!picture) return;
  if (!picture.whole) return live() ? look() : viewer.useTiles(tileReason());
  const result = await run("Encoding", () => post(`pictures/${picture.id}/field`, { model: $("model").value }));
  if (!result || picture !== state.current) return;
  if (live()) await viewer.setField(result);
  else viewer.useTiles(tileReason());
}

function tileReason() {
  if (!viewer.painter) return viewer.status.reason;
  return `${$("model").value} has more waves than a page can sum live.`;
}

/** Encodes the visible part of a large picture, with a margin. */
async function look() {
  const picture = state.current;
  const [top, left, bottom, right] = viewer.camera.visible;
  const margin = [(bottom - top) / 4, (right - left) / 4];
  const wanted = [
    Math.max(0, Math.floor(top - margin[0])),
    Math.max(0, Math.floor(left - margin[1])),
    Math.min(picture.height, Math.ceil(bottom + margin[0])),
    Math.min(picture.width, Math.ceil(right + margin[1])),
  ];
  if ((wanted[2] - wanted[0]) * (wanted[3] - wanted[1]) > state.mostCells) return;
  const [a, b, c, d] = state.window ?? [0, 0, 0, 0];
  if (top >= a && left >= b && bottom <= c && right <= d) return;
  state.window = wanted;
  const order = { model: $("model").value, region: wanted };
  const result = await run("Encoding this part", () => post(`pictures/${picture.id}/field`, order));
  if (result && picture === state.current) await viewer.setField(result, wanted.slice(0, 2));
  else if (state.window === wanted) state.window = null;
}

const shown = viewer.onview;
viewer.onview = (camera) => {
  shown(camera);
  if (!state.current || state.current.whole || !live()) return;
  clearTimeout(state.resting);
  state.resting = setTimeout(guarded(look), 400);
};

function describe() {
  const large = state.current && !state.current.whole;
  const waiting = state.job ? "The pixels for now, enlarged by bicubic interpolation" : "";
  const hint = large && !state.window ? "A large picture: zoom in, and what is in view is encoded" : "";
  const partly = large ? "Live: every pixel of this part is evaluated on this device’s GPU" : "";
  report(viewer.status, viewer.status.mode === "live" ? partly : waiting || hint);
}

$("model").addEventListener("change", guarded(async () => {
  describeModel();
  state.window = null;
  viewer.painter?.setField(null);
  viewer.tiles?.clear();
  await encode();
}));

function describeModel() {
  const model = state.models.find(({ name }) => name === $("model").value);
  $("model-note").textContent = model.live
    ? "Fast. Its field is drawn live by your GPU."
    : "Sees more around every pixel. Slower; drawn as tiles.";
}

// ---- Downloads

const size = () => document.querySelector('input[name="size"]:checked').value;

function order() {
  const common = {
    model: $("model").value,
    filter: $("filter").value,
    sharpness: sharpnessOf($("sharpness")),
    ensemble: $("ensemble").checked,
    format: $("format").value || null,
  };
  if (size() === "exact") return { ...common, width: Number($("width").value), height: Number($("height").value) };
  return { ...common, scale: Number(size() === "scale" ? $("scale").value : size()) };
}

function outcome() {
  $("by-scale").hidden = size() !== "scale";
  $("by-size").hidden = size() !== "exact";
  if (!state.current) return;
  const { scale, width, height } = order();
  const [w, h] = scale ? [state.current.width * scale, state.current.height * scale].map(Math.round) : [width, height];
  $("outcome").textContent = `${w.toLocaleString("en")} × ${h.toLocaleString("en")} pixels, with what the file carries`;
}

$("order").addEventListener("input", (event) => {
  const { width, height } = state.current ?? { width: 1, height: 1 };
  if (event.target.id === "width") $("height").value = Math.max(1, Math.round(($("width").value * height) / width));
  outcome();
});

$("order").addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(async () => {
    const path = `pictures/${state.current.id}/download`;
    const result = await run("Rendering the file", () => post(path, order()));
    if (!result) return;
    const link = document.createElement("a");
    link.href = result;
    link.download = "";
    link.click();
  })();
});

// ---- Opening files: button, drop, paste

$("open").addEventListener("click", () => $("files").click());
$("choose").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", () => {
  guarded(add)([...$("files").files]);
  $("files").value = "";
});
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dropping");
});
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files.length) guarded(add)([...event.dataTransfer.files]);
});
addEventListener("paste", (event) => {
  if (event.clipboardData?.files.length) guarded(add)([...event.clipboardData.files]);
});

guarded(async () => {
  const about = await call("GET", "about");
  Object.assign(state, { models: about.models, mostCells: about.most_cells });
  $("model").replaceChildren(...about.models.map(({ name }) => new Option(name, name, false, name === about.model)));
  describeModel();
  state.pictures = await call("GET", "pictures");
  list();
  outcome();
  document.body.dataset.ready = "";
  if (state.pictures.length) await show(state.pictures[0]);
})();
