// Short forms for the document.

/**
 * The element of this id, which is in index.html.
 * @param {string} id
 * @returns {any}
 */
export function $(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no element #${id}.`);
  return found;
}

/**
 * A new element with attributes, listeners (`onclick`) and children.
 * @param {string} name
 * @param {Record<string, any>} [attributes]
 * @param {(Node | string | null)[]} children
 * @returns {any}
 */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Sets the text of an element, if it has changed: readers announce only what is new.
 * @param {HTMLElement} element @param {string} text */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The radio buttons of a name. @param {string} name @returns {HTMLInputElement[]} */
export const radios = (name) => [...document.querySelectorAll(`input[name="${name}"]`)].map((each) => /** @type {any} */ (each));

/** Checks the radio button of a value. @param {string} name @param {string} value */
export function check(name, value) {
  for (const radio of radios(name)) radio.checked = radio.value === value;
}

/**
 * Draws a list again only when what it shows has changed, so that focus stays where it is.
 * @param {HTMLElement} list
 * @param {unknown} key
 * @param {() => Node[]} items
 * @param {() => void} then after it was drawn
 */
export function fill(list, key, items, then = () => {}) {
  const text = JSON.stringify(key);
  if (list.dataset.key === text) return;
  list.dataset.key = text;
  list.replaceChildren(...items());
  then();
}
