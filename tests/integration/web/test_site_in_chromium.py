# SPDX-License-Identifier: Apache-2.0
"""The site of the documentation in a real browser: phones, darkness, nothing from elsewhere."""

import re
from pathlib import Path

import pytest

from tests.chromium_fixture import Chromium, browser
from tests.unit.test_site import site

__all__ = ["browser", "site"]

PAGES = ("index", "commands/create-vm", "commands/vgpuctl", "commands/lab", "maintenance", "web", "hardware", "errors")
WIDER = """[...document.querySelectorAll('.md-content *')]
    .filter((one) => !one.closest('pre, .md-clipboard, .headerlink') && one.scrollWidth > one.clientWidth + 1
        && getComputedStyle(one).overflowX !== 'visible' && getComputedStyle(one).display !== 'inline')
    .map((one) => one.outerHTML.slice(0, 120))"""


_WIDER = pytest.mark.long(
    "tests/integration/web/test_site_in_chromium.py::"
    "test_no_page_is_wider_than_the_screen_and_on_a_phone_no_part_of_it_but_what_a_terminal_shows"
)


@pytest.mark.parametrize("width", [390, pytest.param(1024, marks=_WIDER), pytest.param(1440, marks=_WIDER)])
def test_no_page_is_wider_than_the_screen_and_on_a_phone_no_part_of_it_but_what_a_terminal_shows(
    browser: Chromium, site: Path, width: int
) -> None:
    with browser.page(width=width) as page:
        for name in PAGES:
            page.open((site / f"{name}.html").as_uri())
            assert page.run("document.documentElement.scrollWidth") == width, name
            assert width > 390 or page.run(WIDER) == [], name


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_colours_are_those_that_the_system_prefers(browser: Chromium, site: Path, *, dark: bool) -> None:
    with browser.page(dark=dark) as page:
        page.open((site / "index.html").as_uri())
        ground = page.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) is dark, ground
        assert [one for one in page.asked() if not one.startswith(("file:", "data:", "blob:"))] == []
