// Filters of output pixels, as in thera/field/psf.py: a gain for every wave, and weights where an output pixel is
// larger than an input pixel. Frequencies are in radians per output pixel.

const NYQUIST_KAPPA = Math.log(4) / (2 * Math.PI ** 2);
const FINEST = 1 / 8; // in input pixels

const sinc = (z) => (z === 0 ? 1 : Math.sin(z) / z);

/** @param {number} kappa */
const variance = (size, kappa) =>
  2 * kappa * Math.min(size, 1) ** 2 + 2 * NYQUIST_KAPPA * (Math.max(size, 1) ** 2 - 1);

/**
 * The filter that the page calls by this name.
 *
 * footprint: its size in output pixels, or null if it never reaches beyond a cell. finest: smaller output pixels use
 * this size, in input pixels. gain: of a frequency. radius and weight: of samples `fine` input pixels apart, for a
 * footprint of `size` input pixels, by their distance.
 * @param {string} name @param {number} sharpness @param {number} kappa
 */
export function filterNamed(name, sharpness, kappa) {
  const sigma = (size, fine) => Math.sqrt(variance(size, kappa) - variance(fine, kappa));
  const common = {
    footprint: /** @type {number | null} */ (1),
    finest: 0,
    radius: (size, fine) => 4 * sigma(size, fine),
    weight: (distance, size, fine) => Math.exp(-0.5 * (distance / sigma(size, fine)) ** 2),
  };
  const width = 1 / sharpness;
  switch (name) {
    case "gaussian":
      return {
        ...common,
        footprint: width,
        finest: FINEST,
        gain: (nu1, nu2) => Math.exp(-kappa * width ** 2 * (nu1 ** 2 + nu2 ** 2)),
      };
    case "box":
      return {
        ...common,
        footprint: width,
        gain: (nu1, nu2) => sinc((nu1 * width) / 2) * sinc((nu2 * width) / 2),
        weight: (distance, size, fine) =>
          Math.max(0, Math.min(size / 2, distance + fine / 2) - Math.max(-size / 2, distance - fine / 2)),
      };
    case "butterworth":
      return { ...common, gain: (nu1, nu2) => (1 + ((nu1 ** 2 + nu2 ** 2) / (Math.PI * sharpness) ** 2) ** 2) ** -0.5 };
    case "ideal":
      return { ...common, gain: (nu1, nu2) => Number(nu1 ** 2 + nu2 ** 2 <= (Math.PI * sharpness) ** 2) };
    case "none":
      return { ...common, footprint: null, gain: () => 1 };
  }
  throw new Error(`There is no filter ${name}.`);
}
