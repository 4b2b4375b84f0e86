"""Headless Chromium for tests of what it shows."""

import os
import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--disable-gpu", "--disable-extensions", "--disable-background-networking"),  # half of its work
)


def start() -> webdriver.Chrome:
    """A new browser that logs what pages print and fetch; skips the test if there is none."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        if os.environ.get("AUTOTUNE_REQUIRE_BROWSER"):
            pytest.fail("AUTOTUNE_REQUIRE_BROWSER is set, and there is no chromium or no chromedriver")
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    options = Options()
    options.binary_location = binary
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def load(browser: webdriver.Chrome, file: Path) -> None:
    """Opens a page on disk, and waits for all of it: on a busy machine the driver does not."""
    browser.get(file.as_uri())
    WebDriverWait(browser, 120).until(
        lambda it: it.execute_script("return document.readyState") == "complete"
    )
