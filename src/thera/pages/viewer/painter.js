// Draws with WebGL2. The field and the pixels are textures.

import { footprint, multiply, project, translation } from "./geometry.js";
import { FINEST, MOST_COMPONENTS, VERTEX, sheet, view } from "./shaders.js";

export const FILTERS = ["gaussian", "box", "butterworth", "ideal", "none"];
export const SHOWN = ["picture", "gradient", "laplacian"];
export const OTHERS = ["nearest", "bicubic"];
/** Gains that make derivatives visible: of the gradient, and of the Laplacian, which is drawn around grey. */
export const GAINS = [1, 0.06];

const WIDE = ["gaussian", "box"]; // filters that get wider as they get less sharp
const SAMPLERS = ["field", "pixels", "sheet1", "sheet2", "sheet3"]; // each has the texture unit of its place here
const BAND = 1 << 19; // samples of a sheet that are computed in one draw call

export class Painter {
  /** Throws if the browser has no WebGL2 or cannot draw to half floats. */
  constructor(canvas) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: true, powerPreference: "high-performance" });
    if (!gl) throw new Error("This browser has no WebGL2.");
    if (!gl.getExtension("EXT_color_buffer_float") && !gl.getExtension("EXT_color_buffer_half_float")) {
      throw new Error("This browser's WebGL2 cannot draw to half floats.");
    }
    this.canvas = canvas;
    this.gl = gl;
    this.programs = new Map(); // source -> program
    gl.bindVertexArray(gl.createVertexArray());
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 2);
    /** @type {any} */
    this.field = null;
    /** @type {WebGLTexture | null} */
    this.pixels = null;
    this.sheets = new Map(); // samples to a cell -> texture
    this.sheetFilter = "";
  }

  /** Compiles what most pictures are drawn with, so that the first one need not wait for it. */
  warm() {
    this.use(view(0, 0, false, false), {});
    this.gl.viewport(0, 0, 1, 1);
    this.gl.drawArrays(this.gl.TRIANGLES, 0, 3);
  }

  /** The largest side of a field that this GPU can hold, in cells. */
  get largest() {
    return this.gl.getParameter(this.gl.MAX_TEXTURE_SIZE);
  }

  /** Sets a parsed field, whose first cell is at `window` = (row, column) of the picture; null removes it. */
  setField(field, window = [0, 0]) {
    const { gl } = this;
    this.forgetSheets();
    if (this.field) gl.deleteTexture(this.field.texture);
    this.field = null;
    if (!field) return;
    const { width, height, layers, components } = field;
    const count = components[0].length;
    if (count > MOST_COMPONENTS) throw new Error(`A page sums ${MOST_COMPONENTS} waves at most, not ${count}.`);
    if (Math.max(width, height) > this.largest) {
      throw new Error(`This GPU holds ${this.largest} pixels a side at most, not ${width}×${height}.`);
    }
    const texture = nearest(gl, gl.TEXTURE_2D_ARRAY);
    gl.texStorage3D(gl.TEXTURE_2D_ARRAY, 1, gl.RGBA16F, width, height, count + 1);
    const layer = width * height * 4;
    for (let k = 0; k <= count; k++) {
      const part = layers.subarray(k * layer, (k + 1) * layer);
      gl.texSubImage3D(gl.TEXTURE_2D_ARRAY, 0, 0, 0, k, width, height, 1, gl.RGBA, gl.HALF_FLOAT, part);
    }
    if (gl.getError() === gl.OUT_OF_MEMORY) throw new Error("The GPU has too little memory for this picture.");
    const bank = components[0].flatMap((w1, k) => [w1, components[1][k]]);
    const finest = Math.max(1, Math.min(3, Math.floor(this.largest / Math.max(width, height))));
    this.field = { texture, window, size: [height, width], bank, count, kappa: field.kappa, finest };
  }

  /** Sets the pixels that other methods enlarge: an ImageBitmap or a canvas; null removes them. */
  setPixels(image) {
    const { gl } = this;
    if (this.pixels) gl.deleteTexture(this.pixels);
    this.pixels = null;
    if (!image) return;
    this.pixels = nearest(gl, gl.TEXTURE_2D);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, gl.RGBA, gl.UNSIGNED_BYTE, image);
  }

  /** Removes the picture. */
  clear() {
    this.setField(null);
    this.setPixels(null);
  }

  forgetSheets() {
    this.sheets.forEach((texture) => this.gl.deleteTexture(texture));
    this.sheets.clear();
  }

  /**
   * Draws on the canvas, which has rows × columns pixels.
   * mapping: 3×3, from the canvas to the picture. picture: its [rows, columns]. look: { filter, sharpness, shown,
   * other, curtain (a column), preview (true: draw the pixels where there is no field) }.
   * columns: the first and the last of those that are drawn; all unless given.
   * @param {number[][]} mapping
   * @param {number[]} size
   * @param {number[]} picture
   * @param {any} look
   * @param {number[] | null} columns
   */
  paint(mapping, [rows, cols], picture, look, columns = null) {
    const { gl, field } = this;
    if (!field && !this.pixels) return gl.clear(gl.COLOR_BUFFER_BIT);
    const sizes = footprints(mapping, [rows, cols], look);
    const turned = !aligned(mapping);
    if (field) this.prepareSheets(sizes, turned, look);
    gl.viewport(0, 0, cols, rows);
    const wide = sizes.some(([long]) => long > 0.999);
    const [filter, shown] = [number(FILTERS, look.filter), number(SHOWN, look.shown)];
    const fine = filter + shown === 0 && sizes.some(([long]) => long * (look.sharpness ?? 1) < FINEST);
    const u = this.use(view(filter, shown, wide, fine), look);
    const middle = [rows / 2, cols / 2];
    const origin = (project(mapping, middle) ?? [0, 0]).map(Math.floor);
    const near = multiply(translation(-origin[0], -origin[1]), multiply(mapping, translation(middle[0], middle[1])));
    gl.uniformMatrix3fv(u.mapping, true, near.flat());
    gl.uniform2f(u.middle, ...middle);
    gl.uniform2i(u.origin, ...origin);
    gl.uniform2i(u.picture, ...picture);
    gl.uniform2i(u.window, ...(field?.window ?? [0, 0]));
    gl.uniform1i(u.ready, Number(Boolean(field)));
    gl.uniform1i(u.preview, Number(look.preview && Boolean(this.pixels)));
    gl.uniform1i(u.turned, Number(turned));
    gl.uniform1i(u.finest, field?.finest ?? 1);
    gl.uniform1f(u.curtain, this.pixels ? look.curtain ?? 0 : 0);
    gl.uniform1i(u.other, number(OTHERS, look.other));
    gl.uniform1fv(u.gains, GAINS);
    SAMPLERS.slice(1).forEach((_, i) => {
      gl.activeTexture(gl.TEXTURE1 + i);
      gl.bindTexture(gl.TEXTURE_2D, i === 0 ? this.pixels : this.sheets.get(i) ?? null);
    });
    if (columns) {
      gl.enable(gl.SCISSOR_TEST);
      gl.scissor(columns[0], 0, columns[1] - columns[0], rows);
    }
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.disable(gl.SCISSOR_TEST);
  }

  /**
   * Draws as `paint` does, and returns the result as RGBA bytes from the top left.
   * @param {number[][]} mapping
   * @param {number[]} size
   * @param {number[]} picture
   * @param {any} look
   */
  capture(mapping, [rows, cols], picture, look) {
    const { gl } = this;
    const target = nearest(gl, gl.TEXTURE_2D);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA8, cols, rows);
    const found = new Uint8Array(4 * rows * cols);
    this.into(target, () => {
      this.paint(mapping, [rows, cols], picture, look);
      gl.readPixels(0, 0, cols, rows, gl.RGBA, gl.UNSIGNED_BYTE, found);
    });
    gl.deleteTexture(target);
    const upright = new Uint8Array(found.length);
    for (let row = 0; row < rows; row++) {
      upright.set(found.subarray(4 * cols * (rows - 1 - row), 4 * cols * (rows - row)), 4 * cols * row);
    }
    return upright;
  }

  /** Captures an image that covers `picture` = [rows, columns], instead of the field. */
  captureImage(image, mapping, size, picture) {
    const { field, pixels } = this;
    this.field = this.pixels = null;
    this.setPixels(image);
    const found = this.capture(mapping, size, picture, { other: "bicubic", preview: true });
    this.gl.deleteTexture(this.pixels);
    Object.assign(this, { field, pixels });
    return found;
  }

  /** Resolves when the GPU has finished drawing. */
  async finished() {
    const { gl } = this;
    const fence = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl.flush();
    for (;;) {
      const state = gl.clientWaitSync(fence, 0, 0);
      if (state !== gl.TIMEOUT_EXPIRED) break;
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    gl.deleteSync(fence);
  }

  // A screen pixel that is larger than a cell is a mean over a sheet: samples of the field on a regular grid.
  prepareSheets(sizes, turned, { filter = "gaussian", sharpness = 1 }) {
    const short = sizes.map(([long, size]) => Math.max(size, long / 16));
    if (filter === "none" || !(Math.max(...short) > 1)) return;
    const key = WIDE.includes(filter) ? filter : `${filter} ${sharpness}`;
    if (key !== this.sheetFilter) this.forgetSheets();
    this.sheetFilter = key;
    const few = (size) => (size < (turned ? 2 : 1.5) ? 3 : size < 6 ? 2 : 1);
    const samples = (size) => Math.min(this.field.finest, few(size));
    const [least, most] = [1.001 * Math.max(...short), 0.999 * Math.max(1, Math.min(...short))].map(samples);
    for (let m = least; m <= most; m++) {
      if (!this.sheets.has(m)) this.sheets.set(m, this.makeSheet(m, { filter, sharpness }));
    }
  }

  makeSheet(samples, look) {
    const { gl } = this;
    const [rows, cols] = this.field.size.map((n) => n * samples);
    const texture = nearest(gl, gl.TEXTURE_2D);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA16F, cols, rows);
    this.into(texture, () => {
      const u = this.use(sheet(number(FILTERS, look.filter)), look);
      gl.uniform1i(u.samples, samples);
      gl.viewport(0, 0, cols, rows);
      gl.enable(gl.SCISSOR_TEST);
      const height = Math.max(1, Math.floor(BAND / cols));
      for (let row = 0; row < rows; row += height) {
        gl.scissor(0, row, cols, height);
        gl.drawArrays(gl.TRIANGLES, 0, 3);
      }
      gl.disable(gl.SCISSOR_TEST);
    });
    return texture;
  }

  into(texture, draw) {
    const { gl } = this;
    const before = gl.getParameter(gl.FRAMEBUFFER_BINDING);
    const buffer = gl.createFramebuffer();
    gl.bindFramebuffer(gl.FRAMEBUFFER, buffer);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
    draw();
    gl.bindFramebuffer(gl.FRAMEBUFFER, before);
    gl.deleteFramebuffer(buffer);
  }

  // The program of a shader source. It is compiled when it is first needed; the uniforms that all programs share are
  // set each time.
  use(source, { sharpness = 1 }) {
    const { gl, field } = this;
    if (!this.programs.has(source)) this.programs.set(source, program(gl, source));
    const { handle, uniforms: u } = this.programs.get(source);
    gl.useProgram(handle);
    gl.uniform1f(u.sharpness, sharpness);
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D_ARRAY, field?.texture ?? null);
    if (field) {
      gl.uniform2i(u.cells, ...field.size);
      gl.uniform1i(u.components, field.count);
      gl.uniform2fv(u.bank, field.bank);
      gl.uniform1f(u.kappa, field.kappa);
    }
    return u;
  }
}

/** True if a mapping takes rows to rows and columns to columns. @param {number[][]} mapping */
function aligned([[a, b], [c, d], [g, h]]) {
  const least = 1e-7 * (Math.abs(a) + Math.abs(b));
  const none = (...values) => values.every((value) => Math.abs(value) < least);
  return none(g, h) && (none(b, c) || none(a, d));
}

const number = (names, name) => Math.max(0, names.indexOf(name));

/** The footprints f₁ ≥ f₂ of a view's pixels, in cells, at 5×5 points of it. */
function footprints(mapping, [rows, cols], { filter = "gaussian", sharpness = 1 }) {
  const steps = [0, 0.25, 0.5, 0.75, 1];
  const points = steps.flatMap((v) => steps.map((h) => [v * rows, h * cols]));
  const width = WIDE.includes(filter) ? 1 / sharpness : 1;
  const found = points.map((point) => footprint(mapping, point)).filter((sizes) => sizes !== null);
  return found.map((sizes) => sizes.map((size) => size * width));
}

function nearest(gl, target) {
  const texture = gl.createTexture();
  gl.bindTexture(target, texture);
  for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(target, name, gl.NEAREST);
  for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(target, name, gl.CLAMP_TO_EDGE);
  return texture;
}

function program(gl, fragment) {
  const handle = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(handle, shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
  }
  gl.linkProgram(handle);
  if (!gl.getProgramParameter(handle, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(handle));
  const uniforms = {};
  for (let i = 0; i < gl.getProgramParameter(handle, gl.ACTIVE_UNIFORMS); i++) {
    const name = gl.getActiveUniform(handle, i).name.replace("[0]", "");
    uniforms[name] = gl.getUniformLocation(handle, name);
  }
  gl.useProgram(handle);
  SAMPLERS.forEach((name, unit) => name in uniforms && gl.uniform1i(uniforms[name], unit));
  return { handle, uniforms };
}
