// Where the picture lies on the screen. Positions are (row, column), as in the Python library. On the picture
// they count its pixels from its top left corner, on the screen the pixels from the top left of the view.

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** @param {number[][]} a @param {number[][]} b */
export function multiply(a, b) {
  return a.map((row) => b[0].map((_, j) => row.reduce((sum, value, k) => sum + value * b[k][j], 0)));
}

export function inverse(m) {
  const [[a, b, c], [d, e, f], [g, h, i]] = m;
  const cofactors = [
    [e * i - f * h, c * h - b * i, b * f - c * e],
    [f * g - d * i, a * i - c * g, c * d - a * f],
    [d * h - e * g, b * g - a * h, a * e - b * d],
  ];
  const determinant = a * cofactors[0][0] + b * cofactors[1][0] + c * cofactors[2][0];
  return cofactors.map((row) => row.map((value) => value / determinant));
}

/**
 * Maps a point by a homography; null if it lies on the horizon or beyond.
 * @param {number[][]} m
 * @param {number[]} point
 * @returns {[number, number] | null}
 */
export function project(m, [row, col]) {
  const [r, c, depth] = m.map((line) => line[0] * row + line[1] * col + line[2]);
  return depth > 0 ? [r / depth, c / depth] : null;
}

/** @param {number} row @param {number} col */
export const translation = (row, col) => [[1, 0, row], [0, 1, col], [0, 0, 1]];
export const scaling = (factor) => [[factor, 0, 0], [0, factor, 0], [0, 0, 1]];

/**
 * The footprint of an output pixel at `point`: the axes f₁ ≥ f₂ of its ellipse JJᵀ, in input pixels.
 * @param {number[][]} mapping
 * @param {number[]} point
 */
export function footprint(mapping, point) {
  const at = project(mapping, point);
  if (!at) return null;
  const depth = mapping[2][0] * point[0] + mapping[2][1] * point[1] + mapping[2][2];
  const J = [0, 1].map((i) => [0, 1].map((j) => (mapping[i][j] - at[i] * mapping[2][j]) / depth));
  const [p, q, r] = [J[0][0] ** 2 + J[0][1] ** 2, J[0][0] * J[1][0] + J[0][1] * J[1][1], J[1][0] ** 2 + J[1][1] ** 2];
  const radius = Math.hypot((p - r) / 2, q);
  return [Math.sqrt((p + r) / 2 + radius), Math.sqrt(Math.max((p + r) / 2 - radius, 0))];
}

const MOST_TILT = 65; // degrees; beyond it a picture is a line

/** The view of a picture: its centre, zoom, angle and tilt. */
export class Camera {
  constructor() {
    this.picture = [1, 1]; // rows, columns
    this.size = [1, 1]; // of the view, in screen pixels
    this.centre = [0.5, 0.5]; // what lies in the middle of the view
    this.zoom = 1; // screen pixels to a pixel of the picture
    this.angle = 0; // degrees, clockwise
    this.tilt = 0; // degrees, the top away
  }

  /** The zoom that shows the whole picture. */
  get fitting() {
    return 0.92 * Math.min(this.size[0] / this.picture[0], this.size[1] / this.picture[1]);
  }

  fit() {
    this.centre = this.picture.map((n) => n / 2);
    this.zoom = this.fitting;
    this.angle = this.tilt = 0;
  }

  /** The homography from the picture to the screen. */
  get projection() {
    const [angle, tilt] = [this.angle, this.tilt].map((degrees) => (degrees * Math.PI) / 180);
    const [cos, sin] = [this.zoom * Math.cos(angle), this.zoom * Math.sin(angle)];
    const turn = [[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]];
    const distance = 1.5 * Math.max(...this.size); // of the eye
    const plane = [[Math.cos(tilt), 0, 0], [0, 1, 0], [-Math.sin(tilt) / distance, 0, 1]];
    const middle = translation(this.size[0] / 2, this.size[1] / 2);
    const centred = multiply(turn, translation(-this.centre[0], -this.centre[1]));
    return multiply(middle, multiply(plane, centred));
  }

  /** The homography from the screen, with `ratio` device pixels per pixel, to the picture, as HeatField.warp takes it. */
  mapping(ratio = 1) {
    const found = inverse(multiply(scaling(ratio), this.projection));
    // The visible part lies on the same side of the horizon as the centre.
    const depth = found[2][0] * (ratio * this.size[0]) / 2 + found[2][1] * (ratio * this.size[1]) / 2 + found[2][2];
    return found.map((row) => row.map((value) => value / depth));
  }

  /** The position on the picture of a point of the screen, or null. */
  at(point) {
    return project(this.mapping(), point);
  }

  /** Moves the view so that what was at `from` on the screen is at `to`. */
  hold(from, to, change = () => {}) {
    const held = this.at(from);
    change();
    const now = this.at(to);
    if (held && now) this.centre = this.centre.map((value, i) => value + held[i] - now[i]);
    this.restrain();
  }

  zoomBy(factor, at = this.size.map((n) => n / 2)) {
    this.hold(at, at, () => {
      this.zoom = clamp(this.zoom * factor, Math.min(this.fitting, 1) / 4, 512);
    });
  }

  panBy(rows, cols) {
    const middle = this.size.map((n) => n / 2);
    this.hold(middle, [middle[0] + rows, middle[1] + cols]);
  }

  turnBy(degrees, at = this.size.map((n) => n / 2)) {
    this.hold(at, at, () => {
      this.angle = ((this.angle + degrees + 540) % 360) - 180;
    });
  }

  tiltBy(degrees) {
    this.tilt = clamp(this.tilt + degrees, -MOST_TILT, MOST_TILT);
  }

  /** Keeps the centre on the picture. */
  restrain() {
    this.centre = this.centre.map((value, i) => clamp(value, 0, this.picture[i]));
  }

  /** The visible part of the picture: [top, left, bottom, right]. */
  get visible() {
    const [rows, cols] = this.size;
    const corners = [[0, 0], [0, cols], [rows, 0], [rows, cols]].map((corner) => this.at(corner)).filter((at) => at !== null);
    if (corners.length < 4) return [0, 0, ...this.picture];
    const range = (i) => corners.map((corner) => clamp(corner[i], 0, this.picture[i]));
    return [Math.min(...range(0)), Math.min(...range(1)), Math.max(...range(0)), Math.max(...range(1))];
  }
}
