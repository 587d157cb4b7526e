# SPDX-License-Identifier: Apache-2.0
"""Counted flows and logged packets of a host that lies are refused, with the field."""

from dataclasses import replace

import pytest

from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.flows import FlowCount, FlowCounts
from vgpuctl.agent.wire.packet_log import LoggedRule, LogMark, PacketLog
from vgpuctl.hosts.network_check import check_flows, check_packet_log

COUNT = FlowCount("8ccf2d1e", 3, 300, 12.5)
AT = "2026-11-30T20:00:01.345Z"
RULE = LoggedRule("acme/web tcp:80", "allow", "to-lport", 2, AT, "tcp", AT, "tcp")
LOG = PacketLog(LogMark(7, 100), (RULE,))


def test_what_a_host_can_have_is_accepted() -> None:
    check_flows(FlowCounts(True, (COUNT,)))
    check_packet_log(LOG)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((replace(COUNT, packets=-1),), r"flows\.counts\[0\]"),
        ((COUNT, replace(COUNT, bytes=2**63)), r"flows\.counts\[1\]"),
        ((replace(COUNT, age_s=float("nan")),), "age_s"),
        ((replace(COUNT, age_s=-1.0),), "age_s"),
        ((COUNT,) * 1025, "1025 counts"),
    ],
)
def test_counts_that_no_switch_has_are_refused(counts: tuple[FlowCount, ...], said: str) -> None:
    with pytest.raises(WireError, match=said):
        check_flows(FlowCounts(True, counts))


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (replace(LOG, mark=LogMark(-1, 0)), "log"),
        (replace(LOG, mark=LogMark(0, 2**64)), "log"),
        (replace(LOG, skipped_bytes=-5), "log"),
        (replace(LOG, rules=(RULE,) * 257), "257 entries"),
        (replace(LOG, rules=(replace(RULE, lines=2**70),)), r"log\.rules\[0\]"),
        (replace(LOG, rules=(RULE, replace(RULE, last_at="now"))), r"log\.rules\[1\]"),
        (replace(LOG, rules=(replace(RULE, first="x" * 401),)), "401|400 characters"),
    ],
)
def test_lines_that_no_log_has_are_refused(log: PacketLog, said: str) -> None:
    with pytest.raises(WireError, match=said):
        check_packet_log(log)
