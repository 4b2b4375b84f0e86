"""A sheet for blind readers as a browser shows it, and the answers that it saves."""

import json
from dataclasses import replace

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from autotune.compare import blind
from autotune.reports import sheet
from tests import browser as browsers

KEY = bytes(32)


@pytest.fixture(scope="module")
def browser():
    started = browsers.start()
    yield started
    started.quit()


@pytest.fixture
def page(browser, rich, tmp_path):
    """A sheet of three studies in the browser, which saves files to `tmp_path`."""
    text = sheet.render(sheet.items([replace(s, written=dict(s.written)) for s in rich.samples], KEY))
    file = tmp_path / "sheet.html"
    file.write_text(text, encoding="utf-8")
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    browser.get_log("browser"), browser.get_log("performance")
    browsers.load(browser, file)
    return file


def progress(browser):
    return browser.find_element(By.ID, "progress").text


def test_marks_are_kept_while_they_are_given_and_saved_as_a_file(browser, page, tmp_path):
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

    browser.refresh()
    assert progress(browser) == f"2 of {len(ids)} marked", "a page that was closed has lost nothing"
    browser.find_element(By.ID, "save").click()
    assert not (tmp_path / "answers.json").exists(), "whose answers they are has to be said"
    browser.find_element(By.ID, "reader").send_keys("AB")
    browser.find_element(By.ID, "save").click()
    saved = tmp_path / "answers.json"
    WebDriverWait(browser, 60).until(lambda _: saved.exists() and saved.read_text())

    assert blind.parse(saved.read_text(), saved) == (
        "AB",
        {
            ids[0]: blind.Answer("correct"),
            ids[1]: blind.Answer("major error", 'a "tube" <b>missed</b>'),
            ids[2]: blind.Answer("", "of another patient"),
        },
    )
    assert browser.get_log("browser") == []
    events = (json.loads(e["message"])["message"] for e in browser.get_log("performance"))
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} == {page.as_uri()}


def test_on_a_phone_nothing_scrolls_sideways(browser, page):
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 400
    assert browser.execute_script("return window.hacked") is None
