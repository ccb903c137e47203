// The rules for the pages' modules: what is wrong, and what is hard to read.

const names = `document window globalThis location navigator addEventListener devicePixelRatio fetch console crypto
URL URLSearchParams XMLHttpRequest EventSource Response AbortController Image ImageData File DataTransfer Event
OffscreenCanvas createImageBitmap requestAnimationFrame setTimeout clearTimeout queueMicrotask performance atob
TextDecoder ResizeObserver IntersectionObserver CSS HTMLElement HTMLImageElement
Blob TextEncoder CompressionStream DecompressionStream DOMException Worker localStorage sessionStorage setInterval
clearInterval postMessage self caches Headers`.split(/\s+/);

export default [
  {
    files: ["**/*.js"],
    languageOptions: {
      ecmaVersion: 2025,
      sourceType: "module",
      globals: Object.fromEntries(names.map((name) => [name, "readonly"])),
    },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "error",
      "no-unused-vars": "error",
      "no-shadow": "error",
      "no-var": "error",
      "prefer-const": "error",
      eqeqeq: "error",
      "no-implicit-globals": "error",
      "no-self-assign": "error",
      "no-unreachable": "error",
      "no-dupe-keys": "error",
      "no-fallthrough": "error",
      "no-loss-of-precision": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "require-atomic-updates": "off",
      "max-len": ["error", { code: 130, ignoreStrings: true, ignoreTemplateLiterals: true }],
      "max-lines": ["error", 400],
    },
  },
];
