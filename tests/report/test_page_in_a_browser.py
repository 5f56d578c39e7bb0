"""The report as a person uses it, in a headless Chromium; skipped where there is none."""

from pathlib import Path

import pytest

from tests.browser import DRAWN, Opened, browser
from tests.report.folders import SUMMARY, record, rollouts, write_run
from tests.report.test_page import HOSTILE, PIECES, VALUES, many
from vinejax.report import page, write_json

__all__ = ["browser"]  # a fixture


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Path:
    """Two runs; the first has rollouts, of which the second step lost the most."""
    root = tmp_path_factory.mktemp("report")
    own = rollouts([[1, 1, 1, 0], [1] * 4, [0, 0, 0, 1]])
    wrong = record(PIECES, VALUES, 0.0, rollouts=own)
    right = record(["1+1=2\n", "2+1=3\n", "#### 3"], [0.75, 1.0, 1.0], 1.0)
    partial, cut = ({**wrong, "reward": r, "unfinished": r == 0} for r in (0.5, 0.0))
    records = {1: [right, wrong, partial, cut], 2: [right, wrong], 3: [right, right]}
    first = write_run(root / "a", records, summary=SUMMARY)
    write_json(first / "start.json", {"iteration": 0, "validation/pass_at_1": 0.25})
    plain = {k: v for k, v in right.items() if k not in ("values", "advantages")}
    second = write_run(root / "b", {1: [plain]}, "restem", summary=SUMMARY)
    page.write_page([first, second], root / "page.html")
    return root / "page.html"


@pytest.mark.parametrize("width", [375, 1280])
def test_a_comparison_opens_without_errors_requests_or_overflow(browser, comparison, width):
    opened = Opened(browser, comparison, viewport={"width": width, "height": 800})
    assert opened.view.locator(".scores tbody tr").count() == 2
    opened.view.locator("#curves-section").scroll_into_view_if_needed()
    opened.view.wait_for_selector(".plot .main-svg")
    opened.view.locator("#costs").scroll_into_view_if_needed()
    opened.view.wait_for_selector(".bars .main-svg")
    opened.check()


def test_a_trajectory_is_chosen_and_a_step_says_its_value(browser, comparison):
    opened = Opened(browser, comparison)
    view = opened.view
    view.get_by_label("Iteration").select_option(label="2")
    view.get_by_role("button", name="Wrong", exact=True).click()
    view.wait_for_selector(".list li:only-child")
    view.locator(".list button").click()
    assert view.locator(".list button").get_attribute("aria-current") == "true"
    step = view.locator("#step-1")
    assert "2+1=4" in step.inner_text()
    assert "1.00 → 0.25" in step.inner_text()
    assert "−0.75" in step.inner_text()
    assert "The wrong turn" in step.inner_text()
    assert view.locator(".step.turn").count() == 1
    step.locator("button.head").click()
    view.wait_for_selector("#step-1 .vines li")
    assert "4 of 4 right" in opened.text("#step-1 .vines > :nth-child(1)")
    after = opened.text("#step-1 .vines > :nth-child(2)")
    assert "1 of 4 right, mean reward 0.25, standard error 0.25" in after
    assert "× 3" in after  # equal rollouts are counted
    opened.check()


def test_filters_and_runs_change_the_list(browser, comparison):
    opened = Opened(browser, comparison)
    view = opened.view
    view.get_by_label("Iteration").select_option(label="2")
    view.wait_for_selector("text=2 trajectories of iteration 2, 1 right")
    first = view.locator(".list button").first
    assert "Wrong" in first.inner_text()  # the largest swing first
    view.get_by_role("button", name="As sampled").click()
    assert "Right" in view.locator(".list button").first.inner_text()
    view.get_by_label("Run", exact=True).select_option(label="restem, seed 0")
    view.wait_for_selector("text=1 trajectory of iteration 1")
    assert view.locator(".effect").first.inner_text() == ""  # it has no values
    view.get_by_role("button", name="Wrong", exact=True).click()
    assert "No trajectory of this iteration" in opened.text("#viewer")
    opened.check()


def test_partial_grades_have_a_filter_of_their_own(browser, comparison):
    opened = Opened(browser, comparison)
    view = opened.view
    view.get_by_label("Iteration").select_option(label="1")
    view.wait_for_selector("text=4 trajectories of iteration 1, 1 right, 1 with a part")
    for name, badges in (
        ("Right", ["Right"]),
        ("Wrong", ["Wrong", "Unfinished"]),
        ("Partial", ["0.50"]),
    ):
        view.get_by_role("button", name=name, exact=True).click()
        assert view.locator(".list .badge").all_inner_texts() == badges
    view.get_by_label("Iteration").select_option(label="2")  # where there are none
    view.wait_for_selector("text=2 trajectories of iteration 2, 1 right")
    assert view.get_by_role("button", name="Partial", exact=True).count() == 0
    opened.check()


def test_a_whole_prompt_is_called_that(browser, tmp_path):
    kept = record(PIECES, VALUES, 0.0)
    other = {k: v for k, v in kept.items() if k not in ("text", "text_starts", "problem_text")}
    write_run(tmp_path / "run", {1: [{**other, "problem": "train/8"}]}, summary=SUMMARY)
    page.write_page([tmp_path / "run"], tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    assert "prompt: " in opened.text(".list button")
    assert "This is the whole prompt" in opened.text(".detail")
    opened.check()


def test_all_charts_are_drawn_without_scrolling(browser, comparison):
    opened = Opened(browser, comparison, viewport={"width": 1280, "height": 300})
    opened.wait_for_charts()
    opened.check()


def test_paper_has_all_charts_in_its_own_width(browser, comparison):
    opened = Opened(
        browser, comparison, viewport={"width": 375, "height": 300}, color_scheme="dark"
    )
    view = opened.view
    view.evaluate(f"addEventListener('beforeprint', () => {{ window.onPaperNow = {DRAWN} }})")
    view.pdf(format="A4")
    view.wait_for_selector("html:not([data-print])")
    on_paper = view.evaluate("window.onPaperNow")
    assert len(on_paper) == 6
    assert all(0 < chart == place < 680 for place, chart in on_paper)
    assert on_paper[0][0] != view.evaluate(DRAWN)[0][0]
    opened.wait_for_charts()  # back on the screen
    view.emulate_media(media="print")
    colour = "getComputedStyle(document.body).color"
    assert view.evaluate(colour) == "rgb(27, 31, 35)"  # dark on white
    view.emulate_media(media="screen")
    view.wait_for_selector("html:not([data-print])")
    assert view.evaluate(colour) == "rgb(232, 235, 238)"
    opened.check()


def test_the_validation_of_the_start_is_drawn_at_0(browser, comparison):
    opened = Opened(browser, comparison)
    opened.view.wait_for_selector(".chart:nth-child(2) .main-svg")
    axes = "[...document.querySelectorAll('.plot')[1].data.map((t) => [Array.from(t.x), t.y])]"
    drawn = opened.view.evaluate(axes)
    assert [0, 3] in [x for x, _ in drawn]
    opened.view.get_by_role("button", name="Seconds", exact=True).click()
    assert [0, 6] in [x for x, _ in opened.view.evaluate(axes)]
    opened.view.wait_for_selector(".xtitle:has-text('since the first iteration began')")
    opened.check()


def test_axes_and_metrics_can_be_chosen(browser, comparison):
    opened = Opened(browser, comparison)
    view = opened.view
    view.locator("#charts-area").scroll_into_view_if_needed()
    view.wait_for_selector(".plot .main-svg")
    view.get_by_role("button", name="Tokens", exact=True).click()
    view.wait_for_selector(".xtitle:has-text('tokens sampled')")
    drawn = "document.querySelector('.plot').data.map((trace) => Array.from(trace.x))"
    assert view.evaluate(drawn) == [[100, 200, 300]] * 2
    view.get_by_role("button", name="restem, seed 0").click()
    assert view.evaluate(drawn) == [[100, 200, 300]]
    opened.check()


def test_the_theme_follows_the_system_and_the_switch(browser, comparison):
    opened = Opened(browser, comparison, color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = opened.view.evaluate(colour)
    opened.view.get_by_role("button", name="Light", exact=True).click()
    light = opened.view.evaluate(colour)
    assert (dark, light) == ("rgb(18, 21, 24)", "rgb(247, 247, 245)")
    opened.view.get_by_role("button", name="Dark", exact=True).click()
    assert opened.view.evaluate(colour) == dark
    opened.check()


def test_hostile_texts_are_shown_and_do_nothing(browser, tmp_path):
    pieces = [*HOSTILE]
    own = rollouts([[1.0, 0.0]] * len(pieces), HOSTILE[1])
    given = record(pieces, [0.5] * len(pieces), 0.0, problem_text=HOSTILE[0], rollouts=own)
    write_run(tmp_path / "run", {1: [given]}, summary=SUMMARY)
    page.write_page([tmp_path / "run"], tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    for i in (0, 1, 2, 4, 5, 6, 8):
        assert HOSTILE[i] in opened.text(f"#step-{i} .text"), HOSTILE[i]
    assert "⟨U+202E⟩1=2" in opened.text("#step-7 .text")
    opened.view.locator("#step-0 button.head").click()
    opened.view.wait_for_selector("#step-0 .vines li")
    assert HOSTILE[1] in opened.text("#step-0 .vines li")
    assert opened.view.locator("main img, .detail script, .list script").count() == 0
    opened.check()


def test_the_policy_stops_what_gets_into_the_page_all_the_same(browser, comparison, tmp_path):
    text = comparison.read_text()
    bad = '<main><img src="https://localhost:1/x"><b onclick="document.title=1">b</b>'
    bad += "<script>document.title=2</script>"
    (tmp_path / "page.html").write_text(text.replace("<main>", bad))
    opened = Opened(browser, tmp_path / "page.html")
    opened.view.locator("main > b").click()
    assert opened.view.title() == "2 runs compared"
    assert sum("Content Security Policy" in said for said in opened.told) >= 3
    answered = opened.view.evaluate(
        "performance.getEntriesByType('resource').filter((entry) => entry.transferSize > 0).length"
    )
    assert answered == 0


def test_a_page_at_its_limit_opens_soon(browser, tmp_path):
    write_run(tmp_path / "run", {3: many(500)}, summary=SUMMARY)
    page.write_page([tmp_path / "run"], tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    assert opened.view.locator(".list li").count() == 500
    # 2 s on a quiet machine, of which half a second is the most that was seen; tests run on others.
    loaded = opened.view.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert loaded < 10_000
    opened.check()
