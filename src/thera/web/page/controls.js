// The controls that the local page and an exported page share.

const NAMES = { nearest: "Nearest", bicubic: "Bicubic" };
const $ = (id) => document.getElementById(id);
const radios = (name) => [...document.querySelectorAll(`input[name="${name}"]`)];

/** Connects the controls for comparison, filter, rotation, zoom and keys to a viewer. */
export function connect(viewer) {
  const choose = (name, value) => {
    const radio = radios(name).find((each) => each.value === value);
    radio.checked = true;
    radio.dispatchEvent(new Event("change", { bubbles: true }));
  };
  const chosen = (name) => radios(name).find((each) => each.checked).value;

  for (const radio of radios("other")) {
    radio.addEventListener("change", () => {
      const other = chosen("other");
      if (other) viewer.look = { other };
      viewer.curtain = other ? viewer.curtain ?? 0.5 : null;
      $("before").hidden = $("after").hidden = !other;
      $("before").textContent = NAMES[other] ?? "";
    });
  }
  for (const radio of radios("shown")) {
    radio.addEventListener("change", () => (viewer.look = { shown: chosen("shown") }));
  }
  $("filter").addEventListener("change", () => {
    viewer.look = { filter: $("filter").value };
    $("sharpness").disabled = $("filter").value === "none";
  });
  $("sharpness").addEventListener("input", () => {
    const sharpness = sharpnessOf($("sharpness"));
    tell("sharpness", sharpness.toFixed(2));
    viewer.look = { sharpness };
  });
  $("sharpness").addEventListener("dblclick", () => reset("sharpness"));
  for (const name of ["angle", "tilt"]) {
    $(name).addEventListener("input", () => {
      const change = Number($(name).value) - viewer.camera[name];
      name === "angle" ? viewer.camera.turnBy(change) : viewer.camera.tiltBy(change);
      viewer.moved();
    });
    $(name).addEventListener("dblclick", () => reset(name));
  }

  const camera = (change) => () => {
    change(viewer.camera);
    viewer.moved();
  };
  $("in").addEventListener("click", camera((c) => c.zoomBy(1.5)));
  $("out").addEventListener("click", camera((c) => c.zoomBy(1 / 1.5)));
  $("fit").addEventListener("click", camera((c) => c.fit()));
  $("one").addEventListener("click", camera((c) => c.zoomBy(1 / c.zoom / (devicePixelRatio || 1))));
  $("help").addEventListener("click", () => $("keys").showModal());

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    if (event.target.matches("input, select, textarea")) return;
    const toggle = (name, value, rest) => choose(name, chosen(name) === value ? rest : value);
    if (event.key === "c") choose("other", chosen("other") ? "" : "bicubic");
    else if (event.key === "g") toggle("shown", "gradient", "picture");
    else if (event.key === "l") toggle("shown", "laplacian", "picture");
    else if (event.key === "?") $("keys").showModal();
  });

  viewer.onview = (view) => {
    const percent = 100 * view.zoom * (devicePixelRatio || 1);
    $("percent").textContent = `${percent >= 10 ? Math.round(percent).toLocaleString("en") : percent.toFixed(1)}%`;
    for (const name of ["angle", "tilt"]) {
      $(name).value = view[name];
      tell(name, `${Math.round(view[name])}°`);
    }
  };
  viewer.onview(viewer.camera);
}

/** Writes the viewer's status to the status line. */
export function report({ mode, reason }, extra = "") {
  const status = $("status");
  status.dataset.mode = mode;
  const texts = {
    live: "Live: every pixel is evaluated on this device’s GPU",
    tiles: `Tiles rendered by the program${reason ? `. ${reason}` : ""}`,
    pixels: reason || extra || "The pixels, enlarged by bicubic interpolation",
  };
  const text = mode === "live" && extra ? extra : texts[mode];
  if (status.textContent !== text) status.textContent = text;
}

export const sharpnessOf = (slider) => 2 ** Number(slider.value);

function tell(name, text) {
  document.querySelector(`output[for="${name}"]`).textContent = text;
}

function reset(name) {
  $(name).value = 0;
  $(name).dispatchEvent(new Event("input"));
}
