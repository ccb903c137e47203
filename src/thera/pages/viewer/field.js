// Reads packed fields, as `thera.web.packing.pack` writes them.

const MAGIC = "THERAFLD";

/**
 * Downloads a URL. `progress` is called with the share that has arrived.
 * @param {string} url
 * @param {{signal?: AbortSignal, progress?: (share: number) => void}} [options]
 */
export async function download(url, { signal, progress = () => {} } = {}) {
  const response = await fetch(url, { signal });
  if (!response.ok) throw new Error(await reason(response));
  const total = Number(response.headers.get("Content-Length"));
  if (!total || !response.body) return new Uint8Array(await response.arrayBuffer());
  const bytes = new Uint8Array(total);
  const reader = response.body.getReader();
  for (let count = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return bytes;
    bytes.set(value, count);
    count += value.length;
    progress(count / total);
  }
}

/** The error message of a response: the server's own if it sent one. @param {Response} response */
export async function reason(response) {
  const text = await response.text();
  try {
    const { detail } = JSON.parse(text);
    // A list says which part of a request was wrong; a page that sends such a one is to blame.
    return typeof detail === "string" ? detail : (detail?.map(({ msg }) => msg).join(". ") ?? text);
  } catch {
    return text || `The server answered ${response.status}.`;
  }
}

/** { width, height, components: [w₁…, w₂…], kappa, layers: Uint16Array of (c + 1)×H×W×4 half floats } */
export function parse(bytes) {
  const magic = new TextDecoder().decode(bytes.subarray(0, 8));
  if (magic !== MAGIC) throw new Error("This is no packed field.");
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(8, true);
  const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(12, 12 + length)));
  const start = bytes.byteOffset + 12 + length;
  const count = (facts.components[0].length + 1) * facts.height * facts.width * 4;
  return { ...facts, layers: new Uint16Array(bytes.buffer, start, count) };
}
