"""The site in a real browser: no errors, search, formulas, pictures, a phone's width."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_site import SITE, built, module_of_docs

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no Chromium with its driver"),
    built,
]


def browser(width, height):
    pytest.importorskip("selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700},
    )
    return driver


@pytest.fixture(scope="module")
def wide():
    driver = browser(1300, 900)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def phone():
    driver = browser(390, 844)
    yield driver
    driver.quit()


def address(page):
    return (SITE / page).resolve().as_uri()


def test_every_page_opens_without_errors(wide):
    broken = {}
    for page in module_of_docs("build").pages_of(SITE):
        wide.get(page.resolve().as_uri())
        errors = [e["message"] for e in wide.get_log("browser") if e["level"] == "SEVERE"]
        if errors or not wide.title:
            broken[page.name] = errors
    assert not broken


@pytest.mark.parametrize("word", ["Procrustes", "checkpoint"])
def test_search_finds(wide, word):
    from selenium.webdriver.support.ui import WebDriverWait

    wide.get(address("search.html") + f"?q={word}")
    found = "return document.querySelectorAll('#search-results li').length"
    WebDriverWait(wide, 20).until(lambda driver: driver.execute_script(found) > 0)


def test_formulas_are_drawn_with_the_bundled_font(wide):
    wide.get(address("explanations/orthogonality.html"))
    sizes = wide.execute_script(
        "return Array.from(document.querySelectorAll('math'))"
        ".map(formula => formula.getBoundingClientRect().height)"
    )
    assert len(sizes) > 10 and min(sizes) > 5
    assert wide.execute_script("return document.fonts.check('16px \"STIX Two Math\"')")


def test_pictures_load(wide):
    wide.get(address("recipes/index.html"))
    empty = (
        "return Array.from(document.images)"
        ".filter(image => image.complete && !image.naturalWidth).map(image => image.src)"
    )
    assert wide.execute_script("return document.images.length") > 40
    assert wide.execute_script(empty) == []


@pytest.mark.parametrize("page", ["index.html", "recipes/index.html", "guide/minimize.html"])
def test_a_phone_needs_no_scrolling_sideways(phone, page):
    phone.get(address(page))
    width = phone.execute_script("return document.documentElement.scrollWidth")
    assert width <= 400
