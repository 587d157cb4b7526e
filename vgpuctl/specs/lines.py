# SPDX-License-Identifier: Apache-2.0
"""The line of a key in a YAML text, looked up when an error is printed."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import yaml

from vgpuctl.specs.bounded_reader import BoundedLoader


def line_of(text: str, keys: Sequence[object], *, document: int = 0) -> int | None:
    """Find the line (from 1) of the deepest key of the path that a text holds; an index counts in a list.

    text: one that the bounded reader has read. document: which of its documents, from 0. None for a text that is empty
    or no YAML.
    """
    return line_in(root_node(text, document=document), keys)


def root_node(text: str, *, document: int = 0) -> Any:
    """The node of one document, for several questions to `line_in`; None when there is none."""
    try:
        return next(islice(yaml.compose_all(text, Loader=BoundedLoader), document, None), None)
    except yaml.YAMLError:
        return None


def line_in(node: Any, keys: Sequence[object]) -> int | None:
    """Find the line of the deepest key of the path below a node."""
    if node is None:
        return None
    line = node.start_mark.line
    for key in keys:
        found = _step_into(node, key)
        if found is None:
            break
        line, node = found
    return int(line) + 1


def _step_into(node: Any, key: object) -> tuple[int, Any] | None:
    """Find (line from 0, value) of one key of a mapping or one index of a list, through `<<` too."""
    if isinstance(node, yaml.SequenceNode):
        if isinstance(key, int) and key < len(node.value):
            item = node.value[key]
            return item.start_mark.line, item
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    for key_node, value_node in reversed(node.value):  # of a key written twice the last one counts
        if key_node.value == str(key):
            return key_node.start_mark.line, value_node
    for key_node, value_node in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            merged = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for other in merged:
                found = _step_into(other, key)
                if found is not None:
                    return found
    return None
