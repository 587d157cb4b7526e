# SPDX-License-Identifier: Apache-2.0
"""No command that reads writes an escape code to a file, nor to a terminal with NO_COLOR; errors included."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.operate.command_events import READING, SIZE
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, operator

__all__ = ["operator"]

FLEET = (1, "a40")
_ESCAPE = "\x1b"


@pytest.mark.timeout(900)
@pytest.mark.long(
    "tests/unit/cli/shown/test_output.py::test_nothing_is_coloured_with_no_color_or_in_a_file",
    "tests/unit/cli/shown/test_output.py::test_only_our_own_words_are_coloured",
)
def test_escape_codes_are_for_terminals_without_no_color(operator: Operator, tmp_path: Path) -> None:
    operator.does("create-vm", "waits", *shlex.split(SIZE), "--network", "none", "--gpu", "A40-8Q")
    in_colour = replace(operator, without=("NO_COLOR",))
    faults, coloured = [], []
    for name, text in READING.items():
        arguments = (name, *shlex.split(text.format(home=tmp_path, soon="2030-01-01")))
        done = in_colour.run(*arguments)
        if _ESCAPE in done.out + done.err:
            faults.append(f"{name} writes escape codes to a file: {done.out + done.err!a}")
        shown = operator.run_on_terminal(*arguments)
        if _ESCAPE in shown or not shown:
            faults.append(f"{name} writes nothing, or escape codes in spite of NO_COLOR: {shown!a}")
    for arguments in (("list-vms", *ACME), ("show-network", "front", *ACME)):
        coloured += [arguments[0]] if _ESCAPE in in_colour.run_on_terminal(*arguments) else []
    assert faults == [], "\n".join(faults)
    assert coloured == ["list-vms", "show-network"], "a running VM is green, and the word error is red"
