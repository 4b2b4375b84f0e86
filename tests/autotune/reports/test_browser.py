"""The page in headless Chromium; CI keeps the screenshots in `artifacts/`."""

import base64
import json
import os
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from autotune.reports import page
from tests import browser as browsers

MUST_RUN = bool(os.environ.get("AUTOTUNE_REQUIRE_BROWSER"))
ARTIFACTS = Path(__file__).parents[3] / "artifacts" / "report"
WIDE, NARROW = 1280, 400
PRINTED_PX = 688  # a sheet of A4 within the page's margins

# For every plot: its name, the number of its marks, and the colour of its axis labels.
DRAWN = """
return [...document.querySelectorAll("[data-figure]")].map((place) => {
  const isShown = (mark) => place.clientHeight > 99 && mark.getBoundingClientRect().width > 0;
  const text = place.querySelector("svg text");
  return [place.dataset.figure, [...place.querySelectorAll(".trace path")].filter(isShown).length,
          text ? getComputedStyle(text).fill : ""];
});
"""

UNFIT = """
return [...document.querySelectorAll("[data-figure]")]
  .filter((place) => Math.abs(place.querySelector("svg").clientWidth - place.clientWidth) > 1)
  .map((place) => place.dataset.figure);
"""

REDRAWN_MS = """
const began = performance.now();
document.getElementById("theme").click();
return performance.now() - began;
"""


@pytest.fixture(scope="module")
def browser():
    started = browsers.start()
    yield Browser(started)
    started.quit()


class Browser:
    """A browser with one page at a time."""

    def __init__(self, driver):
        self.driver = driver
        self.file = None

    def look(self, width=WIDE, scheme="light", media="screen"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.do("Emulation.setEmulatedMedia", media=media, features=features)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.do("Emulation.setDeviceMetricsOverride", **size)
        return self

    def do(self, command, **parameters):
        return self.driver.execute_cdp_cmd(command, parameters)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def open(self, file):
        """Clears the logs of messages and requests, and loads the page."""
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        browsers.load(self.driver, file)
        return self

    def open_once(self, file):
        """Opens the page unless it is already open; for tests that do not change it."""
        if self.driver.current_url != file.as_uri():
            self.open(file)
        return self

    def messages(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def fetched(self):
        entries = (json.loads(e["message"])["message"] for e in self.driver.get_log("performance"))
        return [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]

    def drawn(self):
        return {name: (marks, rgb(colour)) for name, marks, colour in self.run(DRAWN)}

    def focused(self):
        return self.driver.switch_to.active_element

    def style(self, selector, name):
        script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        return self.run(script, selector, name)

    def keep(self, name):
        """Saves a screenshot of the whole page if screenshots are on."""
        if not MUST_RUN:
            return
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        size = self.do("Page.getLayoutMetrics")["cssContentSize"]
        whole = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=whole)
        (ARTIFACTS / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


def rgb(text):
    """Returns the numbers in `rgb(1, 2, 3)`."""
    return tuple(int(float(n)) for n in text[text.index("(") + 1 : -1].split(",")[:3]) if text else None


def is_dark(colour):
    return sum(colour) < 3 * 100


def is_light(colour):
    return sum(colour) > 3 * 155


@pytest.fixture(scope="module")
def pages(tmp_path_factory, rich, bare, many):
    folder = tmp_path_factory.mktemp("pages")
    files = {}
    for name, report in (("rich", rich), ("bare", bare), ("many", many)):
        files[name] = folder / f"{name}.html"
        files[name].write_text(page.render(report), encoding="utf-8")
    return files


# By module: all that only looks at one, then the next.
@pytest.fixture(params=["rich", "bare", pytest.param("many", marks=pytest.mark.slow)], scope="module")
def name(request):
    return request.param


def test_the_page_opens_without_messages_or_requests(browser, pages, name):
    browser.look().open(pages[name])
    assert browser.messages() == []
    assert [url for url in browser.fetched() if not url.startswith("data:")] == [pages[name].as_uri()]
    assert browser.run("return window.hacked") is None


def test_every_plot_is_drawn(browser, pages, name):
    drawn = browser.look().open_once(pages[name]).drawn()
    assert len(drawn) == (0 if name == "bare" else 10)
    assert [plot for plot, (marks, _) in drawn.items() if not marks] == []
    browser.keep(f"{name}-light")


def test_every_section_is_filled(browser, pages, name):
    browser.look().open_once(pages[name])
    lengths = browser.run("return [...document.querySelectorAll('section')].map((s) => s.innerText.length)")
    # a search that has just begun has no forecast for other GPUs and no compared models
    assert len(lengths) == (6 if name == "bare" else 8)
    assert min(lengths) > 60


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_and_plots_follow_the_scheme(browser, pages, scheme):
    browser.look(scheme="light" if scheme == "dark" else "dark").open_once(pages["rich"]).look(scheme=scheme)
    ground, text = (is_light, is_dark) if scheme == "light" else (is_dark, is_light)
    assert ground(rgb(browser.style("body", "backgroundColor")))
    assert text(rgb(browser.style("body", "color")))
    colours = {colour for _, colour in browser.drawn().values()}
    assert len(colours) <= 2  # ink and muted ink
    assert not any(ground(colour) for colour in colours)
    browser.keep(f"rich-{scheme}")


@pytest.mark.slow
def test_on_a_phone_only_tables_and_wide_plots_scroll_sideways(browser, pages, name):
    browser.look(NARROW).open_once(pages[name])
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.run("return document.documentElement.scrollWidth") == NARROW
    outside = browser.run(
        "return [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right >"
        f" {NARROW} && !e.closest('.scroll, .canvas, pre, .commands')).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert outside == []
    assert [plot for plot, (marks, _) in browser.drawn().items() if not marks] == []
    browser.run("for (const d of document.querySelectorAll('details')) d.open = false")
    browser.keep(f"{name}-phone")


@pytest.mark.slow
def test_plots_are_as_wide_as_their_place(browser, pages):
    """Plotly forgets the height of a figure that it has drawn twice, as after a change of colours."""
    browser.look(scheme="dark").open(pages["rich"])
    for width, scheme in ((WIDE, "light"), (NARROW, "light"), (800, "dark")):
        browser.look(width, scheme)
        WebDriverWait(browser.driver, 30).until(lambda _: browser.run(UNFIT) == [])
        assert [plot for plot, (marks, _) in browser.drawn().items() if not marks] == []


def test_text_from_outside_is_shown_as_text(browser, pages):
    browser.look().open_once(pages["rich"])
    browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
    for section in ("own", "search"):
        shown = browser.run("return document.getElementById(arguments[0]).innerText", section)
        assert "<script>window.hacked = true</script><img src=x" in shown
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.querySelectorAll('main script, main img[onerror]').length") == 0


def test_a_hover_shows_the_configuration_as_text(browser, pages):
    """Plotly interprets markup in its texts, which must not happen for text from outside."""
    browser.look().open(pages["rich"])
    shown = browser.run("""
      const place = document.getElementById("plot-history");
      const is5 = (text) => text.startsWith("<b>Trial 5</b>");
      const curveNumber = place.data.findIndex((trace) => trace.text?.some(is5));
      Plotly.Fx.hover(place, [{ curveNumber, pointNumber: place.data[curveNumber].text.findIndex(is5) }]);
      return place.querySelector(".hoverlayer").textContent;
    """)
    assert "Trial 5" in shown
    assert "<script>window.hacked" in shown.replace("\xa0", " ")


@pytest.mark.slow
def test_the_keyboard_reaches_the_answer_and_the_theme(browser, pages):
    browser.look().open(pages["rich"])
    browser.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert browser.focused().get_attribute("class") == "skip"
    assert browser.run("return document.activeElement.getBoundingClientRect().top >= 0")
    for _ in range(20):
        if browser.focused().get_attribute("id") == "theme":
            break
        browser.focused().send_keys(Keys.TAB)
    assert browser.focused().get_attribute("aria-label") == "Switch to dark colours"
    assert float(browser.style("#theme", "outlineWidth").removesuffix("px")) >= 2
    browser.focused().send_keys(Keys.ENTER)
    assert is_dark(rgb(browser.style("body", "backgroundColor")))
    assert not any(is_dark(colour) for _, colour in browser.drawn().values())
    assert browser.focused().get_attribute("aria-label") == "Switch to light colours"
    browser.focused().send_keys(Keys.SPACE)
    assert is_light(rgb(browser.style("body", "backgroundColor")))


def test_a_command_is_copied_or_else_selected(browser, pages):
    browser.look().open(pages["rich"])
    browser.driver.find_element(By.CSS_SELECTOR, "[data-copies='command-1']").click()
    message = WebDriverWait(browser.driver, 30).until(
        lambda driver: driver.find_element(By.ID, "copied").get_property("textContent")
    )
    command = "python -m autotune export runs/iu -o best.yaml"
    assert message in {f"Copied: {command}", f"Selected: {command}"}


def test_a_link_to_a_table_opens_it(browser, pages):
    browser.look().open(pages["rich"])
    assert not browser.run("return document.getElementById('trials').open")
    browser.driver.find_element(By.CSS_SELECTOR, "#front a[href='#trials']").click()
    assert browser.run("return document.getElementById('trials').open")


@pytest.mark.long
def test_paper_is_light_with_all_details_and_no_buttons(browser, pages):
    browser.look(PRINTED_PX, "dark").open(pages["rich"])
    closed = browser.run("return document.querySelectorAll('details:not([open])').length")
    assert closed > 5
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.look(PRINTED_PX, "dark", media="print")
    assert browser.run("return document.querySelectorAll('details:not([open])').length") == 0
    assert is_light(rgb(browser.style("body", "backgroundColor")))
    drawn = browser.drawn()
    assert all(marks and not is_light(colour) for marks, colour in drawn.values())
    for selector in (".bar", ".tool", ".figure summary"):
        assert browser.style(selector, "display") == "none"
    assert browser.run("return document.documentElement.scrollWidth") == PRINTED_PX
    browser.keep("rich-paper")
    browser.look(PRINTED_PX, "dark").run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("return document.querySelectorAll('details:not([open])').length") == closed
    assert is_dark(rgb(browser.style("body", "backgroundColor")))


@pytest.mark.slow
def test_the_page_prints(browser, pages):
    browser.look(scheme="dark", media="").open_once(pages["rich"])
    printed = base64.b64decode(browser.do("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF")
    assert browser.messages() == []
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / "rich.pdf").write_bytes(printed)


def test_without_javascript_text_and_tables_are_there(browser, pages):
    browser.look()
    browser.do("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["rich"])
        text = browser.driver.find_element(By.TAG_NAME, "main").text
        assert "The plot needs JavaScript" in text
        assert "Trial 11 trains 2.86 times as fast" in text
        assert not any(b.is_displayed() for b in browser.driver.find_elements(By.TAG_NAME, "button"))
        browser.driver.find_element(By.CSS_SELECTOR, "#table-ablation summary").click()
        assert "micro_batch_size" in browser.driver.find_element(By.ID, "table-ablation").text
    finally:
        browser.do("Emulation.setScriptExecutionDisabled", value=False)
        browser.driver.get("about:blank")


@pytest.mark.long
def test_the_cost_of_a_thousand_trials_grows_less_than_in_proportion(browser, pages, rich, many):
    """A change of colours redraws all figures, and the rest of the page must stay small, too."""
    taken_ms = {}
    for name in ("rich", "many"):
        browser.look().open_once(pages[name])
        taken_ms[name] = min(browser.run(REDRAWN_MS) for _ in range(4))
    assert taken_ms["many"] < taken_ms["rich"] * len(many.trials) / len(rich.trials)
    assert browser.run("return document.querySelectorAll('*').length") < 40_000
