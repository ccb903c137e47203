// Shaders that evaluate the field at every pixel of the screen. Names and rules are those of thera/field:
// wide.py reads footprints larger than a cell, psf.py has the filters.
//
// Settings that choose between branches are constants of the program and not uniforms: without branches, loops are
// three times as fast where the CPU emulates a GPU.

export const MOST_COMPONENTS = 64;
/** In picture pixels: screen pixels smaller than this use this size, and near a border both cells are blended. */
export const FINEST = 1 / 8;

export const VERTEX = /* glsl */ `#version 300 es
void main() {  // one triangle over everything
  gl_Position = vec4(gl_VertexID == 1 ? 3. : -1., gl_VertexID == 2 ? 3. : -1., 0., 1.);
}`;

// Φ(x) = I + Σₖ aₖ · g(Jᵀwₖ) · sin(wₖ·x + φₖ) within one cell, and its derivatives.
const field = (shape, shown) => /* glsl */ `#version 300 es
precision highp float;
precision highp int;
precision highp sampler2DArray;

uniform sampler2DArray field;  // layer 0: I; layer k: amplitudes and phase of component k
uniform ivec2 cells;  // rows, columns
uniform int components;
uniform vec2 bank[${MOST_COMPONENTS}];  // w: down the rows, along the columns
uniform float kappa;
uniform float sharpness;

const int shape = ${shape};  // the filter: 0 Gaussian, 1 box, 2 Butterworth, 3 ideal, 4 none
const int shown = ${shown};  // 0 the picture, 1 its gradient, 2 its Laplacian

out vec4 colour;

const float PI = 3.14159265358979;

float sinc(float z) {
  return abs(z) < 1e-4 ? 1. : sin(z) / z;
}

// The filter's response at the frequency nu, in radians per output pixel.
float transfer(vec2 nu, float sharp) {
  float square = dot(nu, nu);
  switch (shape) {
    case 0: return exp(-kappa * square / (sharp * sharp));
    case 1: return sinc(nu.x / (2. * sharp)) * sinc(nu.y / (2. * sharp));
    case 2: square /= PI * PI * sharp * sharp; return inversesqrt(1. + square * square);
    case 3: return square <= PI * PI * sharp * sharp ? 1. : 0.;
  }
  return 1.;
}

// The values at a place: the field, or its derivatives by row and by column.
struct Reading {
  vec3 value;  // Φ, or ∇²Φ
  vec3 down;
  vec3 along;
};

// x: (row, column) from the cell's centre. J: the sides of an output pixel, in input pixels.
Reading local(ivec2 cell, vec2 x, mat2 J, float sharp) {
  Reading sum = Reading(vec3(0.), vec3(0.), vec3(0.));
  for (int k = 0; k < components; k++) {
    vec4 wave = texelFetch(field, ivec3(cell.yx, k + 1), 0);
    vec2 w = bank[k];
    float angle = dot(w, x) + wave.a;
    vec3 damped = wave.rgb * transfer(w * J, sharp);
    if (shown == 0) {
      sum.value += damped * sin(angle);
    } else if (shown == 1) {
      vec3 slope = damped * cos(angle);
      sum.down += slope * w.x;
      sum.along += slope * w.y;
    } else {
      sum.value -= damped * (dot(w, w) * sin(angle));
    }
  }
  if (shown == 0) sum.value += texelFetch(field, ivec3(cell.yx, 0), 0).rgb;
  return sum;
}
`;

// A sheet: the field on a regular grid with `samples` per cell along each axis, filtered at that spacing.
export const sheet = (shape) => /* glsl */ `${field(shape, 0)}
uniform int samples;

void main() {
  ivec2 i = ivec2(gl_FragCoord.yx);
  ivec2 cell = i / samples;
  vec2 x = (vec2(i - cell * samples) + .5) / float(samples) - .5;
  colour = vec4(local(cell, x, mat2(1. / float(samples)), shape < 2 ? 1. : sharpness).value, 1.);
}`;

// wide: true if some pixel may be larger than a cell. fine: true if some pixel may be smaller than FINEST.
export const view = (shape, shown, wide, fine) => /* glsl */ `${field(shape, shown)}
uniform mat3 mapping;  // output pixels about the middle to input positions about the origin
uniform vec2 middle;  // of the output, in pixels
uniform ivec2 origin;  // a cell near what is shown, so that small numbers are left
uniform ivec2 window;  // the first cell that the field knows
uniform ivec2 picture;  // rows, columns of the whole picture
uniform bool ready;  // true if there is a field
uniform bool preview;  // true if the pixels are drawn where there is no field
uniform bool turned;  // true unless rows map to rows or columns, and columns likewise
uniform int finest;  // the most samples per cell that a sheet can have
uniform float curtain;  // columns to its left show the enlarged pixels
uniform int other;  // what they show: 0 nearest, 1 bicubic
uniform sampler2D pixels;
uniform sampler2D sheet1, sheet2, sheet3;  // of so many samples to a cell
uniform float gains[2];  // of the gradient and of the Laplacian, for the eye

// The paper's κ, for footprints larger than an input pixel.
const float NYQUIST_KAPPA = 0.0702303;
const float LARGEST_RATIO = 16.;

float variance(float size) {
  float own = min(size, 1.), more = max(size, 1.);
  return 2. * kappa * own * own + 2. * NYQUIST_KAPPA * (more * more - 1.);
}

// A centre exactly on a border belongs to the cell after it, as in the library, which decides it in integers.
const float ROUNDING = 3e-5;

void add(inout Reading sum, Reading part, float weight) {
  sum.value += weight * part.value;
  sum.down += weight * part.down;
  sum.along += weight * part.along;
}

ivec2 cellAt(vec2 at) {
  return clamp(ivec2(floor(at + ROUNDING)), ivec2(0), cells - 1);
}

Reading near(vec2 at, mat2 J) {
  ivec2 cell = cellAt(at);
  return local(cell, at - vec2(cell) - .5, J, sharpness);
}

// Pixels smaller than this use this size; near a border both cells are blended.
const float FINEST = ${FINEST};
const float OVERLAP = .1;

Reading between(vec2 at, mat2 J) {
  ivec2 cell = cellAt(at);
  vec2 x = at - vec2(cell) - .5;
  ivec2 ahead = cell + ivec2(x.x > 0. ? 1 : -1, x.y > 0. ? 1 : -1);  // the cell behind the nearest border
  vec2 share = max(.5 - (.5 - abs(x)) / (2. * OVERLAP), 0.);
  share *= vec2(greaterThanEqual(ahead, ivec2(0))) * vec2(lessThan(ahead, cells));
  Reading sum = Reading(vec3(0.), vec3(0.), vec3(0.));
  for (int i = 0; i < 4; i++) {
    bvec2 over = bvec2(i / 2, i % 2);
    vec2 part = mix(1. - share, share, vec2(over));
    if (part.x * part.y == 0.) continue;
    ivec2 here = ivec2(over.x ? ahead.x : cell.x, over.y ? ahead.y : cell.y);
    add(sum, local(here, at - vec2(here) - .5, J, sharpness), part.x * part.y);
  }
  return sum;
}

bool inside(vec2 at) {
  return all(greaterThanEqual(at, vec2(0.))) && all(lessThanEqual(at, vec2(cells)));
}

Reading mean(Reading sum, float weight) {
  return Reading(sum.value / weight, sum.down / weight, sum.along / weight);
}

// An ellipse longer than a cell but narrower than one: samples along its axis.
Reading line(vec2 at, mat2 J, vec2 u, float size) {
  float fine = 1. / ceil(3. / size);
  float sigma = sqrt(variance(size) - variance(fine));
  // As many nodes as in the library: the field jumps between cells.
  float rung = ceil(log(max(8. * sigma / fine + 1., 9.) / 9.) / log(1.45) - 1e-5);
  int side = int(9. * pow(1.45, rung) + 1e-3) / 2;
  mat2 part = J + (fine / size - 1.) * outerProduct(u, u * J);
  Reading sum = Reading(vec3(0.), vec3(0.), vec3(0.));
  float total = 0.;
  for (int k = -side; k <= side; k++) {
    float z = 4. * float(k) / float(side);
    vec2 node = at + sigma * z * u;
    if (!inside(node)) continue;
    float weight = exp(-.5 * z * z);
    add(sum, near(node, part), weight);
    total += weight;
  }
  return mean(sum, total);
}

// A rotated box, divided into equal boxes of at most half an input pixel.
Reading boxes(vec2 at, mat2 J) {
  float width = 1. / sharpness;
  vec2 count = clamp(ceil(2. * width * vec2(length(J[0]), length(J[1]))), 1., 32.);
  mat2 part = mat2(J[0] / count.x, J[1] / count.y);
  Reading sum = Reading(vec3(0.), vec3(0.), vec3(0.));
  float total = 0.;
  for (float i = .5; i < count.x; i++) {
    for (float j = .5; j < count.y; j++) {
      vec2 node = at + J * (width * (vec2(i, j) / count - .5));
      if (!inside(node)) continue;
      add(sum, near(node, part), 1.);
      total += 1.;
    }
  }
  return mean(sum, total);
}

// Samples per cell for a footprint of this many input pixels, as painter.js prepares them: three per footprint, and
// two per pixel if it covers only a few pixels. HeatField.warp sometimes takes a few more.
int samplesFor(float size) {
  float few = size < (turned ? 2. : 1.5) ? 3. : size < 6. ? 2. : 1.;
  return int(clamp(few, 1., float(finest)));
}

vec3 fetch(int samples, ivec2 i) {
  if (samples == 1) return texelFetch(sheet1, i.yx, 0).rgb;
  if (samples == 2) return texelFetch(sheet2, i.yx, 0).rgb;
  return texelFetch(sheet3, i.yx, 0).rgb;
}

// An axis-aligned box: a mean weighted by the areas that it shares with the samples of a sheet.
Reading area(vec2 at, vec2 sizes) {
  int samples = samplesFor(min(sizes.x, sizes.y));
  float m = float(samples);
  vec2 position = at * m, reach = m * sizes / 2.;
  ivec2 low = max(ivec2(floor(position - reach)), 0);
  ivec2 high = min(ivec2(floor(position + reach)), samples * cells - 1);
  vec3 sum = vec3(0.);
  float total = 0.;
  for (int i = low.x; i <= high.x; i++) {
    for (int j = low.y; j <= high.y; j++) {
      vec2 corner = vec2(i, j);
      vec2 shared = max(min(position + reach, corner + 1.) - max(position - reach, corner), 0.);
      float weight = shared.x * shared.y;
      sum += weight * fetch(samples, ivec2(i, j));
      total += weight;
    }
  }
  return Reading(sum / total, vec3(0.), vec3(0.));
}

// An ellipse larger than a cell along both axes: a Gaussian mean over a sheet. Derivatives are taken of the mean, so
// that they include the jumps between cells.
Reading ellipse(vec2 at, mat2 directions, vec2 sizes) {
  int samples = samplesFor(sizes.y);
  float m = float(samples);
  ivec2 count = samples * cells;
  mat2 covariance = directions * mat2(variance(sizes.x), 0., 0., variance(sizes.y)) * transpose(directions);
  covariance = m * m * (covariance - mat2(variance(1. / m)));
  mat2 P = inverse(covariance);
  vec2 position = at * m;
  ivec2 reach = ivec2(ceil(4. * sqrt(vec2(covariance[0][0], covariance[1][1])))) + 1;
  ivec2 low = max(ivec2(floor(position)) - reach, 0), high = min(ivec2(floor(position)) + reach, count - 1);
  // Sums of the weights g and their derivatives ∂₁g, ∂₂g, ∇²g, alone and multiplied by the samples.
  vec4 weights = vec4(0.);
  vec3 s0 = vec3(0.), s1 = vec3(0.), s2 = vec3(0.), s3 = vec3(0.);
  for (int i = low.x; i <= high.x; i++) {
    for (int j = low.y; j <= high.y; j++) {
      vec2 d = vec2(i, j) + .5 - position, e = P * d;
      float g = exp(-.5 * dot(d, e));
      vec3 value = fetch(samples, ivec2(i, j));
      vec4 w = g * vec4(1., e, dot(e, e) - P[0][0] - P[1][1]);
      weights += w;
      s0 += w.x * value;
      if (shown > 0) {
        s1 += w.y * value;
        s2 += w.z * value;
        s3 += w.w * value;
      }
    }
  }
  vec3 u = s0 / weights.x;
  vec3 down = (s1 - u * weights.y) / weights.x, along = (s2 - u * weights.z) / weights.x;
  if (shown < 2) return Reading(u, m * down, m * along);
  vec3 bend = s3 - 2. * (down * weights.y + along * weights.z) - u * weights.w;
  return Reading(m * m * bend / weights.x, down, along);
}

Reading read(vec2 at, mat2 J) {
  if (shape == 4 || !(${wide} || ${fine})) return near(at, J);
  // The axes of the ellipse JJᵀ.
  float p = J[0][0] * J[0][0] + J[1][0] * J[1][0];
  float q = J[0][0] * J[0][1] + J[1][0] * J[1][1];
  float r = J[0][1] * J[0][1] + J[1][1] * J[1][1];
  float radius = length(vec2((p - r) / 2., q));
  vec2 sizes = sqrt(vec2((p + r) / 2. + radius, max((p + r) / 2. - radius, 0.)));
  if (${fine} && sizes.x < FINEST) return between(at, J * (FINEST / sizes.x));
  float width = shape < 2 ? 1. / sharpness : 1.;
  sizes *= width;
  if (sizes.x <= 1.00001) return near(at, J);
  if (shape == 1 && shown == 0) {
    if (turned) return boxes(at, J);
    return area(at, width * (abs(J[0]) + abs(J[1])));
  }
  float angle = radius > 0. ? .5 * atan(q, (p - r) / 2.) : 0.;
  mat2 directions = mat2(cos(angle), sin(angle), -sin(angle), cos(angle));
  sizes.y = max(sizes.y, sizes.x / LARGEST_RATIO);
  if (sizes.y <= 1.) return line(at, J, directions[0], sizes.x);
  return ellipse(at, directions, sizes);
}

// The pixels, enlarged by other methods: nearest neighbour and bicubic.
float cubic(float x) {
  x = abs(x);
  return x < 1. ? (1.5 * x - 2.5) * x * x + 1. : x < 2. ? ((-.5 * x + 2.5) * x - 4.) * x + 2. : 0.;
}

vec3 enlarged(vec2 at, mat2 J) {
  ivec2 last = textureSize(pixels, 0).yx - 1;
  vec2 scale = vec2(last + 1) / vec2(picture);  // of a large picture there may be fewer
  at *= scale;
  J = mat2(scale.x, 0., 0., scale.y) * J;
  if (other == 0) return texelFetch(pixels, clamp(ivec2(floor(at + ROUNDING)), ivec2(0), last).yx, 0).rgb;
  float size = max(sqrt(abs(determinant(J))), 1.);  // where it is made smaller, the kernel is widened
  vec2 from = at - .5;
  ivec2 low = ivec2(ceil(from - 2. * size)), high = ivec2(floor(from + 2. * size));
  vec4 sum = vec4(0.);
  for (int i = low.x; i <= high.x; i++) {
    for (int j = low.y; j <= high.y; j++) {
      float weight = cubic((float(i) - from.x) / size) * cubic((float(j) - from.y) / size);
      sum += weight * vec4(texelFetch(pixels, clamp(ivec2(i, j), ivec2(0), last).yx, 0).rgb, 1.);
    }
  }
  return sum.rgb / sum.a;
}

void main() {
  vec2 pixel = vec2(2. * middle.x - gl_FragCoord.y, gl_FragCoord.x);
  vec3 seen = mapping * vec3(pixel - middle, 1.);
  vec2 u = seen.xy / seen.z;
  vec2 at = u + vec2(origin);
  colour = vec4(0.);
  if (seen.z <= 0. || any(lessThan(at, vec2(-ROUNDING))) || any(greaterThan(at, vec2(picture) + ROUNDING))) return;
  // J = (A - u gᵀ) / depth
  mat2 J = (mat2(mapping) - outerProduct(u, vec2(mapping[0].z, mapping[1].z))) / seen.z;
  bool behind = pixel.y < curtain;
  vec2 own = u + vec2(origin - window);
  if (behind || !ready || !inside(own)) {
    if (behind || preview) colour = vec4(clamp(enlarged(at, J), 0., 1.), 1.);
    return;
  }
  Reading found = read(own, J);
  vec3 result = found.value;
  if (shown == 1) result = gains[0] * sqrt(found.down * found.down + found.along * found.along);
  if (shown == 2) result = .5 + gains[1] * found.value;
  colour = vec4(clamp(result, 0., 1.), 1.);
}`;
