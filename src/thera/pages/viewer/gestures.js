// Turns wheel, mouse, touch and keyboard events into changes of a camera.

const ARROWS = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, 1], ArrowRight: [0, -1] };

/** Listens on `element` and calls `changed` after each change of the camera. Returns a function that stops it. */
export function listen(element, camera, changed) {
  const stop = new AbortController();
  const on = (name, handler, options = {}) => element.addEventListener(name, handler, { signal: stop.signal, ...options });
  const pointers = new Map();
  const place = (event) => {
    const box = element.getBoundingClientRect();
    // Side by side, the view is half as wide as the element.
    return [event.clientY - box.top, (event.clientX - box.left) % camera.size[1]];
  };

  on(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      const step = Math.max(-240, Math.min(240, event.deltaY * lines));
      // Browsers report a pinch on a touchpad as small steps of the wheel with Ctrl.
      camera.zoomBy(Math.exp(-step * (event.ctrlKey ? 0.01 : 0.0018)), place(event));
      changed();
    },
    { passive: false },
  );

  on("pointerdown", (event) => {
    if (event.target.closest("button, input, a, [role=slider]")) return;
    element.focus({ preventScroll: true });
    element.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
  });

  on("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return;
    const before = pointers.get(event.pointerId);
    const now = place(event);
    pointers.set(event.pointerId, now);
    if (pointers.size === 2) {
      for (const [id, other] of pointers) if (id !== event.pointerId) pinch(camera, before, now, other);
    } else if (pointers.size === 1 && event.shiftKey) {
      camera.turnBy((now[1] - before[1]) * 0.4);
    } else if (pointers.size === 1 && (event.altKey || event.buttons === 2)) {
      camera.tiltBy((now[0] - before[0]) * -0.3);
      camera.turnBy((now[1] - before[1]) * 0.3);
    } else if (pointers.size === 1) {
      camera.hold(before, now);
    }
    changed();
  });

  const release = (event) => pointers.delete(event.pointerId);
  on("pointerup", release);
  on("pointercancel", release);
  on("contextmenu", (event) => event.preventDefault());
  on("dblclick", (event) => {
    if (event.target.closest("button, input, a, [role=slider]")) return;
    camera.zoomBy(event.shiftKey ? 0.5 : 2, place(event));
    changed();
  });

  const press = (event) => {
    if (event.target.matches("input, select, textarea, [role=slider]")) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key(camera, event.key, event.shiftKey)) {
      event.preventDefault();
      changed();
    }
  };
  on("keydown", press);
  // Keys also work when nothing has the focus.
  document.addEventListener("keydown", (event) => event.target === document.body && press(event), {
    signal: stop.signal,
  });

  return () => stop.abort();
}

/** A move of one of two fingers, from `before` to `now`. */
function pinch(camera, before, now, other) {
  const [a, b] = [before, now].map(([row, col]) => [row - other[0], col - other[1]]);
  camera.zoomBy(Math.hypot(...b) / Math.max(1, Math.hypot(...a)), other);
  const turned = Math.atan2(b[0], b[1]) - Math.atan2(a[0], a[1]);
  camera.turnBy((Math.atan2(Math.sin(turned), Math.cos(turned)) * 180) / Math.PI, other);
}

function key(camera, name, shift) {
  const step = shift ? 240 : 60;
  if (name in ARROWS) camera.panBy(...ARROWS[name].map((way) => way * step));
  else if (name === "+" || name === "=") camera.zoomBy(1.25);
  else if (name === "-" || name === "_") camera.zoomBy(0.8);
  else if (name === "0") camera.fit();
  else if (name === "1") camera.zoomBy(1 / camera.zoom / (window.devicePixelRatio || 1));
  else if (name === "[") camera.turnBy(-5);
  else if (name === "]") camera.turnBy(5);
  else if (name === ",") camera.tiltBy(-5);
  else if (name === ".") camera.tiltBy(5);
  else if (name === "\\") (camera.angle = 0), (camera.tilt = 0);
  else return false;
  return true;
}
