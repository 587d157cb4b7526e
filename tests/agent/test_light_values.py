# SPDX-License-Identifier: Apache-2.0
"""The light dataclasses of the agent's file do what the standard library's do, as far as the agent uses them."""

import dataclasses
import pkgutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from vgpuctl.agent import wire
from vgpuctl.agent.wire import light_values, values
from vgpuctl.hosts.bundle import build_agent


def _classes(module: Any) -> tuple[Any, Any]:
    """A frozen class and an exception, made by `module`."""

    @module.dataclass(frozen=True)
    class Size:
        op: ClassVar[str] = "size"
        name: str
        count: int = 1
        secret: str | None = module.field(default=None, repr=False)
        parts: dict[str, int] = module.field(default_factory=dict)

    @module.dataclass(eq=False)
    class Trouble(Exception):
        code: str
        path: str | None = None

        def __str__(self) -> str:
            return self.code

    return Size, Trouble


def _answer(use: Callable[[Any, Any, Any], object], module: Any) -> object:
    """The result of a use of the two classes, or the kind of its error."""
    try:
        return use(*_classes(module), module)
    except (AttributeError, TypeError) as error:
        return TypeError if isinstance(error, TypeError) else AttributeError


@pytest.mark.parametrize(
    "use",
    [
        lambda size, trouble, module: repr(size("a", 2, secret="s")).rpartition(".")[2],
        lambda size, trouble, module: size("a") == size(name="a", count=1),
        lambda size, trouble, module: size("a") == size("b"),
        lambda size, trouble, module: size("a") == ("a", 1, None, {}),
        lambda size, trouble, module: size("a").parts is size("a").parts,
        lambda size, trouble, module: hash(size("a", parts=())) == hash(size("a", parts=())),
        lambda size, trouble, module: len({size("a", parts=()), size("a", parts=()), size("b", parts=())}),
        lambda size, trouble, module: hash(size("a")),
        lambda size, trouble, module: setattr(size("a"), "count", 2),
        lambda size, trouble, module: delattr(size("a"), "count"),
        lambda size, trouble, module: vars(module.replace(size("a"), count=5)),
        lambda size, trouble, module: module.replace(size("a"), colour="red"),
        lambda size, trouble, module: size(),
        lambda size, trouble, module: size("a", 1, None, {}, 5),
        lambda size, trouble, module: size("a", name="a"),
        lambda size, trouble, module: size("a", colour="red"),
        lambda size, trouble, module: [one.name for one in module.fields(size)],
        lambda size, trouble, module: [one.name for one in module.fields(size("a")) if one.default is module.MISSING],
        lambda size, trouble, module: (
            module.is_dataclass(size),
            module.is_dataclass(size("a")),
            module.is_dataclass(1),
        ),
        lambda size, trouble, module: (size.op, size.count, size("a").op, hasattr(size, "parts")),
        lambda size, trouble, module: str(trouble("held", path="/p")),
        lambda size, trouble, module: trouble("held") == trouble("held"),
        lambda size, trouble, module: setattr(trouble("held"), "path", "/q"),
        lambda size, trouble, module: vars(module.replace(trouble("held", "/p"), code="other")),
    ],
)
def test_both_do_the_same(use: Callable[[Any, Any, Any], object]) -> None:
    assert _answer(use, light_values) == _answer(use, dataclasses)


def test_the_light_ones_offer_what_the_agent_imports() -> None:
    assert all(hasattr(light_values, name) for name in values.__all__)


def test_the_agents_file_starts_without_the_standard_ones(tmp_path: Path) -> None:
    file = tmp_path / "agent.pyz"
    file.write_bytes(build_agent().data)
    names = [f"vgpuctl.agent.wire.{each.name}" for each in pkgutil.iter_modules(wire.__path__)]
    wanted = [name for name in names if not name.endswith("light_values")]
    program = (
        f"import sys\nsys.path.insert(0, {str(file)!r})\nimport {', '.join(wanted)}, vgpuctl.agent.facts.host_facts"
    )
    program += "\nassert not {'dataclasses', 'inspect'} & set(sys.modules), sorted(sys.modules)"
    done = subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
