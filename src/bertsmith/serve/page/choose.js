/** Choose: which of several continuations or answers goes with a text. */
import { makeShares } from "./classify.js";
import { lines, percent } from "./words.js";

export const choose = {
  name: "choose",
  needs: ["choose"],
  fields: [
    { name: "text", label: "text-label", lines: 2, example: (texts) => texts.choose },
    { name: "choices", label: "choices-label", lines: 3, example: (texts) => texts.choices },
  ],
  request({ text, choices }) {
    if (!text.trim()) return { hint: ["empty-text"] };
    if (lines(choices).length < 2) return { hint: ["two-choices"] };
    return { path: "choose", body: { text, choices: lines(choices) } };
  },
  show({ text, score, scores }, { values }) {
    return {
      summary: ["sum-answer", { answer: text, share: percent(score) }],
      parts: [
        makeShares(
          "choices-title",
          lines(values.choices).map((line, number) => [line, scores[number]]),
          { size: "wide" },
        ),
      ],
    };
  },
};
