// Keeps the files of the site, so that it works without a network, and isolates its pages, so that they may use
// threads, on hosts that do not send the headers for it.

const SITE = new URL("./", self.location.href).href;
const KEPT = "thera @VERSION@";

self.addEventListener("install", () => self.skipWaiting());

self.addEventListener("activate", (event) => event.waitUntil(begin()));

async function begin() {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith("thera ") && name !== KEPT);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
}

// A page that has started asks for everything that is still missing.
self.addEventListener("message", (event) => event.waitUntil(keepAll()));

async function keepAll() {
  const files = await (await fetch("files.json", { cache: "no-cache" })).json();
  for (const file of files) await kept(new URL(file, SITE).href);
}

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(SITE)) return;
  event.respondWith(answer(request));
});

async function answer(request) {
  const found = await kept(request.url.split(/[?#]/)[0]);
  const headers = new Headers(found.headers);
  headers.set("Cross-Origin-Opener-Policy", "same-origin");
  headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  headers.set("Cross-Origin-Resource-Policy", "same-origin");
  return new Response(found.body, { status: found.status, statusText: found.statusText, headers });
}

/** A file from the cache, or from the network and then kept. */
async function kept(url) {
  const cache = await caches.open(KEPT);
  const known = await cache.match(url);
  if (known) return known;
  const found = await fetch(url, { cache: "no-cache" });
  if (found.status === 200 && !found.redirected) await cache.put(url, found.clone());
  return found;
}
