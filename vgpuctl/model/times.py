# SPDX-License-Identifier: Apache-2.0
"""Points in time and durations as people write them. Times are seconds since the epoch; without a zone they are UTC."""

import re
from datetime import UTC, datetime

from vgpuctl.errors import UsageError

_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(w|d|h|m|s)")
_DURATION = re.compile(r"[0-9.]{1,9}[wdhms][0-9.wdhms]{0,40}")
_LONGEST = 60
_LAST = datetime(9999, 12, 1, tzinfo=UTC).timestamp()
"""Times are from 1970 to here: the month after it must be in the calendar too."""
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}


def _in_range(at: float) -> float:
    """The time itself. Raises ValueError where it, or a time that follows from it, may be outside of the calendar."""
    if not 0 <= at < _LAST:
        raise ValueError(at)
    return at


def parse_time(text: str, *, what: str) -> float:
    """Read `2026-11-01`, `2026-11-01T14:00`, `2026-11-01T14:00+01:00`, or `2026-11` (its first moment).

    what: the option, for the error. Raises UsageError.
    """
    written = text.strip()
    try:
        if len(written) > _LONGEST:
            raise ValueError(f"{len(written)} characters")  # fromisoformat takes half a million digits
        moment = datetime.fromisoformat(f"{written}-01" if _MONTH.fullmatch(written) else written)
        return _in_range((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise UsageError(
            f"{what} {text[:_LONGEST]!r} is no time",
            hint="write for example 2026-11-01, 2026-11-01T14:00 (UTC) or with +01:00",
        ) from None


def parse_month(text: str, *, what: str) -> float:
    """Read `2026-11` as the first moment of that month. Raises UsageError.

    what: the option, for the error.
    """
    try:
        if not _MONTH.fullmatch(text.strip()):
            raise ValueError(text)
        return _in_range(datetime.fromisoformat(f"{text.strip()}-01").replace(tzinfo=UTC).timestamp())
    except (ValueError, OverflowError):
        raise UsageError(f"{what} {text[:_LONGEST]!r} is no month", hint="write for example 2026-11") from None


def parse_moment(text: str, *, what: str, now: float) -> float:
    """Read a time, or a duration such as `2h` as that long before `now`. Raises UsageError."""
    if _DURATION.fullmatch(text.strip().lower()):
        return max(0.0, now - parse_duration(text, what=what))
    try:
        return parse_time(text, what=what)
    except UsageError as error:
        raise UsageError(error.message, hint=f"{error.hint}, or 2h for 2 hours ago") from None


def parse_period(begin: str, until: str, *, now: float) -> tuple[float, float]:
    """Read --from and --until. `now` begins in this minute; a duration such as `2h` is counted from the begin.

    Raises UsageError.
    """
    try:
        first = now // 60 * 60 if begin.strip().lower() == "now" else parse_time(begin, what="--from")
    except UsageError as error:
        raise UsageError(error.message, hint=f"{error.hint}, or now") from None
    if _DURATION.fullmatch(until.strip().lower()):
        return first, first + parse_duration(until, what="--until")
    try:
        return first, parse_time(until, what="--until")
    except UsageError as error:
        raise UsageError(error.message, hint=f"{error.hint}, or 2h for 2 hours after the begin") from None


def parse_window(text: str, *, what: str) -> tuple[float, float]:
    """Read `22:00-06:00` as the seconds of the day of its begin and end; `24:00` ends a day. Raises UsageError."""
    times = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)-(?:([01]\d|2[0-3]):([0-5]\d)|24:00)", text.strip(), re.ASCII)
    if times is None:
        raise UsageError(f"{what}: {text!r} is no part of a day", hint="write it as 22:00-06:00")
    begin, end = (int(times[one] or 24) * 3600 + int(times[one + 1] or 0) * 60 for one in (1, 3))
    if begin == end:
        raise UsageError(f"{what}: {text!r} has no time in it", hint="write 00:00-24:00 for all of a day")
    return begin, end


def is_within(window: tuple[float, float], at: float) -> bool:
    """True if a time, in seconds since the epoch, is in a part of the day, UTC, which may pass midnight."""
    begin, end = window
    second = at % 86_400
    return begin <= second < end if begin < end else second >= begin or second < end


def format_time(at: float) -> str:
    """Write a time: `2026-11-01 14:00` (UTC)."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def format_time_to_second(at: float) -> str:
    """Write a time for programs: `2026-11-01T14:00:07Z`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_duration(text: str, *, what: str) -> float:
    """Read `2h`, `90m`, `1d12h` or `1w` as seconds. Raises UsageError for anything else, and for nothing at all."""
    written = text.strip().lower()
    # The expression looks at every digit again and again where no unit follows.
    parts = _PART.findall(written) if len(written) <= _LONGEST else []
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != written or not 0 < seconds <= 3660 * 86_400:
        raise UsageError(f"{what} {text[:_LONGEST]!r} is no duration", hint="write for example 90m, 2h, 1d12h or 1w")
    return seconds


def format_time_left(seconds: float) -> str:
    """Write how long something may run from now on: whole minutes that are still left a minute later."""
    minutes = int(seconds) // 60 - 1
    return format_duration(60 * minutes if minutes > 0 else int(seconds) // 2)


def format_duration(seconds: float) -> str:
    """Write a duration: `2h`, `1d12h`, `45s`."""
    left = round(seconds)
    parts = []
    for unit in ("d", "h", "m", "s"):
        number, left = divmod(left, _SECONDS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts[:2]) or "0s"
