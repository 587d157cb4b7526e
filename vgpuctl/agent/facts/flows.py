# SPDX-License-Identifier: Apache-2.0
"""Packets that flows of the integration bridge matched, by cookie, from Open vSwitch's own counters (ovs-ofctl(8)).

ovn-controller gives a flow the first 32 bits of the UUID of its row in the southbound database as cookie. Flows that it
makes again begin at 0, so a count says since when.
"""

import re
from typing import Dict, Sequence

from vgpuctl.agent.facts import ovn
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import ovn as wire
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.flows import MOST_COOKIES, FlowCount, FlowCounts
from vgpuctl.agent.wire.problem_codes import ProblemCode

_COOKIE = re.compile(r"[0-9a-f]{8}")
_FLOW = re.compile(
    r"^ cookie=0x([0-9a-f]{1,16}), duration=(\d{1,12}(?:\.\d{1,9})?)s, table=\d+, "
    r"n_packets=(\d{1,18}), n_bytes=(\d{1,18})\b",
    re.MULTILINE,
)
_TIMEOUT_S, _LIMIT_S = 10.0, 40.0


def count(host: Host, cookies: Sequence[str]) -> FlowCounts:
    """Ask for the flows of each cookie. Raises Problem: `bad-request`, `unreadable`, and those of a program."""
    if len(cookies) > MOST_COOKIES or not all(_COOKIE.fullmatch(one) for one in cookies):
        raise Problem(ProblemCode.BAD_REQUEST, f"{len(cookies)} cookies of flows, or one that is none")
    if host.find_program("ovs-ofctl") is None or not ovn.is_running(host, "controller"):
        return FlowCounts(False)
    found: Dict[str, FlowCount] = {}
    end_s = host.monotonic() + _LIMIT_S
    for cookie in dict.fromkeys(cookies):
        if host.monotonic() > end_s:
            raise Problem(ProblemCode.UNREADABLE, f"the flows were not counted within {_LIMIT_S:g} s", path="ovs-ofctl")
        # The switch leaves out all others: a bridge may have a million flows.
        words = ["ovs-ofctl", "dump-flows", wire.INTEGRATION_BRIDGE, f"cookie=0x{cookie}/-1"]
        done = host.run(words, timeout_s=_TIMEOUT_S)
        if done.status != 0:
            said = (done.errors.strip().splitlines() or ["nothing"])[-1][:200]
            raise Problem(ProblemCode.UNREADABLE, f"ovs-ofctl does not list the flows: {said}", path="ovs-ofctl")
        flows = [one for one in _FLOW.findall(done.output) if int(one[0], 16) == int(cookie, 16)]
        if flows:
            found[cookie] = FlowCount(
                cookie,
                sum(int(packets) for _cookie, _age, packets, _bytes in flows),
                sum(int(size) for _cookie, _age, _packets, size in flows),
                max(float(age) for _cookie, age, _packets, _bytes in flows),
            )
    return FlowCounts(True, tuple(found.values()))
