/**
 * Elements from plain values. Text goes in as text nodes and never as markup, so nothing that a server says can
 * become part of the page's structure.
 *
 *   make("p", { class: "hint", say: "working" })          words in the reader's language
 *   make("button", { type: "button", on: { click } }, "text", make("b", {}, "more"))
 */
import { bind } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `say` and `sayLabel` are keys of words.js, or [key, values]; `on` has listeners by event. */
export function make(tag, properties = {}, ...children) {
  return furnish(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function draw(tag, properties = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), properties, children);
}

function furnish(element, { on = {}, say, sayLabel, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  if (say) bind(element, ...[say].flat());
  if (sayLabel) bind(element, [sayLabel].flat()[0], [sayLabel].flat()[1], "aria-label");
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A bar as wide as a share of one. It only shows what a number beside it says. */
export function makeBar(share) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  bar.style.setProperty("--share", String(Math.min(1, Math.max(0, share))));
  return bar;
}

/**
 * One stop of the Tab key for a whole group; arrow keys, Home and End walk inside it.
 * `columns` is how many items stand in a row: 1 for a list (up and down), Infinity for a line (left and right).
 */
export function rove(group, columns, onMove = () => {}) {
  const items = () => [...group.querySelectorAll("[data-rove]")];
  const enter = (item) => items().forEach((other) => (other.tabIndex = other === item ? 0 : -1));
  const first = items().find((item) => item.tabIndex === 0) ?? items()[0];
  if (first) enter(first);
  group.addEventListener("focusin", (event) => {
    if (event.target.closest("[data-rove]")) enter(event.target.closest("[data-rove]"));
  });
  group.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const all = items();
    const at = all.indexOf(document.activeElement);
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    const wanted = { Home: 0, End: all.length - 1 }[event.key] ?? at + step;
    if (at < 0 || !Number.isFinite(wanted)) return;
    event.preventDefault();
    const target = all[columns === Infinity ? (wanted + all.length) % all.length : wanted];
    if (!target) return;
    enter(target);
    target.focus();
    onMove(target);
  });
}

/** Characters as the server counts them: whole code points, not halves of them. */
export function cut(text, start, stop) {
  return [...text].slice(start, stop).join("");
}
