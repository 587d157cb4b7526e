# SPDX-License-Identifier: Apache-2.0
"""Lets of a guest's output through what draws in its window: text, colours, cursor movements, a few modes.

It parses as terminals do and writes again what it lets through: whole characters, single controls, whole sequences.
So the effect of the output does not depend on how a terminal treats the parts that were left out. Titles, clipboard,
printing, answers of the terminal, programmed keys, mouse reports and files are in no row of the tables below.
Sources: Paul Williams, "A parser for DEC's ANSI-compatible video terminals" (the states); ECMA-48; xterm's ctlseqs.
"""

import codecs
import re
from enum import Enum, auto

_CONTROLS = frozenset("\a\b\t\n\v\f\r\x0e\x0f")
"""BEL to SI. The others do nothing in a terminal, ask for an answer (ENQ) or stop the line (XOFF)."""
_CANCELS = frozenset("\x18\x1a")
_ESCAPE, _DELETE = "\x1b", "\x7f"
_AFTER_ESCAPE = frozenset("78DEHMc=>")
"""Save and restore the cursor, index, next line, set a tab, reverse index, reset, keypad."""
_WITH_INTERMEDIATE = {
    **dict.fromkeys("()", frozenset("0AB")),  # character sets: line drawing, British, ASCII
    "#": frozenset("34568"),  # double lines, test pattern
}
_FINALS = {
    "": frozenset("@ABCDEFGHIJKLMPSTXZ`abdefgmrsu"),
    "?": frozenset("JK"),
    " ": frozenset("q"),  # the cursor's form
    "!": frozenset("p"),  # soft reset
}
"""Of control sequences (CSI), by what stands before the parameters or behind them."""
_MODES = {
    "": frozenset({4, 20}),  # insert, new line
    # In order: cursor keys, origin, wrapping, cursor (2), alternate screen (3), bracketed paste.
    "?": frozenset({1, 6, 7, 12, 25, 47, 1047, 1048, 1049, 2004}),
}
"""Those that `h` sets and `l` resets."""
_STRINGS = frozenset("PX]^_")
"""After ESC: device control, start of string, operating system command, privacy message, application command."""
_MOST_PARAMETERS = 64
_SEQUENCE = re.compile(r"([<=>?]?)([0-9;:]*)([ -/]*)")
"""All between CSI and the last character: a private mark, parameters, intermediate characters."""
_PRINTED = re.compile(rb"[ -~\xa0-\xff]+")
"""Bytes that are no control, in any eight-bit terminal."""
_DEFAULT_TABS = f"{_ESCAPE}7\r{_ESCAPE}[3g" + f"{_ESCAPE}[8C{_ESCAPE}H" * 64 + f"{_ESCAPE}[999G{_ESCAPE}[g{_ESCAPE}8"
"""Every eighth column, in lines of up to 512; the cursor stops at the end of a shorter line, where no stop remains."""
_LASTING = {
    "H": _DEFAULT_TABS,
    "[g": _DEFAULT_TABS,
    "[r": f"{_ESCAPE}7{_ESCAPE}[r{_ESCAPE}8",  # the margins; the cursor stays
    "[ q": f"{_ESCAPE}[0 q",
}
"""What a sequence leaves in the terminal beside modes, colours and character sets, and what undoes it."""
_SET_AT_FIRST = frozenset({("?", 7), ("?", 25)})


class _State(Enum):
    GROUND = auto()
    ESCAPE = auto()
    CONTROL_SEQUENCE = auto()
    STRING = auto()


class TerminalFilter:
    """One stream; characters and sequences may be cut anywhere between two calls of `feed`.

    encoding: of the terminal; what it has not is a question mark. Bytes of UTF-8 would be C1 controls to another one,
    and so is a letter of its own whose byte lies there: the terminal need not be set as its locale.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = codecs.lookup(encoding).name
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._changed: dict[tuple[str, int], bool] = {}
        self._undo: dict[str, None] = {}
        self._state = _State.GROUND
        self._held = ""

    def feed(self, data: bytes) -> bytes:
        """Return what of `data`, and of what was held back before, may reach the terminal."""
        shown: list[str] = []
        for character in self._decoder.decode(data):
            # C1 as one character stands for ESC and the character 0x40 below (ECMA-48, 5.3).
            if "\x80" <= character <= "\x9f":
                self._begin_escape()
                character = chr(ord(character) - 0x40)
            self._take(character, shown)
        text = "".join(shown)
        if self._encoding == "utf-8":
            return text.encode()
        return b"".join(map(self._encoded, text))

    def leave(self) -> bytes:
        """Return what gives the terminal back to its user: all that sequences can leave behind as at first."""
        back = [
            f"{_ESCAPE}[{private}{mode}{'l' if is_set else 'h'}" for (private, mode), is_set in self._changed.items()
        ]
        back += self._undo
        self._changed.clear()
        self._undo.clear()
        return "".join([*back, f"{_ESCAPE}(B{_ESCAPE})B\x0f{_ESCAPE}>{_ESCAPE}[m"]).encode()

    def _encoded(self, character: str) -> bytes:
        """One character for a terminal without UTF-8, whatever its bytes mean there."""
        if character.isascii():
            return character.encode()
        encoded = character.encode(self._encoding, "replace")
        return encoded if _PRINTED.fullmatch(encoded) else b"?"

    def _take(self, character: str, shown: list[str]) -> None:
        if character == _ESCAPE:
            self._begin_escape()
        elif character in _CANCELS:
            self._state = _State.GROUND
        elif self._state is _State.STRING:
            if character == "\a":
                self._state = _State.GROUND
        elif character < " ":
            # A terminal obeys a control in the middle of a sequence, and reads on.
            shown += [character] if character in _CONTROLS else []
        elif character == _DELETE:
            pass
        elif self._state is _State.GROUND:
            shown.append(character)
        elif character > _DELETE:  # no part of a sequence: terminals differ in what they do now
            self._state = _State.GROUND
            shown.append(character)
        elif self._state is _State.ESCAPE:
            self._take_after_escape(character, shown)
        else:
            self._take_in_control_sequence(character, shown)

    def _begin_escape(self) -> None:
        self._state = _State.ESCAPE
        self._held = ""

    def _take_after_escape(self, character: str, shown: list[str]) -> None:
        if character < "0":
            self._held += character
        elif not self._held and character in _STRINGS:
            self._state = _State.STRING
        elif not self._held and character == "[":
            self._state = _State.CONTROL_SEQUENCE
        else:
            self._state = _State.GROUND
            if character in (_WITH_INTERMEDIATE.get(self._held, ()) if self._held else _AFTER_ESCAPE):
                self._show(f"{self._held}{character}", f"{self._held}{character}", shown)

    def _take_in_control_sequence(self, character: str, shown: list[str]) -> None:
        if character < "@":
            if len(self._held) <= _MOST_PARAMETERS:
                self._held += character
            return
        self._state = _State.GROUND
        found = _SEQUENCE.fullmatch(self._held)
        if found is None or len(self._held) > _MOST_PARAMETERS:
            return
        private, parameters, intermediate = found.groups()
        if character in "hl" and not intermediate:
            parameters = self._allowed_modes(private, parameters, is_set=character == "h")
            is_allowed = parameters != ""
        else:
            is_allowed = character in _FINALS.get(private + intermediate, ())
            is_allowed &= character not in "Tsu" or ";" not in parameters  # of mouse tracking and of margins
        if is_allowed:
            self._show(f"[{private}{parameters}{intermediate}{character}", f"[{intermediate}{character}", shown)

    def _show(self, sequence: str, name: str, shown: list[str]) -> None:
        shown.append(f"{_ESCAPE}{sequence}")
        if name in _LASTING:
            self._undo[_LASTING[name]] = None

    def _allowed_modes(self, private: str, parameters: str, *, is_set: bool) -> str:
        """The modes of a list that are let through, as a list. They are remembered for `leave`."""
        known = _MODES.get(private, frozenset())
        modes = [int(one) for one in parameters.split(";") if one.isdigit() and int(one) in known]
        for mode in modes:
            self._changed.pop((private, mode), None)
            if is_set != ((private, mode) in _SET_AT_FIRST):
                self._changed[private, mode] = is_set
        return ";".join(map(str, modes))
