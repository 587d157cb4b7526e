# SPDX-License-Identifier: Apache-2.0
"""How a VM can go to each other host, for people and as JSON."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from vgpuctl.cli.shown.output import print_line, print_table
from vgpuctl.model.move_verdict import NOT_LOOKED_AT, MoveKind
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.move_verdict import MoveLimit, MoveVerdict
    from vgpuctl.model.vm import Vm


class JsonMoveVerdict(TypedDict):
    """How the VM can go to one host. forbids of a limit: `live` leaves a cold move, `cold` leaves none."""

    host: str
    verdict: "MoveVerdict"


class JsonMoveCheck(TypedDict):
    """How a VM can go from its host to each other one, the kindest way first."""

    vm: str
    host: str
    verdicts: Sequence[JsonMoveVerdict]


def move_check_json(vm: "Vm", found: "Sequence[tuple[str, MoveVerdict]]") -> JsonMoveCheck:
    """The verdicts about one VM."""
    return {
        "vm": vm.printed_name,
        "host": vm.host,
        "verdicts": [{"host": host, "verdict": verdict} for host, verdict in found],
    }


def show_move_check(vm: "Vm", found: "Sequence[tuple[str, MoveVerdict]]", to: str | None = None) -> None:
    """Print a line for each host, then what forbids a kinder way and what helps, for the hosts that it is alike on.

    to: the only host that was asked about.
    """
    if to == vm.host:
        print_line(f"{vm.printed_name} is on {vm.host} already")
        return
    print_line(f"{vm.printed_name} on {vm.host}")
    print_table(
        ["HOST", "MOVE", "STOP", "STATE", "WHY"],
        [(host, str(one.kind), _stop(one), _state(one), _why(one)) for host, one in found],
        empty="there is no other host that it could go to",
        drops={"WHY": 0},
    )
    if not found:
        return
    groups: dict[tuple[str, str], list[tuple[str, MoveLimit]]] = {}
    for host, verdict in found:
        for limit in _told(verdict):
            alike = (_unnamed(limit.limit, host), _unnamed(limit.remedy, host))
            groups.setdefault(alike, []).append((host, limit))
    rows = []
    for (limit_text, remedy), members in groups.items():
        host, only = members[0]
        texts = (only.limit, only.remedy) if len(members) == 1 else (limit_text, remedy)
        rows.append((_hosts(host, len(members), len(found)), texts[0], texts[1] or None))
    print_table(["ON", "LIMIT", "WHAT HELPS"], rows, empty="nothing forbids a live move")
    for note in dict.fromkeys(note for _host, verdict in found for note in verdict.notes):
        print_line(f"note    {note}")


def _told(verdict: "MoveVerdict") -> "list[MoveLimit]":
    """The limits that decide: of a VM that cannot go there for a reason, nobody asks what was not looked at."""
    known = [one for one in verdict.limits if one.code != NOT_LOOKED_AT]
    if verdict.kind.can_move() or not any(one.forbids is MoveKind.COLD for one in known):
        return list(verdict.limits)
    return [one for one in known if one.forbids is MoveKind.COLD]


def _why(verdict: "MoveVerdict") -> str | None:
    told = _told(verdict)
    more = f", and {len(told) - 1} more" if len(told) > 1 else ""
    return f"{told[0].limit}{more}" if told else None


def _stop(verdict: "MoveVerdict") -> str | None:
    """The estimate is of a live move: it says nothing of how long a cold one stops the VM."""
    is_told = verdict.kind is MoveKind.LIVE and verdict.downtime_s is not None
    return f"about {verdict.downtime_s:.1f} s" if is_told else None


def _state(verdict: "MoveVerdict") -> str | None:
    from vgpuctl.model.units import MIB, format_mib

    return None if not verdict.state_bytes else format_mib(verdict.state_bytes // MIB)


def _unnamed(text: str, host: str) -> str:
    """A sentence without the host's name: what is alike on several hosts is told once."""
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", text)


def _hosts(host: str, number: int, of: int) -> str:
    return host if number == 1 else f"all {of}" if number == of else counted(number, "host")
