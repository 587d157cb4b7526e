# SPDX-License-Identifier: Apache-2.0
"""Scenarios: curves of measures in a YAML file, for devices that are named when it is played (docs/lab.md)."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from vgpuctl.agent.wire.measures import GPU, INSTANCE, VGPU, VM, Measure, measure
from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.times import parse_duration
from vgpuctl.specs.document import read_document
from vgpuctl.specs.value import Value
from vgpuctl.trusted_files import NAMED
from vgpuctl.user_folders import expanded
from vgpuctl_lab.simulated.machine.curves import Curve, Curves

_FRAMEBUFFER = "framebuffer_used_bytes"
_PER_CENT = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,6})?)%")
_OTHERS = "others"
_LARGEST = 1e18
_LONGEST_S = 10 * 366 * 86_400
_MOST_CURVES, _MOST_POINTS = 1000, 1000


@dataclass(frozen=True)
class Target:
    """One object of a host whose measures a scenario can play. name: as in a curves file. gpu: the GPU's address.

    framebuffer_bytes: the whole of which a percentage is a part, 0 where it is unknown.
    """

    kind: str
    name: str
    gpu: str = ""
    framebuffer_bytes: int = 0


@dataclass(frozen=True)
class ScenarioCurve:
    """One curve of a scenario. selector: of its targets. points: (seconds, value, unit of the value)."""

    kind: str
    selector: str
    measure: str
    repeat_s: float
    is_split: bool
    points: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class Scenario:
    """A scenario. about: one sentence."""

    name: str
    about: str
    curves: tuple[ScenarioCurve, ...]


def shipped() -> list[str]:
    """The names of the scenarios that come with the lab."""
    folder = resources.files("vgpuctl_lab") / "scenarios"
    return sorted(one.name.removesuffix(".yml") for one in folder.iterdir() if one.name.endswith(".yml"))


def read_scenario(name_or_path: str) -> Scenario:
    """Read a shipped scenario by its name, or a file. Raises UsageError with file, line and key."""
    path = expanded(name_or_path)
    if name_or_path in shipped():
        path = Path(str(resources.files("vgpuctl_lab") / "scenarios" / f"{name_or_path}.yml"))
    elif not path.is_file():
        raise UsageError(
            f"there is no scenario {name_or_path!r}, and no such file", hint=f"scenarios: {', '.join(shipped())}"
        )
    try:
        document = read_document(str(path), NAMED)
        if document.warnings:
            raise InventoryError(document.warnings[0], hint="write each key once")
        root = Value(document.data, document.origin(), "", name="scenario", subject="a scenario")
        entries = root.fields(("about", "curves"), required=("about", "curves"))
        curves = entries["curves"].items()
        if not 0 < len(curves) <= _MOST_CURVES:
            raise entries["curves"].refuse(f"has {len(curves)} curves", hint=f"give it 1 to {_MOST_CURVES}")
        return Scenario(path.stem, entries["about"].text(), tuple(_read_curve(one) for one in curves))
    except InventoryError as error:
        raise UsageError(error.message, hint=error.hint or "docs/lab.md shows a scenario") from error


def compile_scenario(scenario: Scenario, targets: Sequence[Target], *, started_at: float) -> Curves:
    """The curves of a scenario for the objects that a host has now. Raises UsageError for a target it has not."""
    found: dict[tuple[str, str], Curve] = {}
    for one in scenario.curves:
        chosen = _choose(one, targets)
        for target in chosen:
            parts = len(chosen) if one.is_split else 1
            points = tuple((at, _value(one, value, unit, target, started_at) / parts) for at, value, unit in one.points)
            found[target.name, one.measure] = Curve(points, one.repeat_s)
    return Curves(started_at, found)


def _read_curve(value: Value) -> ScenarioCurve:
    entries = value.fields(("target", "measure", "points", "repeat", "split"), required=("target", "measure", "points"))
    kind, _, selector = entries["target"].text().partition(":")
    if kind not in (GPU, INSTANCE, VGPU, VM):
        kinds = ", ".join((GPU, INSTANCE, VGPU, VM))
        raise entries["target"].refuse(
            f"is of no kind {kind!r}", hint=f"write one of {kinds}; then :1, :others or its name"
        )
    name = entries["measure"].text()
    _check_measure(entries["measure"], kind, name)
    points = sorted(_read_point(one) for one in entries["points"].mapping().items())
    if not 0 < len(points) <= _MOST_POINTS:
        raise entries["points"].refuse(f"has {len(points)} points", hint=f"give it 1 to {_MOST_POINTS}")
    if any(left[0] == right[0] for left, right in itertools.pairwise(points)):
        raise entries["points"].refuse("has a time twice", hint="write each time once")
    return ScenarioCurve(
        kind,
        selector,
        name,
        _read_seconds(entries["repeat"]) if "repeat" in entries else 0.0,
        "split" in entries and entries["split"].truth(),
        tuple(points),
    )


def _check_measure(value: Value, kind: str, text: str) -> Measure:
    name, slash, label = text.partition("/")
    try:
        known = measure(kind, name)
    except KeyError:
        raise value.refuse(f"{name!r} is no measure of {kind}", hint="docs/telemetry.md lists them") from None
    if bool(slash) != bool(known.labels) or bool(slash) != bool(label) or len(text.split()) != 1:
        wanted = f"{name}/{known.labels[0].upper()}" if known.labels else name
        raise value.refuse(f"{text!r} has not the form {wanted}", hint="docs/telemetry.md lists measures and labels")
    return known


def _read_point(entry: tuple[str, Value]) -> tuple[float, float, str]:
    time, value = entry
    with value.located():
        at = _seconds(time)
        text = str(value.content).strip()
        per_cent = _PER_CENT.fullmatch(text)
        if per_cent is not None:
            return at, float(per_cent[1]) / 100, "%"
        if text.startswith("start+"):
            return at, _seconds(text.removeprefix("start+")), "start"
    return at, value.number(0, _LARGEST), ""


def _read_seconds(value: Value) -> float:
    with value.located():
        return _seconds(str(value.content))


def _seconds(text: str) -> float:
    """A time since the start: `90`, `90s`, `2m`."""
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        return parse_duration(text, what="time")
    if not 0 <= seconds <= _LONGEST_S:
        raise UsageError(f"the time {text!r} is not from 0 to {_LONGEST_S} seconds")
    return seconds


def _choose(curve: ScenarioCurve, targets: Sequence[Target]) -> list[Target]:
    """The targets of a curve: all of a kind, the first, those beside the first on its GPU, or one by its name."""
    there = [one for one in targets if one.kind == curve.kind]
    if curve.selector == "":
        chosen = there
    elif curve.selector.isdecimal():
        number = int(curve.selector)
        chosen = there[number - 1 : number] if number else []
    elif curve.selector == _OTHERS:
        return [one for one in there[1:] if one.gpu == there[0].gpu]
    else:
        chosen = [one for one in there if one.name == f"{curve.kind}:{curve.selector}"]
    if not chosen:
        names = ", ".join(one.name for one in there[:8]) or f"no {curve.kind}: start a VM with a vGPU first"
        wanted = f"{curve.kind}:{curve.selector}" if curve.selector else curve.kind
        raise UsageError(f"the host has no {wanted}", hint=f"it has {names}")
    return chosen


def _value(curve: ScenarioCurve, value: float, unit: str, target: Target, started_at: float) -> float:
    if unit == "start":
        return started_at + value
    if unit == "%" and curve.measure == _FRAMEBUFFER:
        if not target.framebuffer_bytes:
            raise UsageError(f"the framebuffer of {target.name} is unknown", hint="write bytes instead of per cent")
        return value * target.framebuffer_bytes
    return value
