# SPDX-License-Identifier: Apache-2.0
"""Links of the written pages lead somewhere, and docs/README.md names every page."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"(?m)^#+ +(.+)$")


def _pages() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *DOCS.glob("*.md"),
        *DOCS.glob("uses/*.md"),
        *DOCS.glob("decisions/*.md"),
    ]


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in headings}


def test_every_link_leads_to_a_page_and_its_heading() -> None:
    broken = []
    for page in _pages():
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = page if not path else page.parent / path
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {one.relative_to(DOCS).as_posix() for one in (*DOCS.glob("*.md"), *DOCS.glob("uses/*.md"))} - {"README.md"}
    missing = sorted(pages - set(_LINK.findall(index)))
    assert not missing, f"docs/README.md does not name {', '.join(missing)}"
