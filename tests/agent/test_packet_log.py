# SPDX-License-Identifier: Apache-2.0
"""Logged packets in ovn-controller's log: new lines alone, whole ones, in bounds, whatever is written there."""

from pathlib import Path

import pytest

from tests.agent.simulated import Machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.facts import packet_log
from vgpuctl.agent.wire.envelope import Problem, Request, request_from_json, request_to_json
from vgpuctl.agent.wire.packet_log import LogMark, LogQuestion, PacketLog

FLOW = "tcp,vlan_tci=0x0000,dl_src=52:54:00:00:00:01,nw_src=10.0.0.2,nw_dst=10.0.0.3,tp_src=4000,tp_dst=81"
RULE = "acme/web deny:tcp:81"


def _line(name: str = RULE, verdict: str = "drop", flow: str = FLOW, second: int = 1) -> str:
    head = f"2026-11-30T20:00:{second:02}.345Z|00012|acl_log(ovn_pinctrl0)|INFO"
    return f'{head}|name="{name}", verdict={verdict}, severity=info, direction=to-lport: {flow}\n'


OTHER = "2026-11-30T20:00:00.000Z|00001|ovsdb_cs|INFO|unix:/run/ovn/ovnsb_db.sock: clustered database server\n"


class Log:
    """The log of a simulated host."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder, "a40")
        self.path = self.machine.files.root / packet_log.LOG.lstrip("/")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(OTHER + _line(second=0))
        self.mark: LogMark | None = None
        self.read()

    def add(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def read(self) -> PacketLog:
        request = Request("packet-log", log=LogQuestion(self.mark))
        assert request_from_json(request_to_json(request)) == request
        reply = answer(self.machine.host, request)
        assert reply.problem is None and reply.log is not None, reply.problem
        self.mark = reply.log.mark
        return reply.log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_the_new_lines_of_a_rule_are_one_entry(log: Log) -> None:
    log.add(_line(second=1) + OTHER + _line(second=2, flow="udp,x") + _line(verdict="allow", second=3))
    first, second = log.read().rules
    assert (first.name, first.verdict, first.direction, first.lines) == (RULE, "drop", "to-lport", 2)
    assert (first.first_at, first.first) == ("2026-11-30T20:00:01.345Z", FLOW)
    assert (first.last_at, first.last) == ("2026-11-30T20:00:02.345Z", "udp,x")
    assert (second.verdict, second.lines) == ("allow", 1)
    assert log.read().rules == ()


def test_a_line_that_is_being_written_waits(log: Log) -> None:
    text = _line()
    log.add(text[:50])
    assert log.read().rules == ()
    log.add(text[50:])
    assert [one.lines for one in log.read().rules] == [1]


def test_a_rotated_and_a_cut_log_are_read_from_their_beginning(log: Log) -> None:
    log.path.rename(log.path.with_suffix(".1"))
    log.path.write_text(OTHER + _line() + _line(second=2))
    assert [one.lines for one in log.read().rules] == [2]
    log.path.write_text(_line())
    assert [one.lines for one in log.read().rules] == [1]


def test_a_flood_is_cut_from_its_beginning(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_log, "_READ_AT_MOST", 10 * len(_line()) + 7)
    log.add(_line() * 1000)
    found = log.read()
    assert found.skipped_bytes > 900 * len(_line())
    assert [one.lines for one in found.rules] == [10]


def test_rules_are_bounded(log: Log) -> None:
    log.add("".join(_line(f"acme/web tcp:{number}") for number in range(300)))
    found = log.read()
    assert (len(found.rules), found.others) == (256, 44)


@pytest.mark.parametrize(
    "text",
    [
        _line().replace('name="acme', "name=acme"),
        _line().replace("drop", "DROP\x1b[2J"),
        _line("a" * 64),
        _line().replace("direction=to-lport: ", "direction="),
        _line().replace("2026-11-30T20:00:01.345Z", "yesterday"),
        _line().replace("INFO", "ERR"),
    ],
)
def test_a_damaged_line_is_counted_and_harms_no_other(log: Log, text: str) -> None:
    log.add(text + _line())
    found = log.read()
    assert [one.lines for one in found.rules] == [1]
    assert found.damaged == 1


def test_bytes_that_are_no_text_and_long_packets_are_cut(log: Log) -> None:
    with log.path.open("ab") as file:
        file.write(b"\xff\xfe|1|acl_log(x\n" + _line(flow="x" * 10_000).encode())
    (rule,) = log.read().rules
    assert rule.first == "x" * 400


def test_a_missing_log_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="is not there"):
        packet_log.read(Machine(tmp_path, "a40").host, None)
