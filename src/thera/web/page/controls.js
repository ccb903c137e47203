// Model, comparison, zoom, status and the advanced controls.

import { $, check, fill, make, radios, write } from "./dom.js";
import { describeModel, statusOf, titleOf } from "./state.js";

/**
 * @param {import("./app.js").Store} store
 * @param {import("./app.js").Actions} actions
 * @param {import("./viewer/viewer.js").Viewer} viewer
 */
export function createControls(store, actions, viewer) {
  listen(store, actions, viewer);
  keys(store, viewer);
  store.subscribe((state) => {
    const models = state.about?.models ?? [];
    $("model-panel").hidden = models.length < 2;
    fill($("models"), models, () =>
      models.map(({ name }) =>
        make("label", { "data-model": name },
          make("input", { type: "radio", name: "model", value: name, onchange: () => store.set({ model: name }) }),
          make("span", { class: "title" }, titleOf(name)),
          make("span", { class: "small time" }),
          make("span", { class: "small note" }))));
    check("model", state.model);
    for (const { name } of models) {
      const { note, time } = describeModel(state, name);
      const label = $("models").querySelector(`[data-model="${CSS.escape(name)}"]`);
      write(label.querySelector(".note"), note);
      write(label.querySelector(".time"), time);
    }

    const others = ["", "nearest", "bicubic", ...models.map(({ name }) => name).filter((name) => name !== state.model)];
    const shown = viewer.tileSource === null ? others.slice(0, 3) : others;
    fill($("other"), shown, () =>
      shown.map((name) => make("option", { value: name }, name ? titleOf(name) : "Nothing")));
    $("other").value = state.compare.other;
    $("way").hidden = !state.compare.other;
    check("way", state.compare.split ? "split" : "curtain");
    $("labels").hidden = !state.compare.other;
    write($("before"), titleOf(state.compare.other));
    write($("after"), titleOf(state.model));

    check("shown", state.look.shown);
    $("filter").value = state.look.filter;
    $("sharpness").value = Math.log2(state.look.sharpness);
    $("sharpness").disabled = state.look.filter === "none";
    write($("sharpness-value"), state.look.sharpness.toFixed(2));
    for (const name of /** @type {const} */ (["angle", "tilt"])) {
      $(name).value = state.view[name];
      write($(`${name}-value`), `${Math.round(state.view[name])}°`);
    }
    const percent = 100 * state.view.zoom * (devicePixelRatio || 1);
    write($("percent"), `${percent >= 10 ? Math.round(percent).toLocaleString("en") : percent.toFixed(1)}%`);
    document.body.classList.toggle("sheet", state.sheet);
    $("more").setAttribute("aria-expanded", String(state.sheet));

    const { mode, text, share, action } = statusOf(state);
    $("status").dataset.mode = mode;
    write($("status-text"), text);
    $("status-share").hidden = share === null;
    if (share) $("status-share").value = share;
    else $("status-share").removeAttribute("value");
    $("status-action").hidden = !action;
    write($("status-action"), action === "cancel" ? "Cancel" : "Start again");
    $("status-action").dataset.action = action;
  });
}

/**
 * @param {import("./app.js").Store} store
 * @param {import("./app.js").Actions} actions
 * @param {import("./viewer/viewer.js").Viewer} viewer
 */
function listen(store, actions, viewer) {
  /** @param {Partial<import("./state.js").State["look"]>} change */
  const look = (change) => store.set({ look: { ...store.state.look, ...change } });
  /** @param {Partial<import("./state.js").State["compare"]>} change */
  const compare = (change) => store.set({ compare: { ...store.state.compare, ...change } });

  $("other").addEventListener("change", () => compare({ other: $("other").value }));
  for (const radio of radios("way")) radio.addEventListener("change", () => compare({ split: radio.value === "split" }));
  for (const radio of radios("shown")) radio.addEventListener("change", () => look({ shown: radio.value }));
  $("filter").addEventListener("change", () => look({ filter: $("filter").value }));
  $("sharpness").addEventListener("input", () => look({ sharpness: 2 ** Number($("sharpness").value) }));
  $("sharpness").addEventListener("dblclick", () => look({ sharpness: 1 }));

  /** @param {(camera: import("./viewer/geometry.js").Camera) => void} change */
  const camera = (change) => () => {
    change(viewer.camera);
    viewer.moved();
  };
  $("angle").addEventListener("input", camera((c) => c.turnBy(Number($("angle").value) - c.angle)));
  $("tilt").addEventListener("input", camera((c) => c.tiltBy(Number($("tilt").value) - c.tilt)));
  $("angle").addEventListener("dblclick", camera((c) => c.turnBy(-c.angle)));
  $("tilt").addEventListener("dblclick", camera((c) => c.tiltBy(-c.tilt)));
  $("in").addEventListener("click", camera((c) => c.zoomBy(1.5)));
  $("out").addEventListener("click", camera((c) => c.zoomBy(1 / 1.5)));
  $("fit").addEventListener("click", camera((c) => c.fit()));
  $("one").addEventListener("click", camera((c) => c.zoomBy(1 / c.zoom / (devicePixelRatio || 1))));
  $("save-view").addEventListener("click", actions.saveView);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("more").addEventListener("click", () => store.set({ sheet: !store.state.sheet }));
  $("status-action").addEventListener("click", () => {
    if ($("status-action").dataset.action === "cancel") actions.stopEncoding();
    else actions.restartEncoding();
  });
}

/** @param {import("./app.js").Store} store @param {import("./viewer/viewer.js").Viewer} viewer */
function keys(store, viewer) {
  let last = "bicubic"; // what the curtain showed before it was taken away
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open || !viewer.camera) return;
    if (target.matches("input, select, textarea")) return;
    const { compare, look } = store.state;
    const toggle = (/** @type {string} */ shown) =>
      store.set({ look: { ...look, shown: look.shown === shown ? "picture" : shown } });
    if (event.key === "c") {
      last = compare.other || last;
      store.set({ compare: { ...compare, other: compare.other ? "" : last } });
    } else if (event.key === "s" && compare.other) store.set({ compare: { ...compare, split: !compare.split } });
    else if (event.key === "g") toggle("gradient");
    else if (event.key === "l") toggle("laplacian");
    else if (event.key === "?") $("keys").showModal();
  });
}
