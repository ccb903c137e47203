// What is seen in a viewer as an image: cropped, turned and tilted, with what it is compared with.

import { multiply, translation } from "./geometry.js";

/**
 * True if nothing of what is seen is still to come: no tile, no part of the field, no pixels to compare with.
 * @param {import("./viewer.js").Viewer} viewer
 */
export function complete({ camera, curtain, others, painter, split, tiles }) {
  const loaded = (layer) => layer.levels.size > 0 && !layer.waiting;
  if ((split || curtain !== null) && !(others ? loaded(others) : painter?.pixels)) return false;
  if (tiles) return loaded(tiles);
  if (!painter?.field) return false;
  const { window, size } = painter.field;
  const [top, left, bottom, right] = camera.visible;
  const [last, end] = [window[0] + size[0], window[1] + size[1]];
  return top >= window[0] && left >= window[1] && bottom <= last && right <= end;
}

/**
 * What is seen now, at the screen's resolution, as an ImageData. Null without WebGL2, while it is not complete, or if
 * a tilted view spans more tiles than the GPU holds.
 * @param {import("./viewer.js").Viewer} viewer
 */
export function captured(viewer) {
  const { camera, painter, split } = viewer;
  if (!painter || !complete(viewer)) return null;
  const ratio = globalThis.devicePixelRatio || 1;
  const [rows, cols] = viewer.extent(ratio);
  const middle = split ? Math.round(cols / 2) : 0;
  const edge = split ? middle : Math.round((viewer.curtain ?? 0) * cols);
  const mapping = camera.mapping(ratio);
  const shifted = multiply(mapping, translation(0, -middle));
  const halves = [
    { layer: viewer.others, mapping, low: 0, high: edge, curtain: cols },
    { layer: viewer.tiles, mapping: shifted, low: edge, high: cols, curtain: 0 },
  ];
  const out = new Uint8ClampedArray(4 * rows * cols);
  for (const { layer, mapping: seen, low, high, curtain } of halves.filter((half) => half.low < half.high)) {
    const look = { ...viewer.look, curtain, preview: true };
    const found = layer
      ? tilesOf(viewer, layer, seen, [rows, cols])
      : painter.capture(seen, [rows, cols], camera.picture, look);
    if (!found) return null;
    for (let row = 0; row < rows; row++) {
      const start = 4 * row * cols;
      out.set(found.subarray(start + 4 * low, start + 4 * high), start + 4 * low);
    }
  }
  return new ImageData(out, cols, rows);
}

// Tiles are put together upright, and the GPU turns and tilts them.
function tilesOf({ camera, painter, image }, layer, mapping, size) {
  const found = layer.together(image, camera, painter.largest);
  if (!found) return null;
  const [top, left, bottom, right] = found.box;
  const within = multiply(translation(-top, -left), mapping);
  return painter.captureImage(found.canvas, within, size, [bottom - top, right - left]);
}
