// An exported page: the picture and its field are in the document, and no program is behind it.

import { connect, report } from "./controls.js";
import { Viewer } from "./viewer/viewer.js";

const part = (id) => document.getElementById(id);
const facts = JSON.parse(part("facts").textContent);
const viewer = new Viewer(part("stage"), { onstatus: (status) => report(status) });
connect(viewer);
globalThis.thera = viewer;

const { name, width, height } = facts;
part("title").textContent = `${name}, ${width} × ${height}`;
document.title = `${name} · Thera`;
document.body.classList.remove("empty");

function bytes(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
  return found;
}

await viewer.open({ width, height, image: `data:image/png;base64,${part("image").textContent}`, wait: true });
if (viewer.painter) await viewer.setField(bytes(part("field").textContent));
part("field").remove(); // it is on the GPU now
document.body.dataset.ready = "";
