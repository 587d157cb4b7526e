# SPDX-License-Identifier: Apache-2.0
"""What commands print as JSON, compared with the schemas in docs/schemas/output."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema

from vgpuctl.cli.contents import COMMANDS

FOLDER = Path(__file__).parents[2] / "docs" / "schemas" / "output"


@functools.cache
def _validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def check_output(arguments: Sequence[str], out: str) -> None:
    """Raise AssertionError if a command was asked for JSON and its document does not fit its published schema.

    Several documents, as those of --watch, are not checked.
    """
    name = next((one for one in arguments if one in COMMANDS), None)
    if name is None or not {"--json", "json"} & set(arguments):
        return
    try:
        document = json.loads(out)
    except ValueError:
        return
    wrong = [f"{one.json_path}: {_deepest(one)}" for one in _validator(name).iter_errors(document)]
    assert not wrong, f"vgpuctl {name} --json does not fit its schema:\n" + "\n".join(wrong[:5])


def _deepest(error: Any) -> str:
    """What is wrong, of a choice of types with what each lacks."""
    inner = "; ".join(f"{one.json_path}: {one.message[:300]}" for one in error.context or ())
    return f"{error.message[:300]} ({inner})" if inner else str(error.message[:600])
