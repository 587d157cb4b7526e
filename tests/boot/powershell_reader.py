# SPDX-License-Identifier: Apache-2.0
"""Parse a PowerShell script by tree-sitter's grammar, and print what is not PowerShell. It has its own environment."""

import pathlib
import sys
from typing import Any

import tree_sitter  # type: ignore[import-not-found]
import tree_sitter_powershell  # type: ignore[import-not-found]


def _wrong(node: Any) -> list[str]:
    found = [f"line {node.start_point.row + 1}: {node.text.decode()[:80]}"] * (node.type == "ERROR" or node.is_missing)
    return [*found, *(line for child in node.children for line in _wrong(child))]


if __name__ == "__main__":
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language()))
    sys.stdout.write("\n".join(_wrong(parser.parse(pathlib.Path(sys.argv[1]).read_bytes()).root_node)))
