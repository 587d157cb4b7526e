# SPDX-License-Identifier: Apache-2.0
"""Host names of the inventory: `gpu[01:16].example`, `name:2222`, `[fe80::1]:22`."""

import ipaddress
import re
import string

from vgpuctl.specs.origin import Origin, malformed

LARGEST_RANGE = 100_000

_RANGE = re.compile(r"\[([^\[\]]*)\]")
_PORT = re.compile(r"(?P<host>(?:[^:\[\]]|\[[^\]]*\])*):(?P<port>[0-9]{1,9})")
_BRACKETED = re.compile(r"\[(?P<host>.+)\]:(?P<port>[0-9]{1,9})")
_LABEL_RANGE = r"\[(?:[a-z]:[a-z]|[0-9]+:[0-9]+)(?::[0-9]+)?\]"
_LABEL = rf"(?:\w|{_LABEL_RANGE})(?:[\w-]|{_LABEL_RANGE})*(?<![_-])"
_HOST_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.IGNORECASE)


def split_port(text: str, origin: Origin) -> tuple[str, int | None]:
    """Split `host:port`. A bare IPv6 address has no port; a port that is not 1 to 65535 is an error."""
    match = _BRACKETED.fullmatch(text) or _PORT.fullmatch(text)
    if match and _is_address(match["host"]):
        port = int(match["port"])
        if not 1 <= port <= 65535:
            raise malformed(origin, f"{text!r} has port {port}", hint="a port is 1 to 65535")
        return match["host"], port
    if ":" in _RANGE.sub("", text) and not _is_ipv6(_RANGE.sub("0", text)):
        raise malformed(
            origin, f"{text!r} is not a host name", hint="write name, name:port, an address, or [address]:port"
        )
    return text, None


def expand(text: str, origin: Origin) -> list[str]:
    """Expand every `[begin:end]` and `[begin:end:step]` of a host name, the last one fastest.

    Numbers keep the zeros of `begin`; letters run from a to z, then A to Z. Raises InventoryError for a range that
    cannot be read or names nothing.
    """
    expanded = [""]
    position = 0
    for match in _RANGE.finditer(text):
        literal, members = text[position : match.start()], _members(match[1], text, origin)
        if len(expanded) * len(members) > LARGEST_RANGE:
            raise malformed(origin, f"{text!r} names more than {LARGEST_RANGE} hosts")
        expanded = [head + literal + member for head in expanded for member in members]
        position = match.end()
    tail = text[position:]
    if "[" in tail or (position and "]" in tail):
        raise malformed(origin, f"{text!r} has a bracket without its partner")
    return [head + tail for head in expanded]


def looks_like_pattern_with_range(text: str) -> bool:
    """True if a name of the command line has its colons in a host range or an address, not between patterns."""
    match = _BRACKETED.fullmatch(text) or _PORT.fullmatch(text)
    return _is_address(match["host"] if match else text)


def _members(inside: str, text: str, origin: Origin) -> list[str]:
    bounds = inside.split(":")
    if len(bounds) not in (2, 3):
        raise _bad(text, origin, "a range is [begin:end] or [begin:end:step]")
    begin, end = bounds[0] or "0", bounds[1]
    step = _whole(bounds[2], text, origin) if len(bounds) == 3 else 1
    if not end:
        raise _bad(text, origin, "the range has no end")
    if step < 1:
        raise _bad(text, origin, f"the step is {step}")
    if len(begin) == len(end) == 1 and begin in string.ascii_letters and end in string.ascii_letters:
        letters = string.ascii_letters
        chosen = list(letters[letters.index(begin) : letters.index(end) + 1 : step])
    else:
        if begin.startswith("0") and len(begin) > 1 and len(begin) != len(end):
            raise _bad(text, origin, f"{begin} and {end} differ in length")
        width = len(begin) if begin.startswith("0") else 0
        numbers = range(_whole(begin, text, origin), _whole(end, text, origin) + 1, step)
        if len(numbers) > LARGEST_RANGE:
            raise malformed(origin, f"{text!r} names more than {LARGEST_RANGE} hosts")
        chosen = [str(number).zfill(width) for number in numbers]
    if not chosen:
        raise _bad(text, origin, f"the range runs backwards, from {begin} to {end}")
    return chosen


def _whole(digits: str, text: str, origin: Origin) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", digits):
        raise _bad(text, origin, f"{digits!r} is neither a number nor a letter that fits its partner")
    return int(digits)


def _bad(text: str, origin: Origin, why: str) -> Exception:
    return malformed(
        origin, f"host range {text!r}: {why}", hint="write for example gpu[01:16], rack[a:c] or node[1:9:2]"
    )


def _is_address(text: str) -> bool:
    return bool(_HOST_NAME.fullmatch(text)) or _is_ipv6(_RANGE.sub("0", text))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
