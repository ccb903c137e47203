// The colour profile and the EXIF block of PNG, JPEG and WebP files: reading them, and putting them into new files.

/** @typedef {{ icc: Uint8Array | null, exif: Uint8Array | null }} Metadata */

const text = (bytes, start, length) => String.fromCharCode(...bytes.subarray(start, start + length));
const ascii = (string) => Uint8Array.from(string, (letter) => letter.charCodeAt(0));
const EXIF = ascii("Exif\0\0");
const ICC = ascii("ICC_PROFILE\0");
const JPEG_SEGMENT = 65533; // the most bytes of a segment
const ORIENTATION = 0x0112;

/** The metadata of a file, without its orientation and thumbnail: the picture is upright and of another size. */
export async function readMetadata(bytes) {
  /** @type {Metadata} */
  let found = { icc: null, exif: null };
  try {
    if (text(bytes, 1, 3) === "PNG") found = await ofPng(bytes);
    else if (bytes[0] === 0xff && bytes[1] === 0xd8) found = ofJpeg(bytes);
    else if (text(bytes, 0, 4) === "RIFF" && text(bytes, 8, 4) === "WEBP") found = ofWebp(bytes);
    if (found.exif) found.exif = upright(found.exif);
  } catch {
    // A broken block is left out; the picture is still good.
  }
  return found;
}

async function ofPng(bytes) {
  /** @type {Metadata} */
  const found = { icc: null, exif: null };
  const view = viewOf(bytes);
  for (let at = 8; at + 12 <= bytes.length; ) {
    const [length, kind] = [view.getUint32(at), text(bytes, at + 4, 4)];
    const data = bytes.subarray(at + 8, at + 8 + length);
    if (kind === "IDAT") break;
    if (kind === "iCCP") found.icc = await piped(data.subarray(data.indexOf(0) + 2), new DecompressionStream("deflate"));
    if (kind === "eXIf") found.exif = data.slice();
    at += length + 12;
  }
  return found;
}

function ofJpeg(bytes) {
  const view = viewOf(bytes);
  const profile = [];
  let exif = null;
  for (let at = 2; at + 4 <= bytes.length && bytes[at] === 0xff && bytes[at + 1] !== 0xda; ) {
    const [marker, length] = [bytes[at + 1], view.getUint16(at + 2)];
    const data = bytes.subarray(at + 4, at + 2 + length);
    if (marker === 0xe1 && starts(data, EXIF)) exif = data.slice(EXIF.length);
    if (marker === 0xe2 && starts(data, ICC)) profile[data[ICC.length]] = data.subarray(ICC.length + 2);
    at += 2 + length;
  }
  const parts = profile.filter(Boolean);
  return { icc: parts.length ? joined(parts) : null, exif };
}

function ofWebp(bytes) {
  /** @type {Metadata} */
  const found = { icc: null, exif: null };
  for (const { kind, data } of webpChunks(bytes)) {
    if (kind === "ICCP") found.icc = data.slice();
    if (kind === "EXIF") found.exif = (starts(data, EXIF) ? data.subarray(EXIF.length) : data).slice();
  }
  return found;
}

/** The EXIF block with orientation 1 and without its thumbnail. */
export function upright(exif) {
  const view = viewOf(exif);
  const little = text(exif, 0, 2) === "II";
  if (view.getUint16(2, little) !== 42) return null;
  const start = view.getUint32(4, little);
  const count = view.getUint16(start, little);
  for (let i = 0; i < count; i++) {
    const at = start + 2 + 12 * i;
    if (view.getUint16(at, little) === ORIENTATION) view.setUint16(at + 8, 1, little);
  }
  view.setUint32(start + 2 + 12 * count, 0, little); // the directory of the thumbnail
  return exif;
}

/** A JPEG or WebP file with this metadata in it. @param {Blob} file @param {Metadata} metadata */
export async function withMetadata(file, { icc, exif }) {
  if (!icc && !exif) return file;
  const bytes = new Uint8Array(await file.arrayBuffer());
  const parts = file.type === "image/jpeg" ? jpegWith(bytes, icc, exif) : webpWith(bytes, icc, exif);
  return new Blob(parts, { type: file.type });
}

function jpegWith(bytes, icc, exif) {
  const parts = [bytes.subarray(0, 2)];
  // JFIF's own segment comes first, if there is one.
  let at = 2;
  if (bytes[3] === 0xe0) at += 2 + viewOf(bytes).getUint16(4);
  parts.push(bytes.subarray(2, at));
  if (exif && exif.length + EXIF.length <= JPEG_SEGMENT) parts.push(segment(0xe1, EXIF, exif));
  const most = JPEG_SEGMENT - ICC.length - 2;
  const count = icc ? Math.ceil(icc.length / most) : 0;
  for (let i = 0; i < count && count < 256; i++) {
    const head = joined([ICC, Uint8Array.of(i + 1, count)]);
    parts.push(segment(0xe2, head, icc.subarray(i * most, (i + 1) * most)));
  }
  parts.push(withoutIcc(bytes.subarray(at)));
  return parts;
}

// A browser may have written a profile of its own, which is not the picture's.
function withoutIcc(bytes) {
  if (bytes[0] !== 0xff || bytes[1] !== 0xe2 || !starts(bytes.subarray(4), ICC)) return bytes;
  return withoutIcc(bytes.subarray(2 + viewOf(bytes).getUint16(2)));
}

function segment(marker, head, data) {
  const length = head.length + data.length + 2;
  return joined([Uint8Array.of(0xff, marker, length >> 8, length & 255), head, data]);
}

function webpWith(bytes, icc, exif) {
  const chunks = [...webpChunks(bytes)].filter(({ kind }) => !["VP8X", "ICCP", "EXIF"].includes(kind));
  const extended = [...webpChunks(bytes)].find(({ kind }) => kind === "VP8X");
  const flags = new Uint8Array(10);
  if (extended) flags.set(extended.data.subarray(0, 10));
  else webpSize(chunks, flags);
  flags[0] = (flags[0] & ~0x28) | (icc ? 0x20 : 0) | (exif ? 0x08 : 0);
  const wanted = [
    { kind: "VP8X", data: flags },
    ...(icc ? [{ kind: "ICCP", data: icc }] : []),
    ...chunks,
    ...(exif ? [{ kind: "EXIF", data: exif }] : []),
  ];
  const parts = wanted.flatMap(({ kind, data }) => [ascii(kind), little32(data.length), data, new Uint8Array(data.length % 2)]);
  const length = parts.reduce((sum, part) => sum + part.length, 4);
  return [ascii("RIFF"), little32(length), ascii("WEBP"), ...parts];
}

// Writes width, height and alpha of a plain WebP file into the flags of its extended form.
function webpSize(chunks, flags) {
  const lossy = chunks.find(({ kind }) => kind === "VP8 ");
  let width, height;
  if (lossy) {
    [width, height] = [6, 8].map((at) => viewOf(lossy.data).getUint16(at, true) & 0x3fff);
  } else {
    const { data } = chunks.find(({ kind }) => kind === "VP8L");
    const bits = viewOf(data).getUint32(1, true);
    [width, height] = [(bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1];
    if ((bits >> 28) & 1) flags[0] |= 0x10;
  }
  [width - 1, height - 1].forEach((size, i) => flags.set([size & 255, (size >> 8) & 255, size >> 16], 4 + 3 * i));
}

function* webpChunks(bytes) {
  const view = viewOf(bytes);
  for (let at = 12; at + 8 <= bytes.length; ) {
    const length = view.getUint32(at + 4, true);
    yield { kind: text(bytes, at, 4), data: bytes.subarray(at + 8, at + 8 + length) };
    at += 8 + length + (length % 2);
  }
}

/** Bytes sent through a stream, as one array. */
export async function piped(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

export const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
const starts = (bytes, head) => head.every((value, i) => bytes[i] === value);
const little32 = (n) => Uint8Array.of(n & 255, (n >> 8) & 255, (n >> 16) & 255, n >>> 24);

export function joined(parts) {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
