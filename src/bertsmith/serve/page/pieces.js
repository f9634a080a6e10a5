/** How a text becomes pieces: token, segment and position of each, drawn as in figure 2 of the BERT paper. */
import { make } from "./dom.js";

export const pieces = {
  name: "pieces",
  needs: ["tokenize"],
  fields: [
    { name: "text", label: "text-label", lines: 2, example: (texts) => texts.pieces },
    { name: "pair", label: "pair-label", lines: 1, optional: true, example: (texts) => texts.piecesPair },
  ],
  request({ text, pair }) {
    if (!text.trim()) return { hint: ["empty-text"] };
    return { path: "tokenize", body: { inputs: text, ...(pair.trim() ? { pair } : {}) } };
  },
  show([tokens], { model }) {
    const items = tokens.map((token, position) => makePiece(token, position));
    const labels = ["row-input", "row-token", "row-segment", "row-position"].map((say) => make("span", { say }));
    const figure = make(
      "div",
      { class: "card figure-2" },
      make("div", { class: "piece labels", "aria-hidden": "true" }, labels),
      make("ol", { sayLabel: "pieces-title" }, items),
    );
    const tooMany = tokens.length > model.max_length;
    return {
      summary: ["sum-pieces", { count: tokens.length, length: model.max_length }],
      parts: [
        figure,
        tooMany ? make("p", { class: "hint", say: ["too-many-pieces", { length: model.max_length }] }) : null,
      ].filter(Boolean),
    };
  },
};

function makePiece({ id, text, special, segment }, position) {
  const letter = segment === 0 ? "A" : "B";
  const name = ["piece-name", { piece: text, id, segment: letter, position }];
  return make(
    "li",
    { class: special ? "piece special" : "piece" },
    make("span", { class: "unseen", say: name }),
    make("span", { class: "input", "aria-hidden": "true" }, text, make("small", {}, String(id))),
    makeVector("token", text),
    makeVector(letter === "A" ? "segment-a" : "segment-b", letter),
    makeVector("position", String(position)),
  );
}

/** A box with an E and a small name under it, as the paper writes an embedding. */
function makeVector(kind, name) {
  return make("span", { class: `vector ${kind}`, "aria-hidden": "true" }, make("i", {}, "E"), make("sub", {}, name));
}
