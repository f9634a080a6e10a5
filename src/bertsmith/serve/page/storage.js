/** Small things that the browser remembers, where it is allowed to. */

/** What was kept under a name, or null. */
export function recall(name, store = "localStorage") {
  try {
    return window[store].getItem(name);
  } catch {
    return null; // storage can be forbidden; the page works without it
  }
}

/** Keep a value: "localStorage" for good, "sessionStorage" until the browser's tab is closed. */
export function keep(name, value, store = "localStorage") {
  try {
    window[store].setItem(name, value);
  } catch {
    // as above
  }
}
