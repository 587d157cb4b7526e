# SPDX-License-Identifier: Apache-2.0
"""Text from hosts, guests and files is shown and never obeyed."""

import json

import pytest

from vgpuctl.model.printable import printable, printable_document, printable_json

ACTING = [
    ("\x1b]52;c;cm0gLXJmIC8=\x07", r"\x1b]52;c;cm0gLXJmIC8=\x07"),
    ("\x9b2J", r"\x9b2J"),
    ("a\rb\nc", r"a\rb\nc"),
    ("\x7f\x00", r"\x7f\x00"),
    ("user\u202egnp.exe\u2066", r"user\u202egnp.exe\u2066"),
    ("\ud800!", r"\ud800!"),
    ("\u2028\ufeff\U000e0041", r"\u2028\ufeff\U000e0041"),
]


@pytest.mark.parametrize(("text", "shown"), ACTING)
def test_what_acts_on_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(printable(text)) == shown


@pytest.mark.parametrize("text", ["Zürich", "機械", "🖥 café\tλ", "[red]", ":smile:", "a\\x1b"])
def test_printable_characters_stay(text: str) -> None:
    assert printable(text) == text


def test_a_document_keeps_its_lines() -> None:
    assert printable_document("a\r\nb\n\rc\x1b[2J\n") == "a\nb\n\\rc\\x1b[2J\n"


@pytest.mark.parametrize("text", [*(text for text, _ in ACTING), "\U000e0041x", "\udc80"])
def test_json_keeps_its_values(text: str) -> None:
    written = printable_json(json.dumps({text: [text]}, indent=2, ensure_ascii=False))
    assert json.loads(written) == {text: [text]}
    assert written == printable_document(written)
