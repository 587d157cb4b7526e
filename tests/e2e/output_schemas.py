# SPDX-License-Identifier: Apache-2.0
"""The JSON that commands print, compared with the schemas in docs/schemas/output."""

import functools
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema

from vgpuctl.cli.contents import COMMANDS, file_name

FOLDER = Path(__file__).parents[2] / "docs" / "schemas" / "output"


_ROW_A_LINE = {"--watch", "-w", "--follow"}


@functools.cache
def _validator(name: str, *, is_row: bool) -> Any:
    schema = json.loads((FOLDER / f"{file_name(name)}.json").read_text(encoding="utf-8"))
    if is_row:
        schema = {"$defs": schema.get("$defs", {}), **schema["items"]}
    return jsonschema.Draft202012Validator(schema)


def check_output(arguments: Sequence[str], out: str) -> None:
    """Raise AssertionError if a command was asked for JSON and its document does not fit its published schema.

    A list that is followed prints a row a line, each an item of its array. Other outputs of several documents are not
    checked.
    """
    names = (name for pair in pairwise((*arguments, "")) for name in (" ".join(pair), pair[0]))
    name = next((one for one in names if one in COMMANDS), None)
    if name is None or not {"--json", "json"} & set(arguments):
        return
    is_row = bool(_ROW_A_LINE & set(arguments))
    try:
        documents = [json.loads(one) for one in (out.splitlines() if is_row else [out])]
    except ValueError:
        return
    errors = [error for one in documents for error in _validator(name, is_row=is_row).iter_errors(one)]
    wrong = [f"{one.json_path}: {_deepest(one)}" for one in errors[:5]]
    assert not wrong, f"vgpuctl {name} --json does not fit its schema:\n" + "\n".join(wrong)


def _deepest(error: Any) -> str:
    """The message of a schema error; for a choice of types, with the error of each type."""
    inner = "; ".join(f"{one.json_path}: {one.message[:300]}" for one in error.context or ())
    return f"{error.message[:300]} ({inner})" if inner else str(error.message[:600])
