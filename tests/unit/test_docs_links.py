# SPDX-License-Identifier: Apache-2.0
"""Links, files and functions that the written pages name are there, and docs/README.md names every page."""

import ast
import re
from pathlib import Path

from tests.unit.uses_of_names import nodes, uses

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LARGEST_PICTURE = 150_000
"""Bytes of one."""
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")
_CODE = re.compile(r"`((?:\w+/)+\w+\.py)(?::(\w+))?`")
_PLACES = (ROOT, ROOT / "vgpuctl", ROOT / "lab", ROOT / "lab" / "vgpuctl_lab")
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


def test_each_picture_is_small_and_named_by_a_page() -> None:
    pictures = {one.resolve(): one.stat().st_size for one in (DOCS / "images").iterdir()}
    named = {
        (page.parent / link).resolve()
        for page in _pages()
        for link in _PICTURE.findall(page.read_text(encoding="utf-8"))
    }
    assert pictures and set(pictures) == named, "`make pictures` takes them all; delete one that no page shows"
    assert max(pictures.values()) < LARGEST_PICTURE


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {one.relative_to(DOCS).as_posix() for one in (*DOCS.glob("*.md"), *DOCS.glob("uses/*.md"))} - {"README.md"}
    missing = sorted(pages - set(_LINK.findall(index)))
    assert not missing, f"docs/README.md does not name {', '.join(missing)}"


def test_every_file_and_function_of_the_code_that_a_page_names_is_there() -> None:
    gone = []
    for page in _pages():
        for path, name in _CODE.findall(page.read_text(encoding="utf-8")):
            found = next((place / path for place in _PLACES if (place / path).is_file()), None)
            is_pattern = re.search("[A-Z]{3}", path) is not None
            if not is_pattern and (found is None or (name and name not in _names(found))):
                gone.append(f"{page.relative_to(ROOT)}: {path}{f':{name}' * bool(name)}")
    assert gone == []


def _names(path: Path) -> set[str]:
    """The names of functions, methods, classes and values that a file defines."""
    kinds = ast.FunctionDef | ast.ClassDef
    defined = {one.name for one in nodes(path) if isinstance(one, kinds)}
    return defined | {one.id for one in nodes(path) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def test_the_makefile_alone_states_how_long_its_targets_take() -> None:
    stated = re.compile(r"`make [a-z-]+`[^.|]* (?:minutes|hours?)\b|\b(?:minutes|hours?)\b[^.|]*`make [a-z-]+`")
    made = re.compile(r"<!-- (\w+): made by scripts/generate_docs.py -->.*?<!-- end of \1 -->", re.S)
    pages = {page: made.sub("", page.read_text(encoding="utf-8")) for page in _pages()}
    twice = [
        f"{page.name}: {line}" for page, text in pages.items() for line in text.splitlines() if stated.search(line)
    ]
    assert twice == []


def test_the_page_of_the_architecture_has_the_callers_of_release_shares() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("### The way back: release_shares")[2]
    told = re.findall(r"^\| `(usecases/[^`]+)` \|", text.partition("\n## ")[0], re.M)
    assert sorted(told) == sorted({one.place for one in uses() if one.name == "release_shares" and one.is_call})
