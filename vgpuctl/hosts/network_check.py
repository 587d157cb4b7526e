# SPDX-License-Identifier: Apache-2.0
"""Rules for counted flows and logged packets beyond their types: a host that lies or floods is refused."""

import math
import re

from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.flows import MOST_COOKIES, FlowCounts
from vgpuctl.agent.wire.packet_log import PacketLog

_LARGEST = 2**62
_MOST_RULES, _LONGEST = 256, 400
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")


def check_flows(counts: FlowCounts) -> None:
    """Accept counts that a switch can have. Raises WireError that names the field."""
    if len(counts.counts) > MOST_COOKIES:
        raise WireError("flows", f"has {len(counts.counts)} counts, more than {MOST_COOKIES}")
    for number, one in enumerate(counts.counts):
        path = f"flows.counts[{number}]"
        _check_numbers(path, one.packets, one.bytes)
        if not (math.isfinite(one.age_s) and 0 <= one.age_s < _LARGEST):
            raise WireError(f"{path}.age_s", f"is {one.age_s}")


def check_packet_log(log: PacketLog) -> None:
    """Accept lines of a log. Raises WireError that names the field."""
    if len(log.rules) > _MOST_RULES:
        raise WireError("log.rules", f"has {len(log.rules)} entries, more than {_MOST_RULES}")
    _check_numbers("log", log.mark.inode, log.mark.offset, log.skipped_bytes, log.others, log.damaged)
    for number, one in enumerate(log.rules):
        path = f"log.rules[{number}]"
        _check_numbers(path, one.lines)
        if not (_TIME.fullmatch(one.first_at) and _TIME.fullmatch(one.last_at)):
            raise WireError(path, "has a time of another form")
        if max(map(len, (one.name, one.verdict, one.direction, one.first, one.last))) > _LONGEST:
            raise WireError(path, f"has a text of more than {_LONGEST} characters")


def _check_numbers(path: str, *numbers: int) -> None:
    wrong = [one for one in numbers if not 0 <= one <= _LARGEST]
    if wrong:
        raise WireError(path, f"has the number {wrong[0]}")
