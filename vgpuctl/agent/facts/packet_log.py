# SPDX-License-Identifier: Apache-2.0
"""Lines of logged packets in ovn-controller's log (ovn-nb(5), column `log` of ACL), since the last reading.

The text of a packet is its sender's: it is cut, and nothing of it is believed but what the other side reads strictly.
"""

import re
from typing import Dict, Iterable, List, Optional, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.packet_log import LoggedRule, LogMark, PacketLog
from vgpuctl.agent.wire.problem_codes import ProblemCode

LOG = "/var/log/ovn/ovn-controller.log"
_READ_AT_MOST, _RULES_AT_MOST, _PACKET_AT_MOST = 4 << 20, 256, 400
_IS_LOGGED = re.compile(r"^[^|]{1,40}\|\d{1,12}\|acl_log\(")
_LINE = re.compile(
    r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)\|\d{1,12}\|acl_log\([^)|]{1,40}\)\|INFO\|"
    r'name="([^"]{1,63})", verdict=([a-z]{1,16}), severity=[a-z]{1,16}, direction=([a-z-]{1,16}): (.*)$'
)


def read(host: Host, mark: Optional[LogMark]) -> PacketLog:
    """Read the lines behind a mark, or without one only where the log ends. Raises Problem `unreadable`."""
    stamp = host.stamp(LOG)
    if stamp is None:
        raise Problem(ProblemCode.UNREADABLE, f"{LOG} is not there, so logged packets cannot be read", path=LOG)
    inode, _time, size = stamp
    if mark is None:
        return PacketLog(LogMark(inode, size))
    # Another file is there after a rotation; a shorter one was cut.
    begin = mark.offset if mark.inode == inode and mark.offset <= size else 0
    start = max(begin, size - _READ_AT_MOST)
    try:
        with host.open_image(LOG) as file:
            file.seek(start)
            data = file.read(size - start)
    except OSError as error:
        raise host.unreadable(LOG, error) from error
    # ovn-controller may be writing the last line.
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.decode(errors="replace").splitlines()
    if start > begin:
        del lines[:1]
    rules, others, damaged = _add_up(lines)
    return PacketLog(LogMark(inode, start + len(whole)), tuple(rules), start - begin, others, damaged)


def _add_up(lines: Iterable[str]) -> Tuple[List[LoggedRule], int, int]:
    found: Dict[Tuple[str, str, str], LoggedRule] = {}
    others = damaged = 0
    for line in lines:
        if not _IS_LOGGED.match(line):
            continue
        match = _LINE.match(line)
        if match is None:
            damaged += 1
            continue
        at, name, verdict, direction, packet = match.groups()
        key, packet = (name, verdict, direction), packet[:_PACKET_AT_MOST]
        before = found.get(key)
        if before is None and len(found) >= _RULES_AT_MOST:
            others += 1
        elif before is None:
            found[key] = LoggedRule(name, verdict, direction, 1, at, packet, at, packet)
        else:
            found[key] = LoggedRule(
                name, verdict, direction, before.lines + 1, before.first_at, before.first, at, packet
            )
    return list(found.values()), others, damaged
