/** Ask a text: the answer marked where it stands, and the other good ones. */
import { cut, make, makeBar } from "./dom.js";
import { decimal, percent } from "./words.js";

export const answer = {
  name: "answer",
  needs: ["answer"],
  fields: [
    { name: "question", label: "question-label", example: (texts) => texts.question },
    { name: "context", label: "context-label", lines: 4, example: (texts) => texts.context },
  ],
  request({ question, context }) {
    if (!question.trim() || !context.trim()) return { hint: ["empty-text"] };
    return { path: "answer", body: { question, context, top_k: 5 } };
  },
  show(found, { values }) {
    const passage = make("p", { class: "card marked" });
    const mark = ({ start, end }) => passage.replaceChildren(...markSpan(values.context, start, end));
    mark(found);
    const said = found.answer !== "";
    const margin = make("p", { class: "hint", say: ["null-margin", { margin: decimal(found.null_margin) }] });
    return {
      summary: said ? ["sum-answer", { answer: found.answer, share: percent(found.score) }] : ["no-answer"],
      parts: [passage, said ? null : margin, makeCandidates(found, said, mark)].filter(Boolean),
    };
  },
};

function markSpan(text, start, end) {
  if (start === null || start === undefined) return [text];
  return [cut(text, 0, start), make("mark", { class: "mark-0" }, cut(text, start, end)), cut(text, end)];
}

function makeCandidates({ candidates }, said, mark) {
  const buttons = candidates.map((candidate, number) => {
    const click = () => {
      mark(candidate);
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === buttons[number])));
    };
    return make(
      "button",
      { type: "button", class: "candidate", "aria-pressed": String(said && number === 0), on: { click } },
      make("span", { class: "name" }, candidate.text),
      makeBar(candidate.score),
      make("span", { class: "number" }, percent(candidate.score)),
    );
  });
  if (!buttons.length) return null;
  return make(
    "div",
    { class: "card" },
    make("h3", { say: "candidates-title" }),
    make(
      "ol",
      { class: "bars wide" },
      buttons.map((button) => make("li", {}, button)),
    ),
  );
}
