/** Compare sentences: the similarity of each with each, as a table that is also a heat map. */
import { make } from "./dom.js";
import { decimal, lines } from "./words.js";

const LIMIT = 40;

export const compare = {
  name: "compare",
  needs: ["similarity"],
  fields: [{ name: "sentences", label: "sentences-label", lines: 5, example: (texts) => texts.compare }],
  request({ sentences }) {
    const given = lines(sentences);
    if (given.length < 2) return { hint: ["two-sentences"] };
    if (given.length > LIMIT) return { hint: ["many-sentences", { limit: LIMIT }] };
    return { path: "similarity", body: { inputs: { sentences: given } } };
  },
  show(matrix, { values }) {
    const [first, second] = mostAlike(matrix);
    const found = { first: first + 1, second: second + 1, score: decimal(matrix[first][second]) };
    return { summary: ["sum-compare", found], parts: [makeMatrix(matrix, lines(values.sentences))] };
  },
};

/** The two different sentences with the highest score. */
function mostAlike(matrix) {
  let best = [0, 1];
  for (let row = 0; row < matrix.length; row += 1) {
    for (let column = row + 1; column < matrix.length; column += 1) {
      if (matrix[row][column] > matrix[best[0]][best[1]]) best = [row, column];
    }
  }
  return best;
}

function makeMatrix(matrix, sentences) {
  const heads = sentences.map((sentence, number) => make("th", { scope: "col", title: sentence }, String(number + 1)));
  const rows = matrix.map((scores, number) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, make("span", { class: "ordinal" }, `${number + 1} `), sentences[number]),
      scores.map((score) => makeCell(score)),
    ),
  );
  return make(
    "div",
    { class: "card scroll", tabindex: "0", role: "region", sayLabel: "matrix-title" },
    make(
      "table",
      { class: "heat" },
      make("caption", { class: "unseen", say: "matrix-title" }),
      make("thead", {}, make("tr", {}, make("th", { scope: "col", say: "column-sentence" }), heads)),
      make("tbody", {}, rows),
    ),
  );
}

function makeCell(score) {
  const cell = make("td", {}, decimal(score));
  cell.style.setProperty("--share", String(Math.min(1, Math.max(0, score))));
  return cell;
}
