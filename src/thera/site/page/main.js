// The page of `thera site`: all of the work is done in this browser.

import { start } from "./app.js";
import { BrowserBackend } from "./browser.js";
import { Engine } from "./compute/engine.js";

const RELOADED = "thera-reloaded";

/**
 * Keeps the site for use without a network. The service worker also isolates the page, which lets it use threads: for
 * that, a page that came without it is loaded once more, before anything is on it.
 */
async function install() {
  if (!("serviceWorker" in navigator)) return;
  await navigator.serviceWorker.register(new URL("service-worker.js", import.meta.url)).catch(() => null);
  if (globalThis.crossOriginIsolated || sessionStorage.getItem(RELOADED)) return;
  if (!navigator.serviceWorker.controller) {
    await new Promise((resolve) => {
      navigator.serviceWorker.addEventListener("controllerchange", resolve, { once: true });
      setTimeout(resolve, 3000);
    });
  }
  if (!navigator.serviceWorker.controller) return;
  sessionStorage.setItem(RELOADED, "yes");
  location.reload();
  await new Promise(() => {}); // until it is
}

await install();
const response = await fetch(new URL("site.json", import.meta.url));
const site = await response.json();
await start(new BrowserBackend(site, await Engine.start(site)));
navigator.serviceWorker?.controller?.postMessage("keep all");
