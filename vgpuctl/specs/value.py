# SPDX-License-Identifier: Apache-2.0
"""One value that a user wrote, read with its type and refused with the file and line that set it."""

import contextlib
import difflib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.masking import holds_command, is_secret_name
from vgpuctl.specs.origin import Origin, UntrustedText

E = TypeVar("E", bound=StrEnum)

_TEMPLATE_MARKS = ("{{", "{%", "{#")
_KINDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    UntrustedText: "text",
    list: "a list",
    dict: "a mapping",
    type(None): "empty",
}


_QUOTE = {
    "True": "quote it: `on`, `yes` and `true` are words of YAML",
    "False": "quote it: `off`, `no` and `false` are words of YAML",
}
_LIKE_A_KEY = re.compile(r"[\w ./-]{1,64}")


@dataclass(frozen=True)
class Value:
    """A value, the place of its variable, its path inside the variable, and that path in words.

    subject: what it all is, in words.
    """

    content: object
    variable: Origin
    host: str
    way: tuple[object, ...] = ()
    name: str = ""
    subject: str = ""

    @property
    def origin(self) -> Origin:
        """Where this value was written."""
        return self.variable.within(*self.way)

    @property
    def words(self) -> str:
        """Its name, and the host's where it has one: `vgpu.gpus of host 'gpu1'`."""
        return f"{self.name} of host {self.host!r}" if self.host else self.name

    @property
    def shown(self) -> str:
        """Its content with a comma, for errors; nothing for a collection, and for what may be or hold a password."""
        key = next((one for one in reversed(self.way) if isinstance(one, str)), self.name.rpartition(".")[2])
        is_left = self.content is None or isinstance(self.content, list | dict)
        return "" if is_left or is_secret_name(key) or holds_command(key) else f"{self.content!r}, "

    def refuse(self, what: str, *, hint: str | None = None) -> InventoryError:
        """Build the error `FILE:LINE: NAME of host 'HOST' WHAT`."""
        return InventoryError(f"{self.origin}: {self.words} {what}", hint=hint)

    def mapping(self) -> "dict[str, Value]":
        """The entries of a mapping with text keys, each as a value of its own."""
        return self._entries

    def mapping_or_nothing(self) -> "dict[str, Value]":
        """The same, none where nothing is written after the key: programs in Go read that as an empty mapping."""
        return {} if self.content is None else self._entries

    @cached_property
    def _entries(self) -> "dict[str, Value]":
        if not isinstance(self.content, dict):
            if not self.way and not self.host:  # a whole file, perhaps another than was meant: none of it is shown
                raise self.refuse(f"is {kind_of(self.content)}, not a mapping")
            raise self._wrong_type("a mapping")
        for key in self.content:
            if not isinstance(key, str):
                place = replace(self._child(key), name=self.name)
                raise place.refuse(f"has a key that is {kind_of(key)}, not text", hint=_QUOTE.get(str(key), "quote it"))
        return {str(key): self._child(key) for key in self.content}

    @contextlib.contextmanager
    def located(self) -> "Iterator[None]":
        """Add file and line to a UsageError that a check raises without knowing them."""
        try:
            yield
        except UsageError as error:
            raise InventoryError(f"{self.origin}: {error.message}", hint=error.hint) from error

    def named(self, known: Collection[str]) -> "dict[str, Value]":
        """The entries of a mapping, also these keys that were written with `-` for `_`.

        Raises InventoryError for a key in both spellings.
        """
        found: dict[str, Value] = {}
        for written, value in self.mapping().items():
            plain = written.replace("-", "_")
            key = plain if written not in known and plain in known else written
            if key in found:
                raise value.refuse(f"says the same as {found[key].name}", hint="write one of them")
            found[key] = value
        return found

    def fields(
        self,
        known: Sequence[str],
        *,
        required: Collection[str] = (),
        suggest: Callable[[str], str | None] | None = None,
    ) -> "dict[str, Value]":
        """The entries of a mapping with these keys at most. Raises InventoryError for another and for a missing one.

        suggest: the key that was meant by another; the nearest one without it.
        """
        entries = self.named(known)
        for key, value in entries.items():
            if key not in known:
                nearest = difflib.get_close_matches(key, known, n=1)
                meant = suggest(key) if suggest is not None else nearest[0] if nearest else None
                hint = f"did you mean {meant}?" if meant else f"it can have {', '.join(known)}"
                if not _LIKE_A_KEY.fullmatch(key):  # perhaps a line of another file, such as one of passwords
                    raise InventoryError(
                        f"{value.origin}: {self.words} has a key that is not one of {self.subject}", hint=hint
                    )
                raise value.refuse(f"is not a key of {self.subject}", hint=hint)
        for key in required:
            if key not in entries:
                raise self.refuse(f"has no {key!r}")
        return entries

    def items(self) -> "list[Value]":
        """The items of a list, each as a value of its own."""
        if not isinstance(self.content, list):
            raise self._wrong_type("a list")
        return [self._child(index) for index in range(len(self.content))]

    def text(self, *, hint: str | None = None) -> str:
        """A text of one line that is not empty."""
        if not isinstance(self.content, str):
            raise self._wrong_type("text", hint=hint or "quote it to make it text")
        if not self.content.strip() or "\n" in self.content or "\0" in self.content:
            raise self.refuse(f"is {self.shown}not one line of text", hint=hint)
        if not isinstance(self.content, UntrustedText) and any(mark in self.content for mark in _TEMPLATE_MARKS):
            raise self.refuse(
                "is a jinja template, which vgpuctl does not evaluate",
                hint="write the value itself, or under `!unsafe` when the braces belong to it",
            )
        return str(self.content)

    def document(self) -> str:
        """A text of any number of lines, kept as it is."""
        if not isinstance(self.content, str):
            raise self._wrong_type("text", hint="write it as a block: `|`, and the text indented below")
        return str(self.content)

    def whole(self, lowest: int, highest: int) -> int:
        """A whole number in these bounds."""
        if not isinstance(self.content, int) or isinstance(self.content, bool):
            raise self._wrong_type("a whole number")
        if not lowest <= self.content <= highest:
            raise self.refuse(f"is {self.content}", hint=f"it can be {lowest} to {highest}")
        return self.content

    def number(self, lowest: float, highest: float) -> float:
        """A number in these bounds."""
        if not isinstance(self.content, int | float) or isinstance(self.content, bool):
            raise self._wrong_type("a number")
        if not lowest <= self.content <= highest:
            raise self.refuse(f"is {self.content}", hint=f"it can be {lowest:g} to {highest:g}")
        return float(self.content)

    def truth(self) -> bool:
        """True or false."""
        if not isinstance(self.content, bool):
            raise self._wrong_type("true or false")
        return self.content

    def choice(self, choices: type[E]) -> E:
        """One member of a closed set."""
        members = [member.value for member in choices]
        # YAML 1.1 reads a bare `off` as false, and `on` as true.
        content = {False: "off", True: "on"}[self.content] if isinstance(self.content, bool) else self.content
        if content not in members:
            content = self.content
        if not isinstance(content, str):
            raise self._wrong_type("text", hint=f"it can be {', '.join(members)}")
        try:
            return choices(content)
        except ValueError as exc:
            near = difflib.get_close_matches(content, members, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it can be {', '.join(members)}"
            raise self.refuse(f"is {content!r}", hint=hint) from exc

    def _child(self, key: object) -> "Value":
        assert isinstance(self.content, dict | list)
        content = self.content[key]  # type: ignore[call-overload]  # a key or an index of this very value
        name = f"{self.name}[{key}]" if isinstance(self.content, list) else f"{self.name}.{key}"
        return Value(content, self.variable, self.host, (*self.way, key), name, self.subject)

    def _wrong_type(self, wanted: str, *, hint: str | None = None) -> InventoryError:
        return self.refuse(f"is {self.shown}{kind_of(self.content)}, not {wanted}", hint=hint)


def kind_of(value: object) -> str:
    """The type of a value in words."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")
