"""The page of `serve` in the system's Chromium: how it can be used, and what it does when things go wrong."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from absence import absent
from serve import page_models
from serve.page.visits import Visit, answering, ask, bars, expect, needs, percent, says

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.browser

POLICY = "default-src 'self'; style-src 'self'; img-src 'self' data:"
TABS = ["fill", "attention", "classify", "entities", "answer", "choose", "compare", "neighbours", "pieces"]


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


def test_an_example_never_comes_between_a_reader_and_the_field(visit):
    """Its language is asked of the server first; whoever is in the field by then may have begun to write."""
    held: list[Route] = []
    visit.page.route("**/tokenize", lambda route: held.append(route))
    with visit.page.expect_request("**/tokenize"):
        panel = visit.open("fill", "filler")
    text = panel.get_by_label("Text", exact=True)
    text.focus()
    visit.page.route("**/tokenize", lambda route: route.continue_())
    for route in held:
        route.continue_()
    expect(panel.get_by_role("status")).to_have_text("Write something first.")
    expect(text).to_have_value("")
    text.press_sequentially("the river")
    expect(text).to_have_value("the river")


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


def test_the_link_to_the_content_leaves_a_tab_open_and_can_be_loaded_again(visit):
    visit.open("pieces")
    visit.page.locator("a[href='#main']").focus()
    visit.page.keyboard.press("Enter")
    expect(visit.page.locator("#panel-pieces")).to_be_visible()
    visit.page.reload()
    expect(visit.page.locator("[role=tabpanel]:visible")).to_have_count(1)


def test_only_what_a_model_can_do_is_shown(visit):
    one = visit

    def less(route: Route) -> None:
        info = route.fetch().json()
        models = [model for model in info["models"] if model["name"] in ("critic", "chooser")]
        route.fulfill(json={**info, "models": models})

    one.page.route("**/info", less)
    one.open("choose")
    shown = [tab.get_attribute("data-tab") for tab in one.page.get_by_role("tab").all()]
    assert shown == ["attention", "classify", "choose", "compare", "neighbours", "pieces"]
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
