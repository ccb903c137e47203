// Size, format and quality of a download, and the downloads themselves.

import { $, check, fill, make, radios, write } from "./dom.js";
import { PAPERS, about, fileSize, pixelsOf, round, sizeOf } from "./sizes.js";
import { currentOf } from "./state.js";

const NAMES = /** @type {Record<string, string>} */ ({
  png: "PNG", jpeg: "JPEG", webp: "WebP", avif: "AVIF", tiff: "TIFF", bmp: "BMP", jxl: "JPEG XL",
});

/**
 * @param {import("./app.js").Store} store
 * @param {import("./app.js").Actions} actions
 * @param {import("./backend.js").Backend} backend
 */
export function createDownloads(store, actions, backend) {
  if (!backend.can.download) document.documentElement.dataset.viewOnly = "";
  $("paper").replaceChildren(...Object.keys(PAPERS).map((name) => make("option", { value: name }, name)));
  listen(store, actions);

  store.subscribe((state) => {
    const { file, size } = state;
    const formats = state.about?.formats ?? [];
    const picture = currentOf(state);
    check("size", size.preset);
    $("own").hidden = size.preset !== "own";
    $("by-print").hidden = size.preset !== "print";
    fill($("format"), formats, () => [
      make("option", { value: "" }, "As it came"),
      ...formats.map(({ name }) => make("option", { value: name }, NAMES[name] ?? name)),
    ]);
    $("format").value = file.format;
    $("by-quality").hidden = !formats.find(({ name }) => name === file.format)?.lossy;
    $("quality").value = file.quality;
    write($("quality-value"), String(file.quality));
    $("ensemble").checked = file.ensemble;
    $("lock").setAttribute("aria-pressed", String(size.locked));
    $("paper").value = size.paper;
    keep($("ppi"), size.ppi);
    if (picture) {
      const [w, h] = pixelsOf(sizeOf(size, picture), picture);
      const own = { width: w, height: h, scale: Number((w / picture.width).toFixed(4)) };
      keep($("width"), size.by === "width" || !size.locked ? size.width : own.width);
      keep($("height"), size.by === "height" || !size.locked ? size.height : own.height);
      keep($("scale"), size.by === "scale" ? size.scale : own.scale);
      const good = [w, h].every((side) => Number.isFinite(side) && side >= 1);
      const text = good ? `${w.toLocaleString("en")} × ${h.toLocaleString("en")} pixels` : "Give a size";
      write($("outcome"), text);
      write($("bar-outcome"), good ? `${w} × ${h}` : "");
      for (const button of [$("download"), $("download-all"), $("bar-download")]) button.disabled = !good;
    }
    $("download-all").hidden = state.pictures.length < 2;
    write($("download-all"), `Download all ${state.pictures.length}`);
    const jobs = state.jobs.filter(({ kind }) => kind === "download").toReversed();
    $("jobs-panel").hidden = jobs.length === 0;
    showJobs(jobs, actions);
    const active = jobs.filter((job) => job.state === "queued" || job.state === "running");
    const last = active.at(-1) ?? jobs[0];
    $("bar-jobs").hidden = !last;
    const others = active.length > 1 ? ` · ${active.length - 1} more` : "";
    write($("bar-name"), last?.name ?? "");
    write($("bar-progress"), last ? ` · ${describe(last)}${others}` : "");
  });
}

/** Sets a field, but not under the fingers of whoever types. @param {HTMLInputElement} input @param {number} value */
function keep(input, value) {
  if (document.activeElement !== input && input.value !== String(value)) input.value = String(value);
}

/** @param {import("./backend.js").Job[]} jobs @param {import("./app.js").Actions} actions */
function showJobs(jobs, actions) {
  fill($("jobs"), jobs.map(({ id, state }) => [id, state]), () =>
    jobs.map((job) => {
      const act = (/** @type {string} */ label, /** @type {() => void} */ action, primary = false) =>
        make("button", { class: primary ? "primary" : null, "aria-label": `${label} ${job.name}`, onclick: action }, label);
      const buttons = {
        queued: [act("Cancel", () => actions.cancel(job))],
        running: [act("Cancel", () => actions.cancel(job))],
        done: [act("Save", () => actions.save(job), true), act("Remove", () => actions.remove(job))],
        failed: [act("Try again", () => actions.retry(job)), act("Remove", () => actions.remove(job))],
        cancelled: [act("Start again", () => actions.retry(job)), act("Remove", () => actions.remove(job))],
      }[job.state];
      const active = job.state === "queued" || job.state === "running";
      return make("li", { "data-id": job.id, "data-state": job.state },
        make("span", { class: "name", title: job.name }, job.name ?? ""),
        active ? make("progress", { max: 1, "aria-label": `Progress of ${job.name}` }) : null,
        make("span", { class: "small" }),
        make("span", { class: "buttons" }, ...buttons));
    }));
  const count = Number($("jobs").dataset.count ?? 0);
  $("jobs").dataset.count = String(jobs.length);
  if (jobs.length > count) $("jobs").lastElementChild?.scrollIntoView({ block: "nearest" }); // what was just ordered
  for (const job of jobs) {
    const item = $("jobs").querySelector(`[data-id="${job.id}"]`);
    const bar = item.querySelector("progress");
    if (bar && job.share > 0) bar.value = job.share;
    write(item.querySelector(".small"), describe(job));
  }
}

/** @param {import("./backend.js").Job} job */
function describe(job) {
  if (job.state === "queued") return "waits for its turn";
  if (job.state === "done") return job.bytes ? fileSize(job.bytes) : "done";
  if (job.state === "failed") return job.message;
  if (job.state === "cancelled") return "cancelled";
  const time = job.left ? `${about(job.left)} left` : "working";
  return job.share > 0 ? `${Math.round(100 * job.share)}% · ${time}` : `started · ${time}`;
}

/** @param {import("./app.js").Store} store @param {import("./app.js").Actions} actions */
function listen(store, actions) {
  /** @param {Partial<import("./sizes.js").SizeChoice>} change */
  const resize = (change) => store.set({ size: { ...store.state.size, ...change } });
  /** @param {Partial<import("./state.js").State["file"]>} change */
  const refile = (change) => store.set({ file: { ...store.state.file, ...change } });

  for (const radio of radios("size")) {
    radio.addEventListener("change", () => resize({ preset: /** @type {any} */ (radio.value) }));
  }
  $("scale").addEventListener("input", () => resize({ by: "scale", scale: Number($("scale").value), locked: true }));
  $("width").addEventListener("input", () => edit("width"));
  $("height").addEventListener("input", () => edit("height"));
  /** @param {"width" | "height"} side */
  function edit(side) {
    const picture = currentOf(store.state);
    if (!picture) return;
    const other = side === "width" ? "height" : "width";
    const value = Number($(side).value);
    const fitting = Math.max(1, round((value / picture[side]) * picture[other]));
    const rest = store.state.size.locked ? fitting : Number($(other).value);
    resize({ by: side, [side]: value, [other]: rest });
  }
  $("lock").addEventListener("click", () => {
    const locked = !store.state.size.locked;
    const by = !locked && store.state.size.by === "scale" ? "width" : store.state.size.by;
    resize({ locked, by, width: Number($("width").value), height: Number($("height").value) });
  });
  $("paper").addEventListener("change", () => resize({ paper: $("paper").value }));
  $("ppi").addEventListener("input", () => resize({ ppi: Number($("ppi").value) || 0 }));
  $("format").addEventListener("change", () => refile({ format: $("format").value }));
  $("quality").addEventListener("input", () => refile({ quality: Number($("quality").value) }));
  $("ensemble").addEventListener("change", () => refile({ ensemble: $("ensemble").checked }));
  $("order").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    actions.download();
  });
  $("download-all").addEventListener("click", actions.downloadAll);
  $("bar-download").addEventListener("click", actions.download);
}
