/** Find entities: the text with marks in it, and a table of what was found. */
import { cut, make } from "./dom.js";
import { percent } from "./words.js";

const NUM_COLOURS = 6;

export const entities = {
  name: "entities",
  needs: ["tag"],
  fields: [{ name: "text", label: "text-label", lines: 3, example: (texts) => texts.entities }],
  request({ text }) {
    return text.trim() ? { path: "tag", body: { inputs: text } } : { hint: ["empty-text"] };
  },
  show([found], { model }) {
    const colour = colours(model.labels);
    const count = found.entities.length;
    return {
      summary: count ? [count === 1 ? "sum-entities-1" : "sum-entities", { count }] : ["no-entities"],
      parts: [makeMarked(found, colour), count ? makeTable(found.entities) : null].filter(Boolean),
    };
  },
};

/** A colour for each kind, always the same for the same model. */
function colours(labels) {
  const kinds = [...new Set(labels.filter((label) => label !== "O").map((label) => label.replace(/^[A-Z]-/, "")))];
  return (kind) => `mark-${Math.max(0, kinds.indexOf(kind)) % NUM_COLOURS}`;
}

function makeMarked({ text, entities: found }, colour) {
  const parts = [];
  let end = 0;
  for (const entity of [...found].sort((one, other) => one.start - other.start)) {
    if (entity.start < end) continue;
    parts.push(cut(text, end, entity.start));
    const inner = [cut(text, entity.start, entity.end), make("small", {}, entity.label)];
    parts.push(make("mark", { class: colour(entity.label) }, inner));
    end = entity.end;
  }
  return make("p", { class: "card marked" }, parts, cut(text, end));
}

function makeTable(found) {
  const rows = found.map(({ text, label, score }) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, text),
      make("td", {}, label),
      make("td", { class: "number" }, percent(score)),
    ),
  );
  const heads = ["column-entity", "column-kind", "column-score"].map((say) => make("th", { scope: "col", say }));
  return make(
    "div",
    { class: "card scroll" },
    make(
      "table",
      { class: "plain" },
      make("caption", { class: "unseen", say: "entities-title" }),
      make("thead", {}, make("tr", {}, heads)),
      make("tbody", {}, rows),
    ),
  );
}
