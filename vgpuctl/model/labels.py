# SPDX-License-Identifier: Apache-2.0
"""Labels of VMs and nodes by the rules of Kubernetes, and selectors of objects by their labels.

Source: kubernetes.io/docs/concepts/overview/working-with-objects/labels.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.errors import UsageError
from vgpuctl.model.printable import printable

MOST_LABELS = 64
"""Labels that one VM has at most."""
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_KEY = re.compile(rf"(?:{_PREFIX}/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")

Labels = tuple[tuple[str, str], ...]
"""Key and value of each label, sorted by key; each key once."""


def parse_label_key(text: str, /, *, what: str = "label") -> str:
    """Read the key of a label or taint by the rules of Kubernetes: `NAME` or `DOMAIN/NAME`. Raises UsageError."""
    if _KEY.fullmatch(text) is None:
        raise UsageError(
            f"{what}: '{printable(text[:80])}' is no key of a Kubernetes label",
            hint="write NAME or DOMAIN/NAME, the name of 1 to 63 letters, digits, '.', '-' and '_'",
        )
    return text


def parse_label_value(text: str, /, *, what: str = "label") -> str:
    """Read the value of a label or taint by the rules of Kubernetes. Raises UsageError."""
    if _VALUE.fullmatch(text) is None:
        raise UsageError(
            f"{what}: '{printable(text[:80])}' is no value of a Kubernetes label",
            hint="at most 63 letters, digits, '.', '-' and '_', the first and last a letter or digit; or nothing",
        )
    return text


def parse_label(text: str, /, *, what: str = "label") -> tuple[str, str]:
    """Read `KEY=VALUE`. Raises UsageError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{what}: {text[:80]!a} is no label", hint="write KEY=VALUE")
    return parse_label_key(key, what=what), parse_label_value(value, what=what)


def check_labels(labels: Labels, *, what: str) -> None:
    """Refuse more labels than a VM may have. Raises UsageError."""
    if len(labels) > MOST_LABELS:
        raise UsageError(f"{what} has {len(labels)} labels", hint=f"a VM has at most {MOST_LABELS}")


@dataclass(frozen=True)
class LabelChange:
    """Labels to set, and keys to remove."""

    set: Labels
    removed: frozenset[str]

    def of(self, labels: Labels) -> Labels:
        """The labels after the change."""
        kept = {key: value for key, value in labels if key not in self.removed}
        return tuple(sorted({**kept, **dict(self.set)}.items()))

    def replaced(self, labels: Labels) -> list[str]:
        """The labels that have another value now: `env=dev`."""
        wanted = dict(self.set)
        return [f"{key}={value}" for key, value in labels if wanted.get(key, value) != value]


def is_label_change(text: str) -> bool:
    """True for `KEY=VALUE` and `KEY-`, which no name of a VM is like."""
    return "=" in text or text.endswith("-")


def parse_label_change(texts: Iterable[str]) -> LabelChange:
    """Read `KEY=VALUE` and `KEY-`. Raises UsageError, also for a key that is named twice."""
    wanted: dict[str, str] = {}
    removed: set[str] = set()
    for text in texts:
        if "=" in text:
            key, value = parse_label(text)
        else:
            key, value = parse_label_key(text.removesuffix("-")), ""
        if key in wanted or key in removed:
            raise UsageError(f"label {key} is named twice", hint="set it, or remove it with KEY-")
        if "=" in text:
            wanted[key] = value
        else:
            removed.add(key)
    return LabelChange(tuple(sorted(wanted.items())), frozenset(removed))


@dataclass(frozen=True)
class _Requirement:
    """One condition. values: of which the label has one; None for any value. is_met: False to turn it round."""

    key: str
    values: frozenset[str] | None
    is_met: bool = True

    def fits(self, labels: Mapping[str, str]) -> bool:
        has = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return has is self.is_met


@dataclass(frozen=True)
class Selector:
    """Conditions on labels, which all have to hold. text: as it was written."""

    text: str
    requirements: tuple[_Requirement, ...]

    def fits(self, labels: Labels) -> bool:
        """True if an object with these labels is selected."""
        found = dict(labels)
        return all(one.fits(found) for one in self.requirements)


_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z0-9._/-]+)|(?P<sign>!=|==|=|!|,|\(|\)))")
_HINT = "write KEY=VALUE, KEY!=VALUE, KEY, !KEY, KEY in (A,B) or KEY notin (A,B), with commas between them"


def parse_selector(text: str) -> Selector:
    """Read a selector as `kubectl` does: `env=prod,tier!=web,gpu,!old,zone in (a,b),rack notin (r1)`.

    `!=` and `notin` also select objects without the key. Raises UsageError.
    """
    tokens = _Tokens(list(_tokens(text)), text)
    found = [tokens.requirement()]
    while tokens.take(","):
        found.append(tokens.requirement())
    if tokens.left:
        raise tokens.refuse()
    return Selector(text, tuple(found))


def _tokens(text: str) -> Iterator[str]:
    position, text = 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise UsageError(f"--selector {text[:200]!a}: {text[position:].strip()[:20]!a} cannot be read", hint=_HINT)
        yield match["word"] or match["sign"]
        position = match.end()


class _Tokens:
    """The remaining tokens of a selector."""

    def __init__(self, left: Sequence[str], text: str) -> None:
        self.left = list(left)
        self._text = text

    def refuse(self) -> UsageError:
        """The error at the next token."""
        where = f"before {self.left[0]!a}" if self.left else "at its end"
        return UsageError(f"--selector {self._text[:200]!a} cannot be read {where}", hint=_HINT)

    def take(self, *wanted: str) -> str | None:
        """The next token if it is one of these; None for another."""
        return self.left.pop(0) if self.left and self.left[0] in wanted else None

    def requirement(self) -> _Requirement:
        """Read one condition."""
        if self.take("!"):
            return _Requirement(self._key(), None, is_met=False)
        key = self._key()
        sign = self.take("=", "==", "!=", "in", "notin")
        if sign is None:
            return _Requirement(key, None)
        is_met = sign not in ("!=", "notin")
        if sign not in ("in", "notin"):
            return _Requirement(key, frozenset({self._value()}), is_met)
        if self.take("(") is None:
            raise self.refuse()
        values = {self._value()}
        while self.take(","):
            values.add(self._value())
        if self.take(")") is None:
            raise self.refuse()
        return _Requirement(key, frozenset(values), is_met)

    def _key(self) -> str:
        if not self.left or _KEY.fullmatch(self.left[0]) is None:
            raise self.refuse()
        return self.left.pop(0)

    def _value(self) -> str:
        if not self.left or self.left[0] in (",", ")"):
            return ""
        if _VALUE.fullmatch(self.left[0]) is None:
            raise self.refuse()
        return self.left.pop(0)
