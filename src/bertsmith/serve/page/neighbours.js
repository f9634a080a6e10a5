/** Neighbours of a word: the pieces whose vectors in the model's own table are nearest to its. */
import { makeShares } from "./classify.js";
import { decimal } from "./words.js";

const TOP = 12;

export const neighbours = {
  name: "neighbours",
  needs: ["neighbours"],
  fields: [{ name: "word", label: "word-label", lines: 1, example: (texts) => texts.neighbours }],
  request({ word }) {
    if (!word.trim()) return { hint: ["empty-text"] };
    return { path: "neighbours", body: { inputs: word.trim(), top_k: TOP } };
  },
  show([found]) {
    const [nearest] = found;
    return {
      summary: ["sum-neighbours", { word: nearest.token, score: decimal(nearest.score) }],
      parts: [
        makeShares(
          "neighbours-title",
          found.map(({ token, score }) => [token, score]),
          { show: decimal },
        ),
      ],
    };
  },
};
