# SPDX-License-Identifier: Apache-2.0
"""Files of other tools as they are kept in Kubernetes: the text under `data` of a ConfigMap is the tool's file."""

import re
from pathlib import Path

from vgpuctl.specs.document import YamlDocument, decode, parse_document
from vgpuctl.specs.origin import Origin, malformed, read_bytes
from vgpuctl.trusted_files import NAMED

_NEXT_DOCUMENT = re.compile(r"---(?:\s|$)")
_HINT = "give the text under `data` of the ConfigMap as a file of its own"


def read_tool_file(path: Path) -> YamlDocument:
    """Read a tool's file, also out of a ConfigMap with one text under `data`.

    Raises InventoryError for another Kubernetes object, several texts, and a file of several YAML documents.
    """
    text = decode(str(path), read_bytes(str(path), NAMED))
    line = _line_of_second_document(text)
    if line is not None:
        raise malformed(Origin(str(path), line), "the file has several YAML documents, and one is read", hint=_HINT)
    document = parse_document(str(path), text)
    content = document.data
    if not isinstance(content, dict) or not {"apiVersion", "kind"} <= content.keys():
        return document
    data = content.get("data")
    texts = {key: one for key, one in data.items() if isinstance(one, str)} if isinstance(data, dict) else {}
    if content["kind"] == "ConfigMap" and len(texts) == 1:
        ((name, inner),) = texts.items()
        return parse_document(f"{path}, {name} under data", inner)
    what = f"the file is a Kubernetes object, {str(content['kind'])[:40]}"
    if texts:
        what += f", with {len(texts)} texts under data"
    raise malformed(document.origin("kind"), what, hint=_HINT)


def _line_of_second_document(text: str) -> int | None:
    """The line, from 1, where a second document begins."""
    has_content = False
    for number, line in enumerate(text.splitlines(), 1):
        if _NEXT_DOCUMENT.match(line):
            if has_content:
                return number
        elif line.strip() and not line.startswith(("#", "%")):
            has_content = True
    return None
