// Opening pictures: the button, drop and paste, the files on their way, and the row of thumbnails.

import { $, fill, make, write } from "./dom.js";
import { currentOf } from "./state.js";

/**
 * @param {import("./app.js").Store} store
 * @param {import("./app.js").Actions} actions
 * @param {import("./backend.js").Backend} backend
 */
export function createPictures(store, actions, backend) {
  write($("privacy"), backend.privacy);
  if (!backend.can.open) document.documentElement.dataset.closed = "";
  else listen(actions);

  store.subscribe((state) => {
    const picture = currentOf(state);
    document.body.classList.toggle("empty", !picture);
    document.body.classList.toggle("opening", !picture && (state.uploads.length > 0 || !state.connected));
    write($("title-name"), picture?.name ?? "");
    write($("title-size"), picture ? ` · ${picture.width} × ${picture.height}` : "");
    fill($("notes"), picture?.notes ?? [], () => (picture?.notes ?? []).map((note) => make("li", {}, note)));
    $("strip").hidden = state.pictures.length < 2;
    write($("all-count"), `${state.pictures.length} pictures`);
    fill($("pictures"), [state.pictures.map(({ id }) => id), state.current], () =>
      state.pictures.map((each) =>
        make("li", {},
          make("button",
            {
              class: "pick",
              title: each.name,
              "aria-label": `Show ${each.name}`,
              "aria-current": each.id === state.current ? "true" : null,
              onclick: () => actions.show(each.id),
            },
            make("img", { src: backend.thumbnail(each), alt: "", loading: "lazy" })),
          make("button",
            { class: "shut", "aria-label": `Close ${each.name}`, title: "Close", onclick: () => actions.close(each) },
            "×"))), () => $("pictures").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }));
    fill($("uploads"), state.uploads.map(({ id }) => id), () =>
      state.uploads.map(({ id, name }) =>
        make("li", { "data-id": id },
          make("span", { class: "name" }, name),
          make("progress", { max: 1, "aria-label": `Opening ${name}` }),
          make("span", { class: "small" }))));
    for (const { id, share } of state.uploads) {
      const item = $("uploads").querySelector(`[data-id="${id}"]`);
      if (share < 1) item.querySelector("progress").value = share;
      else item.querySelector("progress").removeAttribute("value");
      write(item.querySelector(".small"), share < 1 ? `${Math.round(100 * share)}%` : "reading");
    }
    $("uploads").hidden = state.uploads.length === 0;
    fill($("notices"), state.notices, () =>
      state.notices.map(({ id, text }) =>
        make("li", {},
          make("span", {}, text),
          make("button", { class: "quiet", "aria-label": "Dismiss", onclick: () => actions.dismiss(id) }, "×"))));
  });
}

/** @param {import("./app.js").Actions} actions */
function listen(actions) {
  const choose = () => $("files").click();
  $("open").addEventListener("click", choose);
  $("choose").addEventListener("click", choose);
  $("files").addEventListener("change", () => {
    actions.add([...$("files").files]);
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
    take(event.dataTransfer, "dropped");
  });
  addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) take(event.clipboardData, "pasted");
  });

  /** @param {DataTransfer | null} data @param {string} how */
  function take(data, how) {
    const files = [...(data?.files ?? [])];
    if (files.length) actions.add(files);
    else actions.complain(new Error(`What was ${how} is no file: choose pictures from this computer.`));
  }
}
