"""The page of `serve` in the system's Chromium: every tab against what the library says, and how it can be used."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from absence import absent
from serve import page_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Locator, Page, Route

    from bertsmith.infer.engine import Engine

pytestmark = pytest.mark.browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
POLICY = "default-src 'self'; style-src 'self'; img-src 'self' data:"
TABS = ["fill", "attention", "classify", "entities", "answer", "choose", "compare", "pieces"]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    return page_models.load_all(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def address(engines: dict[str, Engine]) -> Iterator[str]:
    with page_models.serving(engines) as where:
        yield where


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        absent("no system Chromium (apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("package playwright is not installed (pip install 'bertsmith[dev]')")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


class Visit:
    """A page in a window of its own, and what went wrong in it: errors, broken policy, requests to elsewhere."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        context = {"locale": "en-GB", "reduced_motion": "reduce", "viewport": {"width": 900, "height": 900}, **options}
        self.address = address
        self.context = browser.new_context(**context)
        self.context.set_default_timeout(15_000)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda message: message.type == "error" and self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._check_host)

    def _check_host(self, request: Any) -> None:
        if urlsplit(request.url).hostname not in ("127.0.0.1", None):
            self.problems.append(f"asked for {request.url}")

    def open(self, tab: str, model: str | None = None) -> Locator:
        """Go to a tab, and to a model in it; gives the tab's panel."""
        self.page.goto(f"{self.address}/#{tab}")
        panel = self.page.locator(f"#panel-{tab}")
        panel.wait_for()
        if model is not None:
            self.page.locator("#model").select_option(model)
        return panel


@pytest.fixture(scope="module")
def window(browser: Browser, address: str) -> Iterator[Visit]:
    """A window for all tests that need no special one: opening one takes longer than most tests."""
    one = Visit(browser, address)
    yield one
    one.context.close()


@pytest.fixture
def visit(window: Visit) -> Iterator[Visit]:
    """The window as new. A test that expects a problem takes it off the list."""
    yield window
    window.page.unroute_all()
    if window.page.url != "about:blank":
        window.page.evaluate("localStorage.clear(), sessionStorage.clear()")
    window.page.goto("about:blank")
    found, window.problems = window.problems, []
    assert found == []


@pytest.fixture
def special_visit(browser: Browser, address: str) -> Iterator[Callable[..., Visit]]:
    """Opens a window with options."""
    visits: list[Visit] = []

    def make(**options: Any) -> Visit:
        visits.append(Visit(browser, address, **options))
        return visits[-1]

    yield make
    for one in visits:
        one.context.close()
    assert [problem for one in visits for problem in one.problems] == []


def expect(locator: Locator) -> Any:
    """Look until it is so; where it is not, for 15 seconds."""
    from playwright.sync_api import expect as waiting

    waiting.set_options(timeout=15_000)
    return waiting(locator)


def percent(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"


def decimal(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


def ask(panel: Locator, **values: str) -> None:
    """Write into the fields and press the button."""
    for label, value in values.items():
        panel.get_by_label(label.replace("_", " "), exact=label != "Second_text").fill(value)
    panel.get_by_role("button", name="Run").click()


def answering(**answer: Any) -> Callable[[Route], None]:
    """A server of our own for one address."""
    return lambda route: route.fulfill(**answer)


def bars(panel: Locator) -> Locator:
    return panel.locator(".bars li")


def says(shares: list[tuple[str, float]]) -> list[re.Pattern[str]]:
    """The lines of a list of names with bars and numbers."""
    return [re.compile(rf"^\s*{re.escape(name)}\s*{re.escape(percent(share))}\s*$") for name, share in shares]


def needs(engines: dict[str, Engine], name: str) -> Engine:
    if name not in engines:
        absent(f"the package with {name} is not installed (make setup installs it)")
    return engines[name]


# Every tab does its job.


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


# How it can be used.


def test_keyboard_alone_is_enough(visit, engines):
    one = visit
    page = one.page
    one.open("fill", "filler")
    press = page.keyboard.press
    focused = page.locator(":focus")
    page.locator("#theme").focus()
    press("Tab")
    expect(focused).to_have_attribute("id", "tab-fill")
    for key, tab in [
        ("ArrowRight", "attention"),
        ("End", "pieces"),
        ("ArrowRight", "fill"),
        ("ArrowLeft", "pieces"),
        ("Home", "fill"),
    ]:
        press(key)
        expect(focused).to_have_attribute("id", f"tab-{tab}")
        expect(page.get_by_role("tabpanel")).to_have_attribute("id", f"panel-{tab}")
        assert page.url.endswith(f"#{tab}")
    page.keyboard.press("Tab")
    expect(focused).to_have_attribute("id", "panel-fill")
    press("Tab")
    press("Control+a")
    page.keyboard.type("the stone was good")
    press("Tab")
    press("Tab")
    expect(focused).to_have_text("stone")
    press("Enter")
    (candidates,) = engines["filler"].fill("the [MASK] was good", top=8)
    expect(bars(page.get_by_role("tabpanel"))).to_have_text(says(candidates))
    expect(focused).to_have_accessible_name("Gap 1: show the word again")
    press("Shift+Tab")
    press("Shift+Tab")
    expect(focused).to_have_attribute("id", "fill-text")
    press("Control+a")
    page.keyboard.type("[MASK] was bad")
    press("Control+Enter")
    (candidates,) = engines["filler"].fill("[MASK] was bad", top=8)
    expect(bars(page.get_by_role("tabpanel"))).to_have_text(says(candidates))


def test_words_and_heads_of_attention_are_walked_by_arrows(visit, engines):
    one = visit
    panel = one.open("attention", "filler")
    ask(panel, Text="the river was good")
    maps = engines["filler"].attention("the river was good").maps
    expect(panel.locator(".left .look span")).to_have_text(["[CLS]", "the", "river", "was", "good", "[SEP]"])
    panel.locator(".left .look").first.focus()
    for _ in range(2):
        one.page.keyboard.press("ArrowDown")
    expect(panel.locator(".right .number")).to_have_text([percent(share) for share in maps[0, 0, 2]])
    panel.locator(".squares button").first.focus()
    one.page.keyboard.press("ArrowDown")
    one.page.keyboard.press("Enter")
    expect(panel.get_by_role("status")).to_contain_text("Layer 2, head 1")


def test_chinese_readers_get_chinese_words(special_visit):
    one = special_visit(locale="zh-CN")
    panel = one.open("classify", "critic")
    expect(one.page.get_by_role("tab", name="分类")).to_have_attribute("aria-selected", "true")
    expect(panel.get_by_role("heading")).to_have_text("文本分类")
    assert one.page.locator("html").get_attribute("lang") == "zh-Hans"
    panel.get_by_label("文本", exact=True).fill("mine")
    one.page.get_by_label("语言").select_option("English")
    expect(panel.get_by_role("heading")).to_have_text("Classify a text")
    expect(one.page.get_by_label("Colours")).to_be_visible()
    expect(panel.get_by_label("Text", exact=True)).to_have_value("mine")
    one.page.reload()
    expect(panel.get_by_role("heading")).to_have_text("Classify a text")


def test_every_word_is_there_in_both_languages(visit):
    one = visit
    one.open("fill")
    english, chinese = one.page.evaluate("import('/page/words.js').then(({ WORDS }) => [WORDS.en, WORDS.zh])")
    assert english.keys() == chinese.keys()
    for key, sentence in english.items():
        assert set(re.findall(r"\{\w+\}", sentence)) == set(re.findall(r"\{\w+\}", chinese[key])), key
        assert re.search(r"[\u4e00-\u9fff，（]", chinese[key]), key


@pytest.mark.real_weights
def test_examples_are_in_a_language_that_the_model_reads(visit, engines):
    needs(engines, "albert-tiny-zh")
    needs(engines, "minilm")
    one = visit
    panel = one.open("attention", "albert-tiny-zh")
    expect(panel.locator(".left .look").nth(1)).to_have_text("小")
    one.page.locator("#model").select_option("minilm")
    expect(panel.locator(".left .look").nth(1)).to_have_text("the")


def brightness(page: Page) -> float:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_colours_follow_the_system_and_the_reader(special_visit):
    one = special_visit(color_scheme="dark")
    one.open("classify")
    assert brightness(one.page) < 40
    one.page.get_by_label("Colours").select_option("Light")
    assert brightness(one.page) > 220
    one.page.reload()
    assert brightness(one.page) > 220
    one.page.get_by_label("Colours").select_option("Automatic")
    assert brightness(one.page) < 40


@pytest.fixture(scope="module")
def tour(browser, address) -> dict[str, Any]:
    """All tabs with their examples answered: what axe-core says of each in light and dark, and how wide it is."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        absent("package axe-playwright-python is not installed (pip install 'bertsmith[dev]')")

    def complaints(**rules: Any) -> list[Any]:
        found = one.page.evaluate("rules => axe.run(rules)", {"resultTypes": ["violations"], **rules})["violations"]
        return [(tab, rule["id"], [node["html"] for node in rule["nodes"]][:3]) for rule in found]

    one = Visit(browser, address)
    found: dict[str, Any] = {"tabs": [], "light": [], "dark": [], "wide": []}
    response = one.page.goto(one.address)
    assert response is not None
    found["policy"] = response.headers.get("content-security-policy", "")
    one.open("fill")
    one.page.evaluate(Axe().axe_script)
    for tab in [tab.get_attribute("data-tab") for tab in one.page.get_by_role("tab").all()]:
        one.page.locator(f"#tab-{tab}").click()
        one.page.locator(f"#panel-{tab} .results > *").first.wait_for()
        found["tabs"].append(tab)
        found["light"] += complaints()
        one.page.emulate_media(color_scheme="dark")
        found["dark"] += complaints(runOnly=["color-contrast"])
        one.page.emulate_media(color_scheme="light")
        one.page.set_viewport_size({"width": 360, "height": 640})
        found["wide"] += [tab] if one.page.evaluate("document.documentElement.scrollWidth") > 360 else []
        one.page.set_viewport_size({"width": 900, "height": 900})
    found["problems"] = one.problems
    one.context.close()
    return found


def test_there_is_a_tab_for_everything_and_axe_has_nothing_to_say(tour):
    """Names, roles and contrast, by the rules of axe-core."""
    assert tour["tabs"] == TABS
    assert tour["light"] == []
    assert tour["dark"] == []


def test_a_narrow_window_never_scrolls_sideways(tour):
    assert tour["wide"] == []


def test_the_page_keeps_to_the_policy_that_the_server_sends(tour):
    """A violation would be an error in the console."""
    assert {part.strip() for part in POLICY.split(";")} <= {part.strip() for part in tour["policy"].split(";")}
    assert tour["problems"] == []


def test_only_what_a_model_can_do_is_shown(visit):
    one = visit

    def less(route: Route) -> None:
        info = route.fetch().json()
        models = [model for model in info["models"] if model["name"] in ("critic", "chooser")]
        route.fulfill(json={**info, "models": models})

    one.page.route("**/info", less)
    one.open("choose")
    shown = [tab.get_attribute("data-tab") for tab in one.page.get_by_role("tab").all()]
    assert shown == ["attention", "classify", "choose", "compare", "pieces"]
    assert one.page.locator("#model option").all_text_contents() == ["chooser"]


def test_errors_are_said_in_words_and_can_be_tried_again(visit, engines):
    one = visit
    panel = one.open("classify", "critic")
    expect(bars(panel)).to_have_count(3)
    error = {"error": {"message": "said <b>so</b>", "type": "x", "field": None}}
    refusals: list[tuple[str, dict[str, Any]]] = [
        ("too long", {"status": 413}),
        ("cannot use this input", {"status": 422}),
        ("busy. Try again in 7 s", {"status": 429, "headers": {"Retry-After": "7"}}),
        ("busy", {"status": 503}),
    ]
    for words, refusal in refusals:
        one.page.route("**/predict", answering(**refusal, json=error))
        ask(panel, Text="the river was good")
        expect(panel.get_by_role("alert")).to_contain_text(words)
        expect(panel.get_by_role("alert")).to_contain_text("said <b>so</b>")
        expect(bars(panel)).to_have_count(0)
        one.page.unroute("**/predict")
    one.page.route("**/predict", lambda route: route.abort())
    ask(panel, Text="the river was good")
    expect(panel.get_by_role("alert")).to_contain_text("does not answer")
    one.page.unroute("**/predict")
    panel.get_by_role("button", name="Try again").click()
    (found,) = engines["critic"].classify(["the river was good"])
    expect(panel.get_by_role("status")).to_have_text(f"{found['label']}, {percent(found['score'])}")
    expect(panel.get_by_role("alert")).to_be_empty()
    assert all("Failed to load resource" in problem for problem in one.problems)
    one.problems.clear()


def test_a_token_is_asked_for_and_sent(visit, engines):
    one = visit
    with page_models.serving({"critic": engines["critic"]}, token="open sesame") as address:
        one.page.goto(f"{address}/#classify")
        field = one.page.get_by_label("This server asks for a token")
        expect(field).to_be_focused()
        field.fill("wrong")
        field.press("Enter")
        expect(one.page.get_by_role("alert").first).to_contain_text("asks for a token")
        field.fill("open sesame")
        one.page.get_by_role("button", name="Use it").click()
        panel = one.page.locator("#panel-classify")
        expect(bars(panel)).to_have_count(3)
        expect(field).to_be_hidden()
        one.page.reload()
        expect(bars(panel)).to_have_count(3)
        assert one.page.evaluate("Object.keys(localStorage).length") == 0
        one.page.goto("about:blank")  # lets go of the connection
    assert len(one.problems) == 2
    assert all("401" in problem for problem in one.problems)
    one.problems.clear()


def test_a_late_answer_never_covers_a_newer_one(visit, engines):
    one = visit
    panel = one.open("classify", "critic")
    expect(bars(panel)).to_have_count(3)
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "slow" in json.loads(route.request.post_data or "")["inputs"]:
            held.append(route)
        else:
            route.fallback()

    one.page.route("**/predict", hold)
    ask(panel, Text="slow river")
    expect(panel.get_by_role("status")).to_have_text("Working…")
    expect(panel.locator(".results")).to_have_attribute("aria-busy", "true")
    with one.page.expect_event("requestfailed"):  # called off, so that the server need not go on with it
        ask(panel, Text="the garden")
    (found,) = engines["critic"].classify(["the garden"])
    words = f"{found['label']}, {percent(found['score'])}"
    expect(panel.get_by_role("status")).to_have_text(words)
    held[0].fulfill(json=[{"label": "late", "score": 1.0}])
    one.page.wait_for_timeout(200)
    expect(panel.get_by_role("status")).to_have_text(words)
    expect(panel.locator(".results")).to_have_attribute("aria-busy", "false")


def test_what_the_server_says_is_text_and_never_markup(visit):
    one = visit
    hostile = "<img src=x onerror=\"document.title='broken'\">"
    span = {"text": hostile, "start": 0, "end": 4, "score": 0.5}
    answers = {
        "fill": [[{"start": 0, "stop": 6, "candidates": [{"token": hostile, "score": 0.5}]}]],
        "predict": [{"label": hostile, "score": 0.5}],
        "tag": [{"text": hostile, "tags": [], "entities": [{**span, "label": hostile}]}],
        "answer": {**span, "answer": hostile, "null_margin": 0, "candidates": [span]},
    }
    for path, content in answers.items():
        one.page.route(f"**/{path}", answering(json=content))
    for tab in ("fill", "classify", "entities", "answer"):
        panel = one.open(tab)
        expect(panel.locator(".results")).to_contain_text(hostile)
    assert one.page.locator("img").count() == 0
    assert one.page.title() == "Bertsmith"
