"""The site, built as CI builds it: strict, whole, and with nothing that a browser would fetch elsewhere."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import typer
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from autotune.cli.app import app
from autotune.space import spaces
from autotune.workloads import registry
from r2gen.findings import PHRASES
from tests import browser as browsers

from . import pages

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=pages.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


class Loads(HTMLParser):
    """What a page has a browser load."""

    def __init__(self):
        super().__init__()
        self.places = []

    def handle_starttag(self, tag, attrs):
        place = dict(attrs).get(LOADED.get(tag))
        self.places += [place] if place else []


def loaded(html):
    parser = Loads()
    parser.feed(html)
    return parser.places


def test_what_is_loaded_is_found():
    assert loaded('<a href="https://a"><script src="//b"></script><link href="c.css">') == ["//b", "c.css"]


def test_it_has_every_page_and_loads_nothing_from_elsewhere(site):
    html = {file: file.read_text(encoding="utf-8") for file in site.rglob("*.html")}
    assert len(html) > len(pages.SITE)  # and the one that says "not found"
    outside = re.compile(r"(https?:)?//")
    for file, text in html.items():
        assert loaded(text), file
        assert [place for place in loaded(text) if outside.match(place)] == [], file
        assert 'class="mermaid"' not in text, f"{file}: diagrams are drawn by a script from elsewhere"
    for file in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", file.read_text(encoding="utf-8")), file


def test_everything_that_is_made_from_the_code_is_there(site):
    text = "".join(file.read_text(encoding="utf-8") for file in (site / "reference").rglob("*.html"))
    assert "made from the code:" not in text
    for name, command in typer.main.get_command(app).commands.items():
        assert f"python -m autotune {name}" in text
        for parameter in command.params:
            assert max(parameter.opts, key=len) in text, f"{name} {parameter.opts}"
    whole = spaces.schema()
    for fields in (whole, *whole["$defs"].values()):
        assert [field for field in fields["properties"] if f"<code>{field}</code>" not in text] == []
    known = registry.known_settings("r2gen").by_name
    assert [name for name in known if f"<td><code>{name}</code></td>\n<td>" not in text] == []
    trainer = (site / "r2gen.html").read_text(encoding="utf-8")
    assert [name for name in PHRASES if f"<td>{name}</td>" not in trainer] == []
    modules = {file.name for file in (pages.ROOT / "r2gen").glob("[!_]*.py")}
    assert [name for name in modules if f"<code>{name}</code>: " not in trainer] == []
    assert "<td><code>weight_decay</code></td>\n<td>no</td>\n<td>yes</td>\n<td>no</td>" in text


@pytest.fixture(scope="module")
def browser():
    started = browsers.start()
    started.set_window_size(1280, 900)  # in a narrow one the search is behind a button
    yield started
    started.quit()


@pytest.mark.slow
def test_it_can_be_searched_if_it_was_opened_from_the_disk(site, browser):
    browsers.load(browser, site / "how-to" / "data.html")
    browser.find_element(By.CSS_SELECTOR, "[data-md-component=search-query]").send_keys("Kelton")
    found = WebDriverWait(browser, 30).until(
        lambda shown: shown.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
    )
    places = [link.get_attribute("href") for link in found]
    assert (site / "explanation" / "throughput.html").as_uri() in {
        place.partition("#")[0] for place in places
    }
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    assert {url.partition(":")[0] for url in fetched(browser)} == {"file"}


def fetched(browser):
    entries = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    urls = [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith("data:")]
