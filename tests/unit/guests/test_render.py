# SPDX-License-Identifier: Apache-2.0
"""The domain template: golden files, libvirt's schema, and proof that the goldens leave nothing out."""

import os
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pytest
from lxml import etree

from tests.unit.guests.all_cases import CASES
from vgpuctl.guests import templating
from vgpuctl.guests.domain.metadata import NAMESPACE
from vgpuctl.guests.domain.render import BUSES, render_domain
from vgpuctl.guests.domain.view import DomainView

GOLDENS = Path(__file__).parents[2] / "data/domains"
SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


@pytest.fixture(scope="module")
def schema() -> etree.RelaxNG:
    if not SCHEMA.exists():
        pytest.skip(f"libvirt's schema {SCHEMA} is not installed (package libvirt0)")
    return etree.RelaxNG(etree.parse(str(SCHEMA)))


@pytest.mark.parametrize("name", CASES)
def test_each_case_renders_its_golden_file(name: str, *, regenerate: bool) -> None:
    rendered = render_domain(CASES[name])
    golden = GOLDENS / f"{name}.xml"
    if regenerate:
        golden.write_text(rendered)
    assert rendered == golden.read_text()


def test_there_is_no_golden_file_without_a_case() -> None:
    assert sorted(path.stem for path in GOLDENS.glob("*.xml")) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_each_case_passes_the_schema_of_libvirt(name: str, schema: etree.RelaxNG) -> None:
    schema.assertValid(etree.fromstring(render_domain(CASES[name]).encode()))


@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_every_case_passes_the_schemas_of_newer_libvirt(suite: str) -> None:
    caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    cache = os.environ.get("VGPUCTL_SCHEMA_CACHE") or Path(caches, "vgpuctl/libvirt-schemas")
    path = Path(cache, suite, "domain.rng")
    if not path.exists():
        pytest.skip(f"{path} is not there; scripts/libvirt-schemas fetches it from Debian's {suite}")
    schema = etree.RelaxNG(etree.parse(str(path)))
    for view in CASES.values():
        schema.assertValid(etree.fromstring(render_domain(view).encode()))


def test_rendering_twice_gives_the_same_text() -> None:
    for view in CASES.values():
        assert render_domain(view) == render_domain(view)


def test_what_needs_escaping_arrives_unchanged() -> None:
    view = CASES["characters_that_need_escaping"]
    root = etree.fromstring(render_domain(view).encode())
    assert view.direct_kernel is not None and view.nics and view.disks and view.media
    assert root.findtext("name") == view.name
    assert root.findtext("os/kernel") == view.direct_kernel.kernel
    assert root.findtext("os/initrd") == view.direct_kernel.initrd
    assert root.findtext("os/cmdline") == view.direct_kernel.command_line
    sources = [dict(source.attrib) for source in root.findall("devices/*/source")]
    assert {"network": view.nics[0].network} in sources
    assert {"file": view.disks[0].path} in sources
    assert {"file": view.media[0].path} in sources
    assert root.findtext(f"metadata/{{{NAMESPACE}}}vm/{{{NAMESPACE}}}request") == view.metadata.request


def test_every_field_of_the_view_shows_in_some_golden() -> None:
    """Change each leaf of each view: a field that never changes the XML would be dead."""
    seen: dict[str, bool] = {}
    for view in CASES.values():
        before = render_domain(view)
        for path, changed in _changed_views(view, type(view).__name__):
            seen[path] = seen.get(path, False) or _render_or_error(changed) != before
    assert [path for path, shows in seen.items() if not shows] == []
    assert "DomainView.hostdevs.source.function" in seen
    assert "DomainView.numa.cells.memory_mib" in seen


@pytest.mark.parametrize("forced", ["true", "false"])
def test_every_branch_of_the_template_is_taken_by_some_golden(forced: str) -> None:
    """Fix each `if` to one side: where no golden changes, the other side was never taken."""
    source = resources.files("vgpuctl.templates").joinpath("domain.xml.j2").read_text()
    environment = templating.environment()
    conditions = list(re.finditer(r"\{% if (?P<condition>.+?) %\}", source))
    assert len(conditions) > 10
    goldens = {name: render_domain(view) for name, view in CASES.items()}
    dead = []
    for match in conditions:
        changed = source[: match.start("condition")] + forced + source[match.end("condition") :]
        template = environment.from_string(changed)
        if not any(_differs(template, CASES[name], text) for name, text in goldens.items()):
            dead.append(match["condition"])
    assert dead == []


def test_an_unknown_name_in_a_template_is_an_error() -> None:
    template = templating.environment().from_string("{{ domain.colour }}")
    with pytest.raises(jinja2.UndefinedError):
        template.render(domain=CASES["mdev"])


def _differs(template: jinja2.Template, view: DomainView, before: str) -> bool:
    try:
        text = template.render(domain=view, buses=BUSES, metadata_namespace=NAMESPACE)
    except (jinja2.UndefinedError, TypeError):
        return True
    return text != before


def _render_or_error(view: DomainView) -> str:
    try:
        return render_domain(view)
    except jinja2.UndefinedError as error:
        return str(error)


def _changed_views(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Give (path, a copy with that one leaf changed) for every leaf of a tree of dataclasses and tuples."""
    for field in fields(value):
        for inner_path, changed in _changed_values(getattr(value, field.name), f"{path}.{field.name}"):
            yield inner_path, replace(value, **{field.name: changed})


def _changed_values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        yield from _changed_views(value, path)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            for inner_path, changed in _changed_values(item, path):
                yield inner_path, (*value[:index], changed, *value[index + 1 :])
    elif isinstance(value, Enum):
        yield path, next(other for other in type(value) if other is not value)
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, int):
        yield path, value + 1
    elif isinstance(value, str):
        yield path, value + "x"
