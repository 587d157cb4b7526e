# SPDX-License-Identifier: Apache-2.0
"""The one escaping function for text that a person reads: on a terminal, in a log, in an error.

Names, messages and logs come from hosts, guests and tenants' files. A terminal obeys what is in them: cursor and
title sequences (C0, C1), the clipboard (OSC 52), and a change of the reading direction (CVE-2021-42574).
"""

import re

# C0 without tab, DEL and C1; the bidi controls and marks of Unicode's UAX 9; line and paragraph separators; surrogates
# without their partner, noncharacters, and the invisible tag and annotation characters.
_UNSAFE = (
    r"\x00-\x08\x0a-\x1f\x7f-\x9f"
    r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    r"\ud800-\udfff\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff"
    r"\U000e0000-\U000e007f"
)
_IN_LINE = re.compile(f"[{_UNSAFE}]")
_IN_DOCUMENT = re.compile(f"(?!\n)[{_UNSAFE}]")


def printable(text: str) -> str:
    r"""Write one line so that a terminal only shows it: `\x1b`, `\n`, `\u202e` stand for what would act.

    Tabs and every printable character, ASCII or not, stay as they are.
    """
    return _IN_LINE.sub(_escape, text)


def visible(text: str) -> str:
    r"""Write one line in which nothing is hidden: also zero-width characters and tabs are escaped.

    For what a guest says of itself, so that no name looks like another one.
    """
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def printable_document(text: str) -> str:
    """Write text of several lines in the same way; line feeds stay, and a carriage return before one is left out."""
    return _IN_DOCUMENT.sub(_escape, text.replace("\r\n", "\n"))


def printable_json(text: str) -> str:
    r"""Write indented JSON so that a terminal only shows it; the values stay the same, as `\u` escapes."""
    return _IN_DOCUMENT.sub(_escape_json, text)


def _escape(match: re.Match[str]) -> str:
    return _escaped(match[0])


def _escaped(character: str) -> str:
    code = ord(character)
    if character in "\n\r":
        return "\\n" if character == "\n" else "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2], 'big'):04x}" for at in range(0, len(units), 2))
