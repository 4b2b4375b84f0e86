"""A sheet for blind readers in a real browser, and the answers that it saves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from r2gen.compared import answers, page
from r2gen.compared.answers import Answer
from r2gen.compared.entries import Shown
from tests import browser as browsers

from .written import HOSTILE, entry


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    started = browsers.start()
    yield started
    started.quit()


@pytest.fixture
def sheet(browser: WebDriver, tmp_path: Path) -> Path:
    """A sheet of two studies in the browser, with downloads to `tmp_path`."""
    Image.new("L", (512, 600)).save(tmp_path / "0.png")
    images = (str(tmp_path / "0.png"), str(tmp_path / "absent.png"))
    file = tmp_path / "sheet.html"
    studies = [
        Shown({model: entry(study, text, HOSTILE, images=images) for model, text in written})
        for study, written in ((1, (("bf16", HOSTILE), ("fp16", "clear"))), (2, (("bf16", "large"),)))
    ]
    file.write_text(page.sheet(studies), encoding="utf-8")
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    browser.get_log("browser"), browser.get_log("performance")
    browsers.load(browser, file)
    return file


def progress(browser: WebDriver) -> str:
    return browser.find_element(By.ID, "progress").text


def test_marks_are_stored_while_reading_and_saved_as_a_file(
    browser: WebDriver, sheet: Path, tmp_path: Path
) -> None:
    sets = browser.find_elements(By.CSS_SELECTOR, "[data-report]")
    ids = [one.get_attribute("data-report") for one in sets]
    assert progress(browser) == f"0 of {len(ids)} marked"
    for one, value in zip(sets, ("correct", "major error"), strict=False):
        browser.execute_script(
            "arguments[0].click()", one.find_element(By.CSS_SELECTOR, f"[value='{value}']")
        )
    sets[1].find_element(By.TAG_NAME, "textarea").send_keys('a "tube" <b>missed</b>')
    sets[2].find_element(By.TAG_NAME, "textarea").send_keys("of another patient")
    assert progress(browser) == f"2 of {len(ids)} marked"

    # The browser's storage belongs to another process, which may lag behind on a busy machine.
    def is_back(_: WebDriver) -> bool:
        browser.refresh()
        return progress(browser) == f"2 of {len(ids)} marked"

    WebDriverWait(browser, 60).until(is_back, "a page that was closed has lost nothing")
    browser.find_element(By.ID, "save").click()
    assert not list(tmp_path.glob(answers.FILES)), "whose answers they are has to be said"
    browser.find_element(By.ID, "reader").send_keys("AB")
    browser.find_element(By.ID, "save").click()
    saved = tmp_path / "answers-AB.json"
    WebDriverWait(browser, 60).until(lambda _: saved.exists() and saved.read_text())

    assert answers.read(tmp_path) == {
        "AB": {
            ids[0]: Answer(mark="correct"),
            ids[1]: Answer(mark="major error", note='a "tube" <b>missed</b>'),
            ids[2]: Answer(note="of another patient"),
        }
    }
    assert browser.get_log("browser") == []
    events = (json.loads(e["message"])["message"] for e in browser.get_log("performance"))
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} == {sheet.as_uri()}


def test_on_a_phone_nothing_scrolls_sideways(browser: WebDriver, sheet: Path) -> None:
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 400
    assert browser.execute_script("return window.hacked") is None
