"""The page of `serve` in the system's Chromium: every tab against what the library says."""

from __future__ import annotations

import numpy as np
import pytest

from serve.page.visits import answering, ask, bars, decimal, expect, needs, percent, says

pytestmark = pytest.mark.browser


@pytest.mark.real_weights
def test_fill_hides_words_and_shows_the_models_candidates(visit, engines):
    engine = needs(engines, "albert-tiny-zh")
    panel = visit.open("fill", "albert-tiny-zh")
    text = panel.get_by_label("Text", exact=True)
    for sentence, word, number in [("今天天气很好。", "好", 0), ("我在北京大学读书。", "京", 0)]:
        text.fill(sentence)
        panel.get_by_role("button", name=f"Hide “{word}”").click()
        masked = sentence.replace(word, "[MASK]")
        expect(text).to_have_value(masked)
        (candidates,) = engine.fill(masked, top=8)
        expect(bars(panel)).to_have_text(says(candidates))
        expect(panel.get_by_role("status")).to_have_text(f"Most likely: {candidates[number].token}")
        panel.get_by_role("button", name="Gap 1").click()
        expect(text).to_have_value(sentence)
        expect(panel.get_by_role("status")).to_contain_text("Nothing is hidden")
    panel.get_by_role("button", name="Hide “北”").click()
    panel.get_by_role("button", name="Hide “书”").click()
    first, second = engine.fill("我在[MASK]京大学读[MASK]。", top=8)
    expect(bars(panel)).to_have_text(says([*first, *second]))
    panel.locator(".candidates").nth(1).get_by_role("button", name=f"Put in “{second[2].token}”").click()
    expect(text).to_have_value(f"我在[MASK]京大学读{second[2].token}。")
    (candidates,) = engine.fill(f"我在[MASK]京大学读{second[2].token}。", top=8)
    expect(bars(panel)).to_have_text(says(candidates))


def test_gaps_keep_their_words_while_the_text_is_edited(visit):
    panel = visit.open("fill", "filler")
    text = panel.get_by_label("Text", exact=True)
    text.fill("the river was in paris")
    panel.get_by_role("button", name="Hide “paris”").click()
    panel.get_by_role("button", name="Hide “river”").click()
    expect(text).to_have_value("the [MASK] was in [MASK]")
    text.fill("the [MASK] was good in [MASK]")
    panel.get_by_role("button", name="Gap 2").click()
    expect(text).to_have_value("the [MASK] was good in paris")
    text.fill("[MASK] was good in paris")
    panel.get_by_role("button", name="Gap 1").click()
    expect(text).to_have_value("river was good in paris")


@pytest.mark.real_weights
def test_attention_shows_the_weights_of_the_chosen_head(visit, engines):
    engine = needs(engines, "minilm")
    panel = visit.open("attention", "minilm")
    for sentence in ["The cat sat on the mat.", "A dog barks at the cat."]:
        ask(panel, Text=sentence)
        maps = engine.attention(sentence).maps
        names = engine.tokenizer.encode(sentence).tokens
        cat = names.index("cat")
        left, right = panel.locator(".left .look"), panel.locator(".right .look")
        expect(left.locator("span")).to_have_text(names)
        panel.get_by_label("Layer", exact=True).select_option("3")
        panel.get_by_label("Head", exact=True).select_option("5")
        left.nth(cat).focus()
        expect(right.locator(".number")).to_have_text([percent(share) for share in maps[2, 4, cat]])
        assert panel.locator(".lines line").count() == (maps[2, 4, cat] >= 0.01).sum()
        right.nth(cat).focus()
        expect(left.locator(".number")).to_have_text([percent(share) for share in maps[2, 4, :, cat]])
        panel.get_by_label("Head", exact=True).select_option("Mean of all")
        left.nth(cat).focus()
        expect(right.locator(".number")).to_have_text([percent(share) for share in maps[2].mean(0)[cat]])


@pytest.mark.real_weights
def test_the_overview_has_a_picture_of_every_head_and_picks_one(visit, engines):
    engine = needs(engines, "minilm")
    panel = visit.open("attention", "minilm")
    ask(panel, Text="The cat sat on the mat.")
    maps = engine.attention("The cat sat on the mat.").maps
    layers, heads, size, _ = maps.shape
    squares = panel.locator(".squares button")
    expect(panel.locator(".left .look")).to_have_count(size)
    expect(squares).to_have_count(layers * heads)
    panel.get_by_role("button", name="Layer 4, head 7").click()
    expect(panel.get_by_label("Layer", exact=True)).to_have_value("3")
    expect(panel.get_by_label("Head", exact=True)).to_have_value("6")
    expect(panel.get_by_role("status")).to_contain_text("Layer 4, head 7")
    shades = (
        squares.nth(3 * heads + 6)
        .locator("canvas")
        .evaluate(
            "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, n) => n % 4 === 3)"
        )
    )
    assert np.abs(np.reshape(shades, (size, size)) - 255 * np.sqrt(maps[3, 6])).max() <= 1
    panel.get_by_text("As a table").click()
    row = panel.locator("tbody tr").nth(2)
    best = np.argsort(-maps[3, 6, 2], kind="stable")[:3]
    names = engine.tokenizer.encode("The cat sat on the mat.").tokens
    expect(row.locator("td")).to_have_text([f"{names[n]} {percent(maps[3, 6, 2, n])}" for n in best])


def test_classify_shows_all_classes(visit, engines):
    panel = visit.open("classify", "critic")
    seen = []
    for given in [
        {"Text": "the river was good"},
        {"Text": "the garden"},
        {"Text": "the garden", "Second_text": "awful"},
    ]:
        ask(panel, **given)
        texts = tuple(given.values())
        (found,) = engines["critic"].classify([texts if len(texts) == 2 else texts[0]])
        shares = sorted(found["scores"].items(), key=lambda pair: -pair[1])
        expect(bars(panel)).to_have_text(says(shares))
        expect(panel.get_by_role("status")).to_have_text(f"{found['label']}, {percent(found['score'])}")
        seen.append(found["score"])
    assert len({percent(score) for score in seen}) == 3


def test_a_model_that_rates_shows_its_number(visit, engines):
    panel = visit.open("classify", "grader")
    values = [found["value"] for found in engines["grader"].classify(["the river was good", "the horse"])]
    assert decimal(values[0]) != decimal(values[1])
    for text, value in zip(["the river was good", "the horse"], values, strict=True):
        ask(panel, Text=text)
        expect(panel.locator(".figure")).to_have_text(decimal(value))


def test_entities_are_marked_where_they_stand(visit, engines):
    """With a character before them that takes two of the browser's units."""
    panel = visit.open("entities", "finder")
    marked = []
    for text in ["🙂 anna lives in paris , boris in rome .", "the window of clara in oslo <b>"]:
        ask(panel, Text=text)
        (found,) = engines["finder"].tag([text])
        expect(panel.locator("mark")).to_have_text([f"{e['text']}{e['label']}" for e in found["entities"]])
        before = panel.locator("mark").first.evaluate("m => m.previousSibling.textContent")
        assert before == text[: found["entities"][0]["start"]]
        rows = [[e["text"], e["label"], percent(e["score"])] for e in found["entities"]]
        assert [row.locator("th, td").all_text_contents() for row in panel.locator("tbody tr").all()] == rows
        marked.append(rows)
    assert marked[0] != marked[1]


def test_answers_are_marked_in_the_text_and_others_can_be_seen(visit, engines):
    panel = visit.open("answer", "reader")
    context = "🙂 the river was fine, anna lives in paris."
    answers = set()
    for question in ["where is anna", "who is the key of rome"]:
        ask(panel, Question=question, Text_to_read=context)
        best, *others = engines["reader"].answer(question, context)["candidates"][:5]
        answers.add((best["text"], best["score"]))
        expect(panel.get_by_role("status")).to_have_text(f"{best['text']} ({percent(best['score'])})")
        expect(panel.locator("mark")).to_have_text(best["text"])
        assert panel.locator("mark").evaluate("m => m.previousSibling.textContent") == context[: best["start"]]
        expect(bars(panel)).to_have_text(says([(c["text"], c["score"]) for c in (best, *others)]))
        bars(panel).nth(2).get_by_role("button").click()
        expect(panel.locator("mark")).to_have_text(others[1]["text"])
        assert panel.locator("mark").evaluate("m => m.previousSibling.textContent") == context[: others[1]["start"]]
    assert len(answers) == 2


def test_no_answer_is_said_in_words(visit):
    one = visit
    none = {"answer": "", "score": 0.8, "start": None, "end": None, "null_margin": 2.5, "candidates": []}
    one.page.route("**/answer", answering(json=none))
    panel = one.open("answer")
    expect(panel.get_by_role("status")).to_have_text("The text does not say, the model thinks.")
    expect(panel.locator(".results")).to_contain_text("2.50")
    assert panel.locator("mark").count() == 0


def test_choose_shows_the_share_of_each_choice(visit, engines):
    panel = visit.open("choose", "chooser")
    best = set()
    for choices in [["the good river", "the bad letter"], ["anna", "boris", "the stone in paris"]]:
        ask(panel, Text="where is the key", **{"Choices,_one_a_line": "\n".join(choices)})
        found = engines["chooser"].choose("where is the key", choices)
        expect(bars(panel)).to_have_text(says(list(zip(choices, found["scores"], strict=True))))
        expect(panel.get_by_role("status")).to_have_text(f"{found['text']} ({percent(found['score'])})")
        best.add(percent(found["score"]))
    assert len(best) == 2


@pytest.mark.real_weights
def test_compare_shows_the_similarity_of_each_with_each(visit, engines):
    engine = needs(engines, "minilm")
    panel = visit.open("compare", "minilm")
    cats = ["A cat is asleep.", "A kitten naps.", "Shares fell sharply."]
    for sentences in [cats, [*cats[:2], "The kitten is sleeping.", "A cat is awake."]]:
        ask(panel, **{"Sentences,_one_a_line": "\n".join(sentences)})
        vectors = engine.embed(sentences, normalize=True)
        expected = [[decimal(score) for score in row] for row in vectors @ vectors.T]
        expect(panel.locator("tbody tr")).to_have_count(len(sentences))
        expect(panel.locator("tbody td")).to_have_text([score for row in expected for score in row])
        pair = max(((r, c) for r in range(len(sentences)) for c in range(r)), key=lambda p: (vectors @ vectors.T)[p])
        words = f"Most alike: {pair[1] + 1} and {pair[0] + 1} ({expected[pair[0]][pair[1]]})"
        expect(panel.get_by_role("status")).to_have_text(words)
    shades = (
        panel.locator("tbody tr")
        .first.locator("td")
        .evaluate_all("all => all.map(c => getComputedStyle(c).backgroundColor)")
    )
    assert len(set(shades)) == len(sentences)


@pytest.mark.real_weights
def test_neighbours_are_those_of_the_models_own_table(visit, engines):
    engine = needs(engines, "minilm")
    panel = visit.open("neighbours", "minilm")
    for word in ("king", "Tokyo", "untranslatable"):
        ask(panel, Word=word)
        (found,) = engine.neighbours([word], top=12)
        expect(bars(panel)).to_have_text(says(found, decimal))
        expect(panel.get_by_role("status")).to_have_text(f"Nearest: {found[0].token} ({decimal(found[0].score)})")


@pytest.mark.real_weights
def test_pieces_show_token_segment_and_position(visit, engines):
    engine = needs(engines, "minilm")
    panel = visit.open("pieces", "minilm")
    for text, pair in [("My dog is cute.", "He likes unbelievable playing."), ("Bertsmith", "")]:
        ask(panel, Text=text, Second_text=pair)
        encoding = engine.tokenizer.encode(text, pair or None)
        expected = [
            f"{piece}: number {number}, segment {'AB'[segment]}, position {position}"
            for position, (piece, number, segment) in enumerate(
                zip(encoding.tokens, encoding.ids, encoding.type_ids, strict=True)
            )
        ]
        expect(panel.locator("li .unseen")).to_have_text(expected)
        expect(panel.locator("li .segment-b")).to_have_count(sum(encoding.type_ids))
        expect(panel.get_by_role("status")).to_contain_text(f"{len(expected)} pieces; the model reads up to 256")
