# SPDX-License-Identifier: Apache-2.0
"""The one reader of YAML and JSON files: bounded in size, depth and expansion, and every refusal has a line.

Files come from tenants too. libyaml's composer recurses in C, so deep nesting ends the process; merge keys and aliases
multiply (CVE-2017-18640, "billion laughs"); PyYAML's constructors let `2024-99-99` or `!!float x` through to Python.
The events of a document are therefore counted before anything is built from them.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vgpuctl.agent.wire.strict_json import DEEPEST, LONGEST_NUMBER, JsonRefused, NotJson, read_strict_json
from vgpuctl.trusted_files import LONGEST_WAIT_S, Trust, opened, read_whole

MOST_BYTES = 16 * 2**20
LONGEST_STDIN_WAIT_S = 300.0
STDIN = "-"
"""The path that means standard input."""
MOST_NODES = 1_000_000
"""Of a document with every alias and merge key written out."""
_SHOWN = 40
_NUMBERS = tuple(f"tag:yaml.org,2002:{name}" for name in ("int", "float"))
_SCALARS = (*_NUMBERS, *(f"tag:yaml.org,2002:{name}" for name in ("timestamp", "bool", "null", "binary", "value")))
_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Malformed(ValueError):
    """A file that is not read. line, column: from 1, None when it is about the whole file; hint: what to do."""

    def __init__(
        self, what: str, line: int | None = None, hint: str | None = None, *, column: int | None = None
    ) -> None:
        super().__init__(what if line is None else f"line {line}: {what}")
        self.what = what
        self.line = line
        self.column = column
        self.hint = hint


def read_bounded(path: Path, trust: Trust) -> bytes:
    """Read a file or pipe of at most MOST_BYTES; `-` is standard input. trust: whose the file may be.

    Raises FileNotTrusted, and Malformed, also with what the system answered.

    A tenant can put a pipe in the place of a file: one that nobody writes to is given up.
    """
    try:
        if str(path) == STDIN:
            content = read_whole(0, MOST_BYTES + 1, longest_s=LONGEST_STDIN_WAIT_S)
        else:
            with opened(path, trust) as file:
                content = file.read(MOST_BYTES + 1, longest_s=LONGEST_WAIT_S)
    except (OSError, ValueError) as exc:  # ValueError: the name holds a NUL
        hint = "who writes to it?" if isinstance(exc, TimeoutError) else None
        raise Malformed(f"cannot be read: {getattr(exc, 'strerror', None) or exc}", hint=hint) from exc
    if len(content) > MOST_BYTES:
        raise Malformed(f"the file has more than {MOST_BYTES // 2**20} MiB", hint="is it the right file?")
    return content


def shown_name(path: Path | str) -> str:
    """The name of a file in errors."""
    return "stdin" if str(path) == STDIN else str(path)


def decode(content: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark. Raises Malformed."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        is_wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        hint = "the file is UTF-16; save it as UTF-8" if is_wide else None
        raise Malformed(f"not UTF-8: byte 0x{content[exc.start]:02x}", line, hint) from exc


def read_yaml(loader: Any, *, single: bool) -> list[Any]:
    """Read the documents of a loader's text, which `check` has passed.

    loader: a BoundedLoader of the text. single: a second document is an error. Raises yaml.YAMLError.
    """
    try:
        if single:
            return [loader.get_single_data()]
        documents = []
        while loader.check_data():
            documents.append(loader.get_data())
        return documents
    finally:
        loader.dispose()


@contextlib.contextmanager
def yaml_errors(text: str) -> Iterator[None]:
    """Turn what PyYAML raises over a text into Malformed."""
    try:
        yield
    except yaml.YAMLError as exc:
        raise _explain(text, exc) from exc


def read_documents(text: str) -> list[Any]:
    """Read every document of a YAML text as plain values. Raises Malformed."""
    with yaml_errors(text):
        check(text)
        return read_yaml(BoundedLoader(text), single=False)


def read_json(text: str, *, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Read one JSON document. hook: turns an object into its value. Raises NotJson and Malformed."""
    try:
        return read_strict_json(text, hook)
    except NotJson:
        raise
    except JsonRefused as exc:
        raise Malformed(str(exc), exc.line, column=exc.column) from exc


def check(text: str) -> None:
    """Refuse a YAML text that would cost too much to build. Raises Malformed and yaml.YAMLError."""
    budget = _Budget()
    for event in yaml.parse(text, Loader=_BaseLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            budget = _Budget()
        elif isinstance(event, yaml.CollectionStartEvent):
            budget.open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            budget.close(event)
        elif isinstance(event, yaml.AliasEvent):
            budget.repeat(event)
        elif isinstance(event, yaml.ScalarEvent):
            budget.count(event, _Extent(1, 0))
            if event.anchor is not None:
                budget.anchors[event.anchor] = _Extent(1, 0)


@dataclass(frozen=True)
class _Extent:
    """A node written out: how many nodes it is, and how many collections lie behind one another in it."""

    nodes: int
    depth: int


class _Budget:
    """The budget used by one document. anchors: extent of each anchor that has ended."""

    def __init__(self) -> None:
        self.anchors: dict[str, _Extent] = {}
        self._open: list[tuple[str | None, _Extent]] = []

    def open(self, event: Any) -> None:
        if len(self._open) >= DEEPEST:
            raise _too_deep(_line(event))
        if event.anchor is not None:
            self.anchors.pop(event.anchor, None)
        self._open.append((event.anchor, _Extent(1, 1)))

    def close(self, event: Any) -> None:
        anchor, extent = self._open.pop()
        if anchor is not None:
            self.anchors[anchor] = extent
        self.count(event, extent)

    def repeat(self, event: Any) -> None:
        if any(anchor == event.anchor for anchor, _ in self._open):
            raise Malformed(f"&{event.anchor} contains itself: *{event.anchor} stands inside it", _line(event))
        extent = self.anchors.get(event.anchor)
        if extent is not None:  # an anchor that is not there is the composer's error
            self.count(event, extent)

    def count(self, event: Any, inner: _Extent) -> None:
        if not self._open:
            return
        anchor, outer = self._open[-1]
        extent = _Extent(outer.nodes + inner.nodes, max(outer.depth, inner.depth + 1))
        if extent.nodes > MOST_NODES:
            raise Malformed(
                f"more than {MOST_NODES} values, with the aliases (*name) written out",
                _line(event),
                "write fewer aliases and merge keys, or split the file",
            )
        if len(self._open) - 1 + extent.depth > DEEPEST:
            raise _too_deep(_line(event))
        self._open[-1] = (anchor, extent)


class BoundedLoader(_BaseLoader):  # type: ignore[misc]  # one of two classes, chosen at run time
    """The safe loader, for text that `check` has passed; whatever a scalar cannot be is an error with its line."""


def _guarded(tag: str) -> Callable[[Any, Any], Any]:
    build = BoundedLoader.yaml_constructors.get(tag)

    def construct(loader: Any, node: Any) -> Any:
        try:
            if tag in _NUMBERS and isinstance(node, yaml.ScalarNode) and len(node.value) > LONGEST_NUMBER:
                what = f"a number of {len(node.value)} characters cannot be read"
                raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
            return build(loader, node) if build is not None else loader.construct_scalar(node)
        except yaml.YAMLError:
            raise
        except Exception as exc:
            # Neither the value nor the exception, which repeats it, is quoted: it may be a password.
            what = f"the value cannot be read as {tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from exc

    return construct


for _tag in _SCALARS:
    BoundedLoader.add_constructor(_tag, _guarded(_tag))


_LIBYAML_TOO_DEEP = "exceeded maximum nesting depth"
"""Of libyaml from 0.2.6 on (PyYAML 6.0.4): its parser ends at 1,000 levels of flow collections."""


# `*x`, `&x` and `!x` of a password that nobody quoted; tokens of YAML, tags of letters alone and single characters
# stay.
_QUOTED = re.compile(r"""(['"])(?!<[a-z ]+>\1|tag:yaml\.org,|![a-z_-]+\1|\\?[^'"]\1)[^'"]+\1""")


def _without_words(problem: str) -> str:
    return _QUOTED.sub("…", problem)


def _explain(text: str, exc: yaml.YAMLError) -> Malformed:
    if not isinstance(exc, yaml.MarkedYAMLError) or exc.problem_mark is None:
        position = getattr(exc, "position", 0)
        line = text.encode(errors="replace").count(b"\n", 0, position) + 1
        return Malformed(f"not valid YAML: {getattr(exc, 'reason', exc)}", line)
    mark = exc.problem_mark
    if exc.problem == _LIBYAML_TOO_DEEP:
        return _too_deep(mark.line + 1)
    lines = text.splitlines()
    written = lines[mark.line] if mark.line < len(lines) else ""
    context = f" ({_without_words(exc.context)})" if exc.context else ""
    problem = _without_words(exc.problem or "")
    hint = None
    if "\t" in written[: len(written) - len(written.lstrip())]:
        hint = "the line is indented with a tab; YAML wants spaces"
    elif "{{" in written:
        hint = "quote a value that begins with {{"
    return Malformed(f"not valid YAML: {problem}{context}", mark.line + 1, hint, column=mark.column + 1)


def _too_deep(line: int | None) -> Malformed:
    return Malformed(f"nested too deeply: more than {DEEPEST} levels", line)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
