# SPDX-License-Identifier: Apache-2.0
"""The documentation as a web site and as manual pages: every page is in the site, every link leads somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lxml import html

from vgpuctl.cli.contents import COMMANDS, file_name

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning, such as a link that leads nowhere, ends the build."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_has_every_page(site: Path) -> None:
    skipped = ("changes", "schemas")
    sources = [one.relative_to(ROOT / "docs") for one in (ROOT / "docs").rglob("*.md")]
    pages = {one.with_suffix(".html") for one in sources if one.parts[0] not in skipped}
    pages = {one.with_name("index.html") if one.name == "README.html" else one for one in pages}
    missing = sorted(str(one) for one in pages if not (site / one).is_file())
    assert not missing and len(pages) > 150


def test_every_page_stands_in_the_navigation(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    pages = {one.name for one in (ROOT / "docs").glob("*.md")} - {"README.md"}
    missing = sorted(one for one in pages if f'href="{one.removesuffix(".md")}.html"' not in front)
    assert not missing


def test_the_page_of_each_command_links_to_a_page_that_shows_it_at_work(site: Path) -> None:
    without = []
    for name in COMMANDS:
        page = html.parse(site / "commands" / f"{file_name(name)}.html")
        links = page.xpath("//article//p[starts-with(normalize-space(), 'How-to:')]/a/@href")
        if not links or not all((site / "commands" / one).is_file() for one in links):
            without.append(name)
    assert without == []


def test_the_front_page_has_the_comparison_of_the_readme() -> None:
    own, other = ((ROOT / one).read_text(encoding="utf-8") for one in ("README.md", "docs/README.md"))
    rows = [line for line in own.splitlines() if line.startswith("| ")]
    assert len(rows) > 8 and all(one in other for one in rows[:9])


def test_a_page_of_the_site_asks_no_other_server(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|link|img)\b[^>]*(?:src|href)=["']?(https?:)?//""")
    foreign = [one.name for one in site.rglob("*.html") if loaded.search(one.read_text(encoding="utf-8"))]
    assert not foreign


def test_each_command_has_a_manual_page_that_roff_reads(tmp_path: Path) -> None:
    script = str(ROOT / "scripts/man_pages.py")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
    subprocess.run([sys.executable, script, str(tmp_path)], cwd=ROOT, env=environment, check=True, timeout=100)
    written = {one.name for one in tmp_path.iterdir()}
    assert written == {"vgpuctl.1", *(f"vgpuctl-{file_name(name)}.1" for name in COMMANDS)}
    command = ["groff", "-man", "-ww", "-Wbreak", "-Tutf8", "-z", *sorted(map(str, tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stderr == ""
    assert [one.name for one in tmp_path.iterdir() if "\b" in one.read_text(encoding="utf-8")] == []
    page = (tmp_path / "vgpuctl-show-config.1").read_text(encoding="utf-8")
    for part in ('"2026-09-21"', ".SH EXAMPLES", '"OPTIONS OF THE CONNECTION"', r"\fB\-\-log\-file FILE\fR"):
        assert part in page
