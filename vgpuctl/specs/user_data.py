# SPDX-License-Identifier: Apache-2.0
"""User-data and network-config, refused where the guest would ignore them or do something else than they say.

Sources: cloud-init's user_data.py, handlers/__init__.py and handlers/cloud_config.py; cloudbase-init 1.1's
plugins/common/userdata.py, userdatautils.py and userdataplugins. No message quotes a document: it may hold passwords.
"""

import email
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from typing import Any

import yaml

from vgpuctl.errors import UsageError
from vgpuctl.specs.bounded_reader import BoundedLoader, Malformed, check, read_yaml, yaml_errors
from vgpuctl.specs.lines import root_node

_CONFIG, _ARCHIVE, _PATCH, _ANY = "cloud-config", "cloud-config-archive", "cloud-config-jsonp", "any"
_OF_CLOUD_INIT = {
    "#cloud-config-archive": _ARCHIVE,
    "#cloud-config-jsonp": _PATCH,
    "#cloud-config": _CONFIG,
    "#include": _ANY,
    "#!": _ANY,
    "#part-handler": _ANY,
    "#cloud-boothook": _ANY,
    "## template: jinja": _ANY,
}
"""First words of a document, in any case and after blank lines, and what it must be. The longer ones come first."""
_LOOKS_FOR_MIME = 4096
_TO_BE_FOUND_OUT = ("text/plain", "text/x-not-multipart", "text/x-shellscript")
_TYPES_OF_CLOUD_INIT = {
    "text/cloud-config": _CONFIG,
    "text/cloud-config-archive": _ARCHIVE,
    "text/cloud-config-jsonp": _PATCH,
    **dict.fromkeys(
        (
            "text/x-shellscript",
            "text/x-shellscript-per-boot",
            "text/x-shellscript-per-instance",
            "text/x-shellscript-per-once",
            "text/x-include-url",
            "text/x-include-once-url",
            "text/part-handler",
            "text/cloud-boothook",
            "text/jinja2",
        ),
        _ANY,
    ),
}
_TYPES_OF_CLOUDBASE_INIT = {
    "text/cloud-config": _CONFIG,
    **dict.fromkeys(("text/x-shellscript", "text/cloud-boothook", "text/part-handler", "text/x-cfninitdata"), _ANY),
}
_PART_HANDLER = "text/part-handler"
# cloudbase-init, cloudconfigplugins/factory.py: it logs an error for any other key.
_WINDOWS_KEYS = (
    "write_files",
    "set_timezone",
    "timezone",
    "set_hostname",
    "hostname",
    "ntp",
    "groups",
    "users",
    "runcmd",
)
_WORDS_OF_WINDOWS = "`#cloud-config`, `#ps1_sysnative`, `<powershell>`, `rem cmd`, `#!` and an interpreter"


@dataclass(frozen=True)
class WindowsKind:
    """How cloudbase-init takes a document. subtype: of its MIME part. file: a name by which that part is run so too."""

    begins: re.Pattern[str]
    subtype: str
    file: str


_WINDOWS_KINDS = (
    WindowsKind(re.compile(r"\A#cloud-config"), "cloud-config", "user-data.yaml"),
    WindowsKind(re.compile(r"\Arem\s+cmd\s"), "x-shellscript", "user-data.cmd"),
    WindowsKind(re.compile(r"\A#!\s*/usr/bin/env\s+python\s"), "x-shellscript", "user-data.py"),
    WindowsKind(re.compile(r"\A#!"), "x-shellscript", "user-data.sh"),
    WindowsKind(re.compile(r"\A#(?:ps1|ps1_sysnative)\s"), "x-shellscript", "user-data.ps1"),
    # These two have no ending of their own: cloudbase-init looks at what is in the file.
    WindowsKind(re.compile(r"\A#ps1_x86\s"), "x-shellscript", "user-data"),
    WindowsKind(re.compile(r"</?(?:script|powershell)>"), "x-shellscript", "user-data"),
)
"""In the order of cloudbase-init, which takes the first that fits."""


def check_user_data(document: str) -> None:
    """Accept a document that cloud-init acts on. Raises UsageError, with a line where there is one."""
    if "mime-version:" in document[:_LOOKS_FOR_MIME].lower():
        _check_mime(document, _TYPES_OF_CLOUD_INIT, "cloud-init")
        return
    kind = _kind_of(document)
    if kind is None:
        raise UsageError(
            "user-data starts with a line which cloud-init ignores",
            hint="the first line must be `#cloud-config`, or `#!` and an interpreter for a script",
        )
    _check_kind(document, kind, "user-data")


def check_windows_user_data(document: str) -> None:
    """Accept a document that cloudbase-init acts on. Raises UsageError."""
    if is_windows_mime(document):
        _check_mime(document, _TYPES_OF_CLOUDBASE_INIT, "cloudbase-init")
        return
    kind = windows_kind(document)
    if kind is None:
        raise UsageError(
            "user-data starts with a line which cloudbase-init ignores", hint=f"begin with {_WORDS_OF_WINDOWS}"
        )
    if kind.subtype == _CONFIG:
        _check_windows_config(document, "user-data")


def windows_kind(document: str) -> WindowsKind | None:
    """How cloudbase-init takes a document that is no MIME message; None for one that it ignores."""
    return next((kind for kind in _WINDOWS_KINDS if kind.begins.search(document)), None)


def is_windows_mime(document: str) -> bool:
    """True if cloudbase-init takes a document for a MIME message: this header comes first, and is written so."""
    return document.startswith("Content-Type: multipart")


def check_network_config(document: str) -> None:
    """Accept a network-config: a YAML mapping. Raises UsageError."""
    _mapping(document, "network-config")


def _kind_of(document: str) -> str | None:
    begin = document.lstrip().lower()
    return next((kind for words, kind in _OF_CLOUD_INIT.items() if begin.startswith(words)), None)


def _check_kind(document: str, kind: str, what: str) -> None:
    """Accept one document of cloud-init. An empty cloud-config is accepted: nothing can be lost."""
    if kind == _CONFIG and _read(document, what) is not None:
        _mapping(document, what)
    elif kind == _ARCHIVE:
        _check_archive(document, what)
    elif kind == _PATCH:
        _check_patch(document, what)


def _mapping(document: str, what: str) -> dict[Any, Any]:
    """The mapping that a YAML document is. Raises UsageError for anything else, and for a key that stands twice."""
    data = _read(document, what)
    if not isinstance(data, dict):
        found = "empty" if data is None else "a list" if isinstance(data, list) else "a text"
        raise UsageError(f"{what} is {found} in YAML, and must be a mapping of keys", hint="write `key: value` lines")
    for line, _key in _repeated_keys(root_node(document)):
        raise UsageError(f"{what} line {line}: a key is written twice in one mapping", hint="write it once")
    return data


def _read(document: str, what: str) -> Any:
    try:
        with yaml_errors(document):
            check(document)
            (data,) = read_yaml(BoundedLoader(document), single=True)
    except Malformed as broken:
        raise UsageError(f"{what} {broken}", hint=broken.hint) from broken
    except UnicodeEncodeError as half:
        raise UsageError(f"{what} has half a character, which UTF-8 cannot hold") from half
    return data


def _repeated_keys(node: Any) -> Iterator[tuple[int, str]]:
    """Line and key of each key that a mapping below a node has twice."""
    if isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from _repeated_keys(one)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            is_plain = isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge"
            if is_plain and key.value in seen:
                yield key.start_mark.line + 1, key.value
            if is_plain:
                seen.add(key.value)
            yield from _repeated_keys(value)


def _check_archive(document: str, what: str) -> None:
    entries = _read(document, what)
    if not isinstance(entries, list):
        raise UsageError(f"{what} is no list, which `#cloud-config-archive` says", hint="write a list of documents")
    for number, entry in enumerate(entries, 1):
        content = entry.get("content") if isinstance(entry, dict) else entry
        kind = entry.get("type") if isinstance(entry, dict) else None
        name = f"{what}, document {number}"
        if not isinstance(content, str):
            raise UsageError(f"{name} has no text as its `content`", hint="write `- content: |` and the document")
        if kind is None:
            _check_kind(content, _kind_of(content) or _CONFIG, name)
        else:
            _check_kind(content, _type_of(str(kind).lower(), _TYPES_OF_CLOUD_INIT, "cloud-init", name), name)


def _check_patch(document: str, what: str) -> None:
    text = document.lstrip()[len("#cloud-config-jsonp") :]
    try:
        steps = json.loads(text)
    except ValueError as broken:
        line = getattr(broken, "lineno", None)
        raise UsageError(f"{what} is no JSON after its first line" + (f" (line {line})" if line else "")) from broken
    if not isinstance(steps, list):
        raise UsageError(f"{what} is no list of steps, which `#cloud-config-jsonp` says")


def _check_mime(document: str, types: dict[str, str], reader: str) -> None:
    message = email.message_from_string(document)
    parts = [part for part in message.walk() if part.get_content_maintype() != "multipart"]
    if not parts or message.defects:
        raise UsageError(
            f"user-data is a MIME message for {reader}, and it cannot be read as one",
            hint="check its boundary; `cloud-init devel make-mime` writes such messages",
        )
    has_handler = any(part.get_content_type() == _PART_HANDLER for part in parts)
    for number, part in enumerate(parts, 1):
        what = f"user-data, part {number} of its MIME message"
        text, kind = text_of(part), part.get_content_type()
        if reader == "cloud-init" and kind in _TO_BE_FOUND_OUT:
            found = _kind_of(text)
            if found is not None:
                _check_kind(text, found, what)
                continue
        if has_handler and kind not in types:
            continue
        wanted = _type_of(kind, types, reader, what)
        if wanted == _CONFIG and reader == "cloudbase-init":
            _check_windows_config(text, what)
        else:
            _check_kind(text, wanted, what)


def _type_of(kind: str, types: dict[str, str], reader: str, what: str) -> str:
    if kind not in types:
        raise UsageError(
            f"{what} is of a type that {reader} does nothing with",
            hint=f"it knows {', '.join(types)}",
        )
    return types[kind]


def text_of(part: Message) -> str:
    """The text of a part of a MIME message."""
    payload = part.get_payload(decode=True)
    return payload.decode(errors="replace") if isinstance(payload, bytes) else ""


def _check_windows_config(document: str, what: str) -> None:
    unknown = [str(key) for key in _mapping(document, what) if key not in _WINDOWS_KEYS]
    if unknown:
        raise UsageError(
            f"{what} has the key {unknown[0][:40]!r}, which cloudbase-init does not know",
            hint=f"on Windows there are {', '.join(sorted(_WINDOWS_KEYS))}",
        )
