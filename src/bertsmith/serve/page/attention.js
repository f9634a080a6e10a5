/** Attention: lines between words for one head, small pictures of all heads, and the same as a table. */
import { draw, make, rove } from "./dom.js";
import { Weights } from "./weights.js";
import { bind, percent, say } from "./words.js";

const FAINTEST = 0.01; // lines below this would not be seen
const INK = [64, 128, 232]; // seen on light and on dark
const NUM_SHOWN = 3; // of the strongest, in the table

export const attention = {
  name: "attention",
  needs: ["attention"],
  fields: [
    { name: "text", label: "text-label", lines: 2, example: (texts) => texts.attention },
    { name: "pair", label: "pair-label", lines: 1, optional: true, example: () => "" },
  ],
  request({ text, pair }) {
    if (!text.trim()) return { hint: ["empty-text"] };
    return { path: "attention", body: { inputs: text, ...(pair.trim() ? { pair } : {}) } };
  },
  show(answer, { panel }) {
    const view = new View(answer, panel.chosen ?? { layer: 0, head: 0 });
    panel.chosen = view.chosen; // the next text is shown at the same head
    view.onChange = () => bind(panel.summary, ...view.summary());
    return { summary: view.summary(), parts: view.parts };
  },
};

/** What is shown of one text. */
class View {
  constructor(answer, chosen) {
    this.weights = new Weights(answer);
    this.names = answer.tokens.map((token) => token.text);
    this.chosen = chosen;
    chosen.layer = Math.min(chosen.layer, this.weights.layers - 1);
    if (chosen.head !== null) chosen.head = Math.min(chosen.head, this.weights.heads - 1);
    this.onChange = () => {};
    this.pinned = null;
    this.lines = draw("svg", {
      class: "lines",
      viewBox: `0 0 100 ${this.names.length}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    });
    this.left = this.makeColumn("left", "looking-label");
    this.right = this.makeColumn("right", "looked-label");
    this.pickers = this.makePickers();
    this.overview = this.makeOverview();
    this.table = make("tbody");
    this.caption = make("caption");
    this.parts = [
      make(
        "div",
        { class: "card" },
        this.pickers,
        make("div", { class: "two-columns" }, this.left, this.lines, this.right),
        this.makeTable(),
      ),
      this.overview,
    ];
    this.refresh();
  }

  get matrix() {
    return this.weights.matrix(this.chosen.layer, this.chosen.head);
  }

  /** Where the reader is: a sentence in the language of the moment. */
  place() {
    const { layer, head } = this.chosen;
    return head === null
      ? say("mean-name", { layer: layer + 1 })
      : say("head-name", { layer: layer + 1, head: head + 1 });
  }

  /** The strongest look at another word, special tokens aside where there are others. */
  summary() {
    const { matrix, names } = this;
    const size = names.length;
    const plain = [...names.keys()].filter((number) => !/^\[.*\]$/.test(names[number]));
    const rows = plain.length > 1 ? plain : [...names.keys()];
    let best = [rows[0], rows.at(-1)];
    for (const row of rows) {
      for (const column of rows) {
        if (row !== column && matrix[row * size + column] > matrix[best[0] * size + best[1]]) best = [row, column];
      }
    }
    const [from, to] = best;
    const share = percent(matrix[from * size + to]);
    return ["sum-attention", { place: () => this.place(), from: names[from], to: names[to], share }];
  }

  choose(changes) {
    Object.assign(this.chosen, changes);
    this.refresh();
    this.onChange();
  }

  refresh() {
    const { layer, head } = this.chosen;
    this.layerPicker.value = String(layer);
    this.headPicker.value = head === null ? "mean" : String(head);
    for (const square of this.overview.querySelectorAll("[data-rove]")) {
      const here = Number(square.dataset.layer) === layer && Number(square.dataset.head) === head && head !== null;
      square.setAttribute("aria-pressed", String(here));
    }
    this.focusOn(this.pinned);
    bind(this.caption, "table-caption", { place: () => this.place() });
    this.table.replaceChildren(...this.names.map((_, row) => this.makeRow(row)));
  }

  makePickers() {
    const numbers = (count) =>
      [...Array(count).keys()].map((number) => make("option", { value: number }, String(number + 1)));
    this.layerPicker = make("select", { id: "attention-layer" }, numbers(this.weights.layers));
    this.headPicker = make(
      "select",
      { id: "attention-head" },
      make("option", { value: "mean", say: "all-heads" }),
      numbers(this.weights.heads),
    );
    this.layerPicker.addEventListener("change", () => this.choose({ layer: Number(this.layerPicker.value) }));
    this.headPicker.addEventListener("change", () => {
      this.choose({ head: this.headPicker.value === "mean" ? null : Number(this.headPicker.value) });
    });
    return make(
      "div",
      { class: "row pickers" },
      make("label", { for: "attention-layer", say: "layer" }),
      this.layerPicker,
      make("label", { for: "attention-head", say: "head" }),
      this.headPicker,
    );
  }

  /** A column of words. Pointing at one shows its lines; pressing it keeps them. */
  makeColumn(side, sayLabel) {
    const words = this.names.map((name, number) => {
      const word = { side, number };
      const press = () => {
        this.pinned = this.pinned?.side === side && this.pinned.number === number ? null : word;
        this.focusOn(this.pinned);
      };
      const on = { mouseenter: () => this.focusOn(word), focus: () => this.focusOn(word), click: press };
      const parts = [make("span", {}, name), make("b", { class: "number" })];
      return make("button", { type: "button", class: "look", "data-rove": true, "aria-pressed": "false", on }, parts);
    });
    const leave = (event) => column.contains(event.relatedTarget) || this.focusOn(this.pinned);
    const on = { mouseleave: leave, focusout: leave };
    const column = make("div", { class: `column ${side}`, role: "group", sayLabel, on }, words);
    rove(column, 1);
    return column;
  }

  /** Draw the lines of one word and its numbers, or all lines and no numbers. */
  focusOn(word) {
    const { matrix, pinned } = this;
    const size = this.names.length;
    const strongest = Math.max(...matrix);
    const lines = [];
    for (let row = 0; row < size; row += 1) {
      for (let column = 0; column < size; column += 1) {
        const weight = matrix[row * size + column];
        const own = !word || word.number === (word.side === "left" ? row : column);
        if (own && weight >= FAINTEST) lines.push(makeLine(row, column, weight, strongest));
      }
    }
    this.lines.replaceChildren(...lines);
    for (const [side, column] of [
      ["left", this.left],
      ["right", this.right],
    ]) {
      [...column.children].forEach((button, number) => {
        const other = word && word.side !== side;
        const weight = other && matrix[side === "right" ? word.number * size + number : number * size + word.number];
        button.querySelector(".number").textContent = other ? percent(weight) : "";
        button.style.setProperty("--share", other ? weight : "0");
        button.classList.toggle("chosen", word?.side === side && word.number === number);
        button.setAttribute("aria-pressed", String(pinned?.side === side && pinned.number === number));
      });
    }
  }

  makeOverview() {
    const { layers, heads } = this.weights;
    const grid = make("div", { class: "squares", role: "group", sayLabel: "overview-title" });
    grid.style.setProperty("--heads", heads);
    const mark = (number) => make("span", { "aria-hidden": "true" }, String(number));
    grid.append(mark(""), ...[...Array(heads).keys()].map((head) => mark(head + 1)));
    for (let layer = 0; layer < layers; layer += 1) {
      grid.append(mark(layer + 1));
      for (let head = 0; head < heads; head += 1) {
        const click = () => this.choose({ layer, head });
        const sayLabel = ["head-name", { layer: layer + 1, head: head + 1 }];
        const properties = {
          type: "button",
          "data-rove": true,
          "data-layer": layer,
          "data-head": head,
          sayLabel,
          on: { click },
        };
        grid.append(make("button", properties, makePicture(this.weights.matrix(layer, head), this.names.length)));
      }
    }
    rove(grid, heads);
    return make(
      "div",
      { class: "card" },
      make("h3", { say: "overview-title" }),
      make("p", { class: "hint", say: "overview-hint" }),
      grid,
    );
  }

  makeTable() {
    const heads = ["column-word", "column-looks"].map((key, place) =>
      make("th", { scope: "col", colspan: place ? NUM_SHOWN : 1, say: key }),
    );
    const table = make("table", { class: "plain" }, this.caption, make("thead", {}, make("tr", {}, heads)), this.table);
    return make("details", {}, make("summary", { say: "table-title" }), make("div", { class: "scroll" }, table));
  }

  makeRow(row) {
    const { matrix, names } = this;
    const cells = this.weights
      .strongest(matrix, row, NUM_SHOWN)
      .map((column) =>
        make(
          "td",
          {},
          `${names[column]} `,
          make("span", { class: "number" }, percent(matrix[row * names.length + column])),
        ),
      );
    return make("tr", {}, make("th", { scope: "row" }, names[row]), cells);
  }
}

/** As wide as the weight, and as dark as it is beside the head's strongest. */
function makeLine(row, column, weight, strongest) {
  return draw("line", {
    x1: 0,
    x2: 100,
    y1: row + 0.5,
    y2: column + 0.5,
    "stroke-opacity": (0.9 * (weight / strongest) ** 0.7).toFixed(3),
    "stroke-width": (0.5 + 4 * weight).toFixed(2),
  });
}

/** A head as a square picture: a pixel for each pair of words. */
function makePicture(matrix, size) {
  const canvas = make("canvas", { width: size, height: size, "aria-hidden": "true" });
  const picture = new ImageData(size, size);
  matrix.forEach((weight, place) => picture.data.set([...INK, Math.round(255 * Math.sqrt(weight))], 4 * place));
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}
