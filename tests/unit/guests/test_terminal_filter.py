# SPDX-License-Identifier: Apache-2.0
"""A guest may colour its text and move the cursor, and reach nothing beyond the window's content."""

import re
from encodings.aliases import aliases

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.guests.terminal_filter import TerminalFilter

CASES = [
    (b"login: \x1b[1;32mok\x1b[0m\x1b[2J\x1b(B\r\n", b"login: \x1b[1;32mok\x1b[0m\x1b[2J\x1b(B\r\n"),
    (b"a\x1b]52;c;cm0=\x07b", b"ab"),
    (b"a\x1b]0;title\x1b\\b", b"ab"),
    (b"a\x1bPq#0\x1b\\b\x1b^p\x1b\\\x1b_x\x1b\\\x1bXs\x1b\\", b"ab"),
    (b"a\x1b[21tb\x1b[5ic", b"abc"),
    (b"a\xc2\x9d52;c;\xc2\x9b2Jb", b"a\x1b[2Jb"),  # the C1 control within the string begins a sequence
    (b"a\x9d0;t\x07b", "a\N{REPLACEMENT CHARACTER}0;t\ab".encode()),  # no UTF-8
    ("Zürich £ 漢".encode(), "Zürich £ 漢".encode()),
    (b"\x1b]never ended \x18after", b"after"),
    (b"\x1b\x1b]0;t\x07x", b"x"),
    (b"\x1b[3\x1b]0;t\x07x", b"x"),
    (b"\x1b\x00]0;t\x07x", b"x"),  # controls within a sequence are obeyed, and the sequence goes on
    (b"\x1b\n]0;t\x07x", b"\nx"),
    (b"\x1b[3\r1mx\x1b[\b2Ky", b"\r\x1b[31mx\b\x1b[2Ky"),
    (b"\x1b\x7f]0;t\x07x", b"x"),
    (b"a\x05b\x13c\x11d\x00e", b"abcde"),  # asks for an answer, stops the line
    (b"\x1b[c\x1b[>c\x1b[6n\x1b[?6n\x1bZ\x1b[x\x1b[>q\x1bP+q544e\x1b\\x", b"x"),  # ask for answers
    (b"\x1b[?1000;25;1006hx\x1b[?1003hy\x1b[>4;2mz\x1b[>1u", b"\x1b[?25hxyz"),  # mouse and keys
    (b"\x1b%@\x1b G\x1bn\x1b*B\x1b[!p\x1b[2 qx", b"\x1b[!p\x1b[2 qx"),  # other encodings
    (b"\x1b[1;2Tx\x1b[2Ty\x1b[1;5sz", b"x\x1b[2Tyz"),
    ("\x1b[é1m".encode(), "é1m".encode()),
    (b"\x1b[" + b"1;" * 100 + b"mx", b"x"),
    (b"\x1b[1!2mx\x1b[?2$py", b"xy"),
]


@pytest.mark.parametrize(("sent", "shown"), CASES)
def test_only_the_windows_content_is_reached(sent: bytes, shown: bytes) -> None:
    assert TerminalFilter().feed(sent) == shown
    cut = TerminalFilter()
    assert b"".join(cut.feed(sent[at : at + 1]) for at in range(len(sent))) == shown


LET_THROUGH = re.compile(
    r"""(?:
        [^\x00-\x1f\x7f-\x9f]                       # text
        | [\x07-\x0f]
        | \x1b [78DEHMc=>] | \x1b [()] [0AB] | \x1b \# [34568]
        | \x1b\[ [0-9;:]* [@A-MPSX`abd-gmrsuZ] | \x1b\[ [0-9:]* T
        | \x1b\[ (?:4|20|4;20|20;4)(?:;4|;20)* [hl]
        | \x1b\[\? (?:1|6|7|12|25|47|1047|1048|1049|2004)(?:;(?:1|6|7|12|25|47|1047|1048|1049|2004))* [hl]
        | \x1b\[\? [0-9;:]* [JK] | \x1b\[ [0-9;:]* [ ] q | \x1b\[ [0-9;:]* ! p
    )*""",
    re.VERBOSE,
)
"""Written without looking at the filter's tables: all that a terminal may get, from one end to the other."""
_PIECES = st.sampled_from(
    [
        *(b"\x1b", b"[", b"]", b"P", b"?", b">", b"!", b" ", b"#", b"(", b"%", b"0", b"7", b"1049", b";", b":", b"h"),
        *(b"\\", b"\x07", b"\x18", b"\x00", b"\n", b"\x7f", b"\xc2", b"\x9b", b"\x9d", b"\xc3\xa9", b"m", b"T"),
    ]
)


@settings(max_examples=500)
@given(st.lists(st.one_of(_PIECES, st.binary(max_size=3)), max_size=40), st.data())
def test_whatever_is_sent_only_whole_and_known_sequences_come_out(pieces: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(pieces)
    shown = TerminalFilter().feed(sent)
    assert LET_THROUGH.fullmatch(shown.decode()), shown
    at = data.draw(st.integers(0, len(sent)))
    cut = TerminalFilter()
    assert cut.feed(sent[:at]) + cut.feed(sent[at:]) == shown
    assert TerminalFilter().feed(shown) == shown


def test_another_encoding_gets_no_byte_of_utf_8() -> None:
    assert TerminalFilter("iso-8859-1").feed("É € \x9b2J".encode()) == b"\xc9 ? \x1b[2J"
    assert TerminalFilter("ascii").feed("É\x1b[1m".encode()) == b"?\x1b[1m"


EIGHT_BIT = [one for one in sorted({*aliases.values()}) if one not in ("utf_8", "mbcs", "oem")]


@pytest.mark.parametrize("encoding", [*EIGHT_BIT, "utf-8-sig"])
def test_no_letter_of_another_encoding_is_a_control(encoding: str) -> None:
    """The terminal may take the byte for a C1 control, or another program's escape: what a letter is there is gone."""
    try:
        "x".encode(encoding)
    except (LookupError, UnicodeError):
        return  # from bytes to bytes, or none
    letters = "\n".join(map(chr, [*range(0xA0, 0x600), *range(0x2000, 0x2700), *range(0x3000, 0xD800, 97)]))
    shown = TerminalFilter(encoding).feed(letters.encode())
    assert re.fullmatch(rb"(?:[ -~\xa0-\xff]+\n?)+", shown)


@pytest.mark.parametrize(
    ("encoding", "letter"),
    [("koi8-r", "²"), ("koi8-r", "⌡"), ("cp1252", "›"), ("cp1251", "›"), ("cp866", "Ы"), ("cp437", "¢")],
)
def test_a_letter_whose_byte_is_a_control_is_a_question_mark(encoding: str, letter: str) -> None:
    assert TerminalFilter(encoding).feed(f"{letter}0;pwned\a".encode()) == b"?0;pwned\a"


def test_whatever_lasts_beside_the_modes_is_undone() -> None:
    passing = TerminalFilter()
    passing.feed(b"\x1b[1;3r\x1b[3g\x1b[5 q\x1b)0\x0e\x1bH")
    left = passing.leave()
    for undone in (b"\x1b7\x1b[r\x1b8", b"\x1b[3g", b"\x1b[0 q", b"\x1b(B\x1b)B\x0f"):
        assert left.count(undone) == 1
    assert passing.leave() == b"\x1b(B\x1b)B\x0f\x1b>\x1b[m"
    screen = pyte.Screen(80, 24)
    stream, first = pyte.ByteStream(screen), {*screen.tabstops}
    stream.feed(b"\x1b[1;3r\x1b[3g\x1b[5;7H\x1bH\x1b[?6h")
    stream.feed(left)
    assert screen.margins is None
    assert screen.tabstops == first


def test_the_terminal_is_given_back_as_it_was() -> None:
    passing = TerminalFilter()
    passing.feed(b"\x1b[?1049;2004h\x1b[?25l\x1b[?7h\x1b[4h\x1b[?1h\x1b[?1l")
    assert passing.leave() == b"\x1b[?1049l\x1b[?2004l\x1b[?25h\x1b[4l\x1b(B\x1b)B\x0f\x1b>\x1b[m"
    assert passing.leave() == b"\x1b(B\x1b)B\x0f\x1b>\x1b[m"
