# SPDX-License-Identifier: Apache-2.0
"""Counters of flows by cookie, as ovs-ofctl prints them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.measured import vm_uuid
from tests.agent.simulated import Machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.facts import flows
from vgpuctl.agent.host import Completed
from vgpuctl.agent.wire.envelope import (
    Problem,
    Request,
    reply_from_json,
    reply_to_json,
    request_from_json,
    request_to_json,
)
from vgpuctl.agent.wire.flows import FlowCount, FlowCounts, FlowQuestion
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import SetOvnDaemon
from vgpuctl_lab.simulated.machine.domains import start
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

# Open vSwitch 3.1.0 with OVN 23.03.1 on Debian 12, 2026-11-30: `ovs-ofctl dump-flows br-int cookie=0x…/-1`.
PRINTED = """ cookie=0x8ccf2d1e, duration=12.5s, table=44, n_packets=3, n_bytes=222, idle_age=2, priority=3001,tcp,reg0=0x80/0x80,reg15=0x2,metadata=0x1,nw_dst=10.0.0.3,tp_dst=80 actions=load:0x1->NXM_NX_XXREG0[97],resubmit(,45)
 cookie=0x8ccf2d1e, duration=40.25s, table=44, n_packets=4, n_bytes=300, idle_age=1, priority=3001,tcp6,tp_dst=80 actions=resubmit(,45)
"""  # noqa: E501


class Printing(SimulatedHost):
    """A host whose ovs-ofctl prints what the test wants."""

    said = Completed(0, PRINTED, "")

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        assert argv[:3] == ["ovs-ofctl", "dump-flows", "br-int"] and argv[3].endswith("/-1")
        return self.said


def _host(folder: Path, said: Completed) -> Printing:
    simulated = Machine(folder, "a40")
    simulated.done(SetOvnDaemon("switch", True), SetOvnDaemon("controller", True))
    host = Printing(str(simulated.files.folder))
    host.said = said
    return host


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        (PRINTED, (FlowCount("8ccf2d1e", 7, 522, 40.25),)),
        (PRINTED.replace("8ccf2d1e", "ccf2d1e"), ()),
        ("", ()),
        ("NXST_FLOW reply (xid=0x4):\n garbage\n cookie=0x8ccf2d1e, duration=xs\n", ()),
        (PRINTED.replace("n_packets=3", "n_packets=-3"), (FlowCount("8ccf2d1e", 4, 300, 40.25),)),
        (PRINTED.replace("n_packets=3", f"n_packets={'9' * 40}"), (FlowCount("8ccf2d1e", 4, 300, 40.25),)),
    ],
    ids=["added up", "another's", "none", "garbage", "below nothing", "beyond everything"],
)
def test_the_flows_of_a_cookie_are_added_up(output: str, counts: tuple[FlowCount, ...], tmp_path: Path) -> None:
    found = flows.count(_host(tmp_path, Completed(0, output, "")), ["8ccf2d1e"])
    assert found == FlowCounts(True, counts)


def test_a_cookie_has_its_leading_zeros(tmp_path: Path) -> None:
    said = Completed(0, PRINTED.replace("8ccf2d1e", "cf2d1e"), "")
    assert flows.count(_host(tmp_path, said), ["00cf2d1e"]).counts[0].packets == 7


@pytest.mark.parametrize(
    ("cookies", "said", "code"),
    [
        (["8ccf2d1e"], Completed(1, "", "ovs-ofctl: br-int is not a bridge or a socket\n"), ProblemCode.UNREADABLE),
        (["8ccf2d1e/0"], Completed(0, "", ""), ProblemCode.BAD_REQUEST),
        (["8CCF2D1E"], Completed(0, "", ""), ProblemCode.BAD_REQUEST),
        (["8ccf2d1e"] * 1025, Completed(0, "", ""), ProblemCode.BAD_REQUEST),
    ],
)
def test_what_cannot_be_counted_is_a_problem(
    cookies: list[str], said: Completed, code: ProblemCode, tmp_path: Path
) -> None:
    with pytest.raises(Problem) as caught:
        flows.count(_host(tmp_path, said), cookies)
    assert caught.value.code is code


def test_a_simulated_host_counts_where_a_vm_runs(tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    request = Request("flows", counted=FlowQuestion(("00000007", "8ccf2d1e")))
    assert request_from_json(request_to_json(request)) == request
    assert answer(simulated.host, request).flows == FlowCounts(False)
    simulated.done(SetOvnDaemon("switch", True), SetOvnDaemon("controller", True))
    start(simulated.files, vm_uuid(0), "acme.web", [])
    reply = answer(simulated.host, request)
    assert reply_from_json(reply_to_json(reply)) == reply
    assert reply.flows is not None
    assert [one.cookie for one in reply.flows.counts] == ["00000007", "8ccf2d1e"]
    assert reply.flows.counts[0].packets >= 14
