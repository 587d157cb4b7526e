# SPDX-License-Identifier: Apache-2.0
"""Takes out of a guest's output what acts outside the window: titles, clipboard, printing, window operations.

Text, colours and cursor movements stay, so that a login, an editor or an installer looks as it should. Sources:
ECMA-48 (control strings, CSI), xterm's ctlseqs (OSC 52, window operations, media copy).
"""

from enum import Enum, auto

_ESCAPE = 0x1B
_BELL = 0x07
_CANCELS = (0x18, 0x1A)
# ESC P, X, ], ^, _: device control, start of string, operating system command, privacy message, application command.
_STRINGS = b"PX]^_"
# CSI … t moves, resizes and names the window; CSI … i prints.
_REFUSED_FINALS = b"ti"
_LONGEST_SEQUENCE = 64


class _State(Enum):
    TEXT = auto()
    ESCAPE = auto()
    SEQUENCE = auto()
    STRING = auto()
    STRING_ESCAPE = auto()
    C1 = auto()


class TerminalFilter:
    """One stream; sequences may be cut anywhere between two calls of `feed`."""

    def __init__(self) -> None:
        self._state = _State.TEXT
        self._held = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Return what of `data`, and of what was held back before, may reach the terminal."""
        shown = bytearray()
        for byte in data:
            self._take(byte, shown)
        return bytes(shown)

    def _take(self, byte: int, shown: bytearray) -> None:
        state = self._state
        if state in (_State.STRING, _State.STRING_ESCAPE):
            self._take_in_string(byte)
        elif state is _State.SEQUENCE:
            self._take_in_sequence(byte, shown)
        elif state is _State.ESCAPE:
            self._take_after_escape(byte, shown)
        elif state is _State.C1:
            self._take_after_c2(byte, shown)
        elif byte == _ESCAPE:
            self._hold(byte, _State.ESCAPE)
        elif byte == 0xC2:
            # In UTF-8, C2 80 to C2 9F are the C1 controls.
            self._hold(byte, _State.C1)
        else:
            shown.append(byte)

    def _take_in_string(self, byte: int) -> None:
        if byte == _BELL or byte in _CANCELS or (self._state is _State.STRING_ESCAPE and byte == ord("\\")):
            self._state = _State.TEXT
        else:
            self._state = _State.STRING_ESCAPE if byte == _ESCAPE else _State.STRING

    def _take_in_sequence(self, byte: int, shown: bytearray) -> None:
        if byte == _ESCAPE:
            self._held.clear()
            self._hold(byte, _State.ESCAPE)
        elif byte < 0x20:
            # A terminal obeys a control in the middle of a sequence and reads on.
            shown.append(byte)
        elif 0x40 <= byte <= 0x7E or len(self._held) > _LONGEST_SEQUENCE:
            self._held.append(byte)
            if byte not in _REFUSED_FINALS and len(self._held) <= _LONGEST_SEQUENCE:
                shown += self._held
            self._release()
        else:
            self._held.append(byte)

    def _take_after_escape(self, byte: int, shown: bytearray) -> None:
        if byte in _STRINGS:
            self._held.clear()
            self._state = _State.STRING
        elif byte == ord("["):
            self._hold(byte, _State.SEQUENCE)
        elif byte == _ESCAPE:
            self._held[:] = b"\x1b"
        else:
            self._held.append(byte)
            shown += self._held
            self._release()

    def _take_after_c2(self, byte: int, shown: bytearray) -> None:
        is_control = 0x80 <= byte <= 0x9F
        self._release()
        if not is_control:
            shown.append(0xC2)
            self._take(byte, shown)

    def _hold(self, byte: int, state: _State) -> None:
        self._held.append(byte)
        self._state = state

    def _release(self) -> None:
        self._held.clear()
        self._state = _State.TEXT
