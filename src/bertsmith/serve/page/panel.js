/**
 * What all tabs share: fields with an example in them, a button, a busy state, errors in words, and results.
 *
 * A tab is a plain object:
 *   name     its place in the address bar, and the end of its keys in words.js
 *   needs    what a model must be able to do (any of these)
 *   fields   [{ name, label, example(texts, model), lines, optional }]
 *   request  (values, model) => { path, body }, or { hint } where there is nothing to ask yet
 *   show     (answer, asked) => { summary: [key, values], parts: [elements] }; `asked` is { values, model, panel }
 *   aside    (panel) => an element between fields and button, and
 *   changed  (panel) after a field has changed, where a tab wants them
 */
import { make } from "./dom.js";
import { examplesFor } from "./examples.js";
import { ask } from "./server.js";
import { bind, say } from "./words.js";

const BUSY_AFTER = 150; // milliseconds: quicker answers come without a flicker

/** One tab's page. `context.onToken` is called when the server asks for a token. */
export class Panel {
  constructor(tab, context) {
    this.tab = tab;
    this.context = context;
    this.model = null;
    this.fields = new Map(
      tab.fields.map((field) => [field.name, { ...field, given: "", control: makeControl(tab, field) }]),
    );
    this.summary = make("p", { class: "summary", role: "status" });
    this.fault = make("div", { role: "alert" });
    this.results = make("div", { class: "results" });
    this.element = this.build();
    this.answered = false;
  }

  build() {
    const { name } = this.tab;
    const run = make("button", { type: "submit", class: "main", say: "run" });
    const labelled = [...this.fields.values()].map(({ label, optional, control }) =>
      make("p", { class: "field" }, makeLabel(control.id, label, optional), control),
    );
    const form = make(
      "form",
      { class: "card", novalidate: true },
      make("div", { class: "fields" }, labelled),
      this.tab.aside?.(this),
      make("p", { class: "row" }, run, make("span", { class: "hint", say: "run-hint" })),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.run();
    });
    form.addEventListener("input", () => this.tab.changed?.(this));
    return make(
      "section",
      { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, tabindex: "0", hidden: true },
      make("h2", { say: `title-${name}` }),
      make("p", { class: "explain", say: `explain-${name}` }),
      form,
      this.fault,
      this.summary,
      this.results,
    );
  }

  /** What the fields hold now. */
  get values() {
    return Object.fromEntries([...this.fields].map(([name, { control }]) => [name, control.value]));
  }

  /** Put a text into a field, as if it had been typed. */
  write(name, text) {
    this.fields.get(name).control.value = text;
    this.tab.changed?.(this);
  }

  /** Come into view with a model; with an example, and its answer, where nobody has written anything yet. */
  async open(model) {
    if (this.model !== model) {
      this.stop();
      this.model = model;
      this.answered = false;
    }
    try {
      await this.fillExamples(model);
    } catch (error) {
      if (this.model === model) this.fail(error);
      return;
    }
    if (this.model === model && !this.answered && !this.controller) await this.run();
  }

  /** Examples go only into fields that hold the last one still, or nothing, and never where somebody is writing. */
  async fillExamples(model) {
    const texts = await examplesFor(model);
    if (this.model !== model) return;
    const fields = [...this.fields.values()];
    const untouched = ({ control, given }) => control.value === given && control !== document.activeElement;
    if (fields.every(untouched)) {
      for (const field of fields) {
        const text = field.example(texts, model);
        if (text === field.given) continue;
        this.stop(); // what is on its way is about another text
        this.answered = false;
        field.control.value = field.given = text;
      }
    }
    this.tab.changed?.(this);
  }

  /** Call off whatever is on its way. */
  stop() {
    this.controller?.abort();
    this.controller = null;
    this.idle();
  }

  /** Ask the server about what the fields hold. Only the newest request may show its answer. */
  async run() {
    this.stop();
    if (!this.model) return;
    const asked = { values: this.values, model: this.model, panel: this };
    const { path, body, hint } = this.tab.request(asked.values, this.model);
    if (hint) {
      this.display({ summary: hint, parts: [] });
      return;
    }
    const controller = (this.controller = new AbortController());
    this.busy();
    try {
      const answer = await ask(path, { ...body, model: this.model.name }, controller.signal);
      if (this.controller === controller) this.display(this.tab.show(answer, asked));
    } catch (error) {
      if (this.controller === controller) this.fail(error);
    } finally {
      if (this.controller === controller) this.stop();
    }
  }

  display({ summary, parts }) {
    this.answered = true;
    this.idle();
    this.fault.replaceChildren();
    this.results.replaceChildren(...parts);
    bind(this.summary, ...summary);
  }

  fail(error) {
    this.answered = false;
    this.summary.textContent = "";
    this.results.replaceChildren();
    this.fault.replaceChildren(makeFault(error, () => this.run()));
    if (error.kind === "fault-token") this.context.onToken();
  }

  busy() {
    this.results.setAttribute("aria-busy", "true");
    this.timer = setTimeout(() => {
      this.element.classList.add("busy");
      bind(this.summary, "working");
    }, BUSY_AFTER);
  }

  idle() {
    clearTimeout(this.timer);
    this.results.setAttribute("aria-busy", "false");
    this.element.classList.remove("busy");
  }
}

/** An error in words, with the server's own sentence and a way to try again. */
export function makeFault(error, again) {
  const wait = error.kind === "fault-busy" && error.seconds;
  const words = wait
    ? ["fault-busy-seconds", { seconds: error.seconds }]
    : error.kind
      ? [error.kind]
      : ["fault-page", { detail: error.message }];
  return make(
    "div",
    { class: "fault" },
    make("p", { say: words }),
    error.detail ? make("p", { class: "detail", lang: "en" }, error.detail) : null,
    make("button", { type: "button", say: "retry", on: { click: again } }),
  );
}

function makeControl(tab, { name, lines }) {
  const id = `${tab.name}-${name}`;
  if (!lines) return make("input", { id, type: "text", autocomplete: "off", spellcheck: "false" });
  return make("textarea", { id, rows: lines, spellcheck: "false" });
}

function makeLabel(id, key, optional) {
  const words = optional ? ["optional", { label: () => say(key) }] : [key];
  return make("label", { for: id, say: words });
}
