/** Classify a text or a pair of texts: all classes with their shares, or the number of a model that rates. */
import { make, makeBar } from "./dom.js";
import { decimal, percent } from "./words.js";

export const classify = {
  name: "classify",
  needs: ["classify", "regress"],
  fields: [
    { name: "text", label: "text-label", lines: 2, example: (texts) => texts.classify },
    { name: "pair", label: "pair-label", lines: 1, optional: true, example: () => "" },
  ],
  request({ text, pair }) {
    if (!text.trim()) return { hint: ["empty-text"] };
    return { path: "predict", body: { inputs: pair.trim() ? [text, pair] : text } };
  },
  show(classes, { model }) {
    const [best] = classes;
    if (!model.can.includes("classify")) {
      const value = decimal(best.score);
      return { summary: ["sum-regress", { value }], parts: [make("p", { class: "card figure" }, value)] };
    }
    return {
      summary: ["sum-classify", { label: best.label, share: percent(best.score) }],
      parts: [
        makeShares(
          "classes-title",
          classes.map(({ label, score }) => [label, score]),
        ),
      ],
    };
  },
};

/** Names with bars and numbers, in the given order; `show` writes a number. */
export function makeShares(title, shares, { size = "", show = percent } = {}) {
  const lines = shares.map(([name, share]) =>
    make(
      "li",
      {},
      make("span", { class: "name" }, name),
      makeBar(share),
      make("span", { class: "number" }, show(share)),
    ),
  );
  return make("div", { class: "card" }, make("ol", { class: `bars ${size}`, sayLabel: title }, lines));
}
