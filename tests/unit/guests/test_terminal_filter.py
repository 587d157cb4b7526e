# SPDX-License-Identifier: Apache-2.0
"""A guest may colour its text and move the cursor, and reach nothing beyond the window's content."""

import pytest

from vgpuctl.guests.terminal_filter import TerminalFilter

CASES = [
    (b"login: \x1b[1;32mok\x1b[0m\x1b[2J\x1b(B\r\n", b"login: \x1b[1;32mok\x1b[0m\x1b[2J\x1b(B\r\n"),
    (b"a\x1b]52;c;cm0=\x07b", b"ab"),
    (b"a\x1b]0;title\x1b\\b", b"ab"),
    (b"a\x1bPq#0\x1b\\b\x1b^p\x1b\\\x1b_x\x1b\\\x1bXs\x1b\\", b"ab"),
    (b"a\x1b[21tb\x1b[5ic", b"abc"),
    (b"a\xc2\x9d52;c;\xc2\x9b2Jb", b"a52;c;2Jb"),
    ("Zürich £".encode(), "Zürich £".encode()),
    (b"\x1b]never ended \x18after", b"after"),
    (b"\x1b\x1b]0;t\x07x", b"x"),
    (b"\x1b[3\x1b]0;t\x07x", b"x"),
    (b"\x1b[" + b"1;" * 100 + b"mx", None),
]


@pytest.mark.parametrize(("sent", "shown"), CASES)
def test_only_the_windows_content_is_reached(sent: bytes, shown: bytes | None) -> None:
    whole = TerminalFilter().feed(sent)
    cut = TerminalFilter()
    assert b"".join(cut.feed(sent[at : at + 1]) for at in range(len(sent))) == whole
    if shown is not None:
        assert whole == shown
    assert b"\x1b]" not in whole
    assert b"\x1bP" not in whole
