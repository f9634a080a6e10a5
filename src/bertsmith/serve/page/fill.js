/** Fill in the blank: words are buttons that hide themselves, and candidates are buttons that put themselves in. */
import { cut, make, makeBar } from "./dom.js";
import { percent } from "./words.js";

const NUM_AROUND = 12; // characters that are shown on each side of a gap
const WORD = "\\p{Script=Han}|[\\p{L}\\p{M}\\p{N}]+(?:['’]\\p{L}+)*";

export const fill = {
  name: "fill",
  needs: ["fill"],
  fields: [
    {
      name: "text",
      label: "text-label",
      lines: 2,
      example: (texts, model) => texts.fill.replace("[MASK]", model.mask_token),
    },
  ],
  aside: (panel) => {
    panel.blanks = new Blanks(panel);
    return panel.blanks.element;
  },
  changed: (panel) => panel.blanks.follow(panel.values.text),
  request({ text }, model) {
    if (!text.trim()) return { hint: ["empty-text"] };
    if (!text.includes(model.mask_token)) return { hint: ["no-gap"] };
    return { path: "fill", body: { inputs: text, top_k: 8 } };
  },
  show([gaps], { values, panel }) {
    panel.blanks.best = gaps.map((gap) => gap.candidates[0]?.token ?? "");
    const several = gaps.length > 1;
    return {
      summary: ["sum-fill", { found: panel.blanks.best.join(" · ") }],
      parts: [
        make(
          "div",
          { class: "gaps" },
          gaps.map((gap, number) => makeGap(gap, number, several, values.text, panel)),
        ),
      ],
    };
  },
};

function makeGap({ start, stop, candidates }, number, several, text, panel) {
  const lines = candidates.map(({ token, score }) =>
    make(
      "li",
      {},
      make(
        "button",
        {
          type: "button",
          class: "candidate",
          sayLabel: ["put-in", { token, share: percent(score) }],
          on: { click: () => panel.blanks.putIn(number, token) },
        },
        make("span", { class: "name" }, token),
        makeBar(score),
        make("span", { class: "number" }, percent(score)),
      ),
    ),
  );
  const before = cut(text, Math.max(0, start - NUM_AROUND), start);
  const after = cut(text, stop, stop + NUM_AROUND);
  const around = [
    start > NUM_AROUND ? "…" : "",
    before,
    make("b", {}, "＿"),
    after,
    cut(text, stop + NUM_AROUND) ? "…" : "",
  ];
  return make(
    "div",
    { class: "card candidates" },
    several ? make("h3", { say: ["gap-title", { number: number + 1 }] }) : null,
    several ? make("p", { class: "hint" }, around) : null,
    make("ol", { class: "bars" }, lines),
  );
}

/** The words under the text. It remembers what was hidden, gap by gap, however the text around is edited. */
class Blanks {
  constructor(panel) {
    this.panel = panel;
    this.text = "";
    this.hidden = []; // a word for each gap, or null where the gap was typed
    this.best = [];
    this.element = make("div", { class: "words", role: "group", sayLabel: "words-label" });
  }

  get mask() {
    return this.panel.model?.mask_token ?? "[MASK]";
  }

  /** The text was edited: gaps before and after the edited part keep their words. */
  follow(text) {
    if (text !== this.text) {
      const before = this.count(this.text.slice(0, alike(this.text, text)));
      const after = this.count(text) - before;
      const last = Math.min(
        after,
        this.hidden.length - before,
        this.count(text.slice(text.length - alikeAtEnd(this.text, text))),
      );
      const kept = last > 0 ? this.hidden.slice(-last) : [];
      this.hidden = [...this.hidden.slice(0, before), ...Array(after - kept.length).fill(null), ...kept];
      this.text = text;
      this.best = [];
    }
    this.draw();
  }

  count(text) {
    return text.split(this.mask).length - 1;
  }

  parts() {
    const gap = this.mask.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const found = [];
    let end = 0;
    for (const match of this.text.matchAll(new RegExp(`${gap}|${WORD}`, "gu"))) {
      if (match.index > end) found.push({ kind: "other", text: this.text.slice(end, match.index) });
      const kind = match[0] === this.mask ? "gap" : "word";
      found.push({ kind, text: match[0], start: match.index });
      end = match.index + match[0].length;
    }
    if (end < this.text.length) found.push({ kind: "other", text: this.text.slice(end) });
    return found;
  }

  draw() {
    let gaps = 0;
    const elements = this.parts().map((part) => {
      if (part.kind === "other") return part.text;
      if (part.kind === "word") {
        const click = () => this.hide(part);
        return make(
          "button",
          { type: "button", class: "word", sayLabel: ["hide-word", { word: part.text }], on: { click } },
          part.text,
        );
      }
      const number = gaps++;
      const click = () => this.putIn(number, this.hidden[number] ?? this.best[number]);
      const label = ["show-gap", { number: number + 1 }];
      return make("button", { type: "button", class: "word gap", sayLabel: label, on: { click } }, String(number + 1));
    });
    this.element.replaceChildren(...elements);
  }

  hide({ text, start }) {
    const number = this.count(this.text.slice(0, start));
    this.replace(start, start + text.length, this.mask);
    this.hidden.splice(number, 0, text);
  }

  /** Replace a gap; a piece that goes on with a word (##s) joins the word before it. */
  putIn(number, word) {
    const gap = this.parts().filter((part) => part.kind === "gap")[number];
    if (!gap || !word) return; // the text was edited since, or nobody knows a word yet
    const joins = word.startsWith("##");
    const start = joins ? this.text.slice(0, gap.start).trimEnd().length : gap.start;
    this.replace(start, gap.start + this.mask.length, joins ? word.slice(2) : word);
    this.hidden.splice(number, 1);
  }

  /** Change the text here, in the field and at the server, and stay with the keyboard where it was. */
  replace(start, stop, by) {
    this.text = this.text.slice(0, start) + by + this.text.slice(stop);
    this.best = [];
    this.panel.write("text", this.text);
    const at = this.parts()
      .filter((part) => part.kind !== "other")
      .findLastIndex((part) => part.start <= start);
    this.element.querySelectorAll("button")[Math.max(0, at)]?.focus();
    this.panel.run();
  }
}

/** How many characters two texts have in common from the start. */
function alike(one, other) {
  let length = 0;
  while (length < Math.min(one.length, other.length) && one[length] === other[length]) length += 1;
  return length;
}

function alikeAtEnd(one, other) {
  return alike([...one].reverse().join(""), [...other].reverse().join(""));
}
