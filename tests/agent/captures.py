# SPDX-License-Identifier: Apache-2.0
"""Captures of machines in this process: recorded by the agent's code, replayed by the lab's door."""

import json
from pathlib import Path
from typing import Any

from vgpuctl.agent.dispatch import answer, read_facts, record
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Request, reply_to_json
from vgpuctl.model.anonymous import Anonymiser
from vgpuctl.model.capture import Capture, recording_from
from vgpuctl.model.host_target import HostTarget
from vgpuctl.usecases.host.record_host import anonymous_capture
from vgpuctl_lab.simulated.machine.replayed_host import CAPTURE, ReplayedHost

CALLS = ("facts", "health", "diagnostics", "readings")
TARGET = HostTarget("gpu1.example.net", "gpu1.example.net", user="operator7")
# Values of clocks, and values that a replay makes itself.
_CLOCKS = {"read_at", "read_at_s", "monotonic_s", "machine_id", "kernel_command_line", "writes", "log_begins_s"}
_CLOCK_MEASURES = {"reading_seconds", "reading_cpu_seconds"}


def captured(host: Host) -> tuple[Capture, Anonymiser]:
    """Record a machine and replace its names."""
    return anonymous_capture(read_facts(host), recording_from(record(host)), {}, TARGET)


def replayed(capture: Capture, folder: Path) -> ReplayedHost:
    """The machine of a capture, in a new folder."""
    folder.mkdir(parents=True)
    (folder / CAPTURE).write_text(json.dumps({"machine": capture.machine, "libvirt": capture.libvirt}))
    return ReplayedHost(str(folder))


def asked(host: Host, call: str) -> Any:
    """The agent's answer to a call, without clocks."""
    return without_clocks(reply_to_json(answer(host, Request(call))))


def without_clocks(value: Any) -> Any:
    """A JSON value without what a clock told."""
    if isinstance(value, dict):
        return {key: without_clocks(one) for key, one in value.items() if key not in _CLOCKS}
    if isinstance(value, list):
        return [without_clocks(one) for one in value if not (isinstance(one, list) and one[:1] and _is_clock(one[0]))]
    return value


def _is_clock(name: object) -> bool:
    return isinstance(name, str) and name in _CLOCK_MEASURES
