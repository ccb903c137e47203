// One object holds all that the page knows. Panels draw themselves from it and never from each other.

/**
 * @template {object} S
 * @typedef {{
 *   readonly state: S,
 *   set: (change: Partial<S>) => void,
 *   subscribe: (listener: (state: S) => void) => void,
 * }} Store
 */

/**
 * A store. Listeners are called once after any number of changes, before the browser draws.
 * @template {object} S
 * @param {S} initial
 * @returns {Store<S>}
 */
export function createStore(initial) {
  let state = initial;
  let queued = false;
  /** @type {((state: S) => void)[]} */
  const listeners = [];
  const tell = () => {
    queued = false;
    for (const listener of listeners) listener(state);
  };
  return {
    get state() {
      return state;
    },
    set(change) {
      state = { ...state, ...change };
      if (queued) return;
      queued = true;
      queueMicrotask(tell);
    },
    subscribe(listener) {
      listeners.push(listener);
      listener(state);
    },
  };
}
