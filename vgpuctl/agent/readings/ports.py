# SPDX-License-Identifier: Apache-2.0
"""The ports of VMs in networks of OVN: what Open vSwitch's database says of their interfaces on this host.

ovn-controller writes `ovn-installed` to an interface after the switch has all flows of its port, and removes it when it
releases the port (ovn-controller(8)). libvirt writes `iface-id`, the name of the port in OVN.
"""

import json
from typing import Any, Dict, Iterable, Mapping, Tuple, Union

from vgpuctl.agent.facts import ovn
from vgpuctl.agent.host import Host
from vgpuctl.agent.readings.domains import RunningDomain
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.envelope import Problem

NAME = "network_port_up"
NOT_READ = "a mistake kept the ports from being read"
_COLUMNS = ("name", "external_ids", "ofport")
_TIMEOUT_S = 10.0
_OUTPUT_AT_MOST = 16 << 20
Carried = Union[str, Mapping[str, Tuple[str, bool]]]
"""OVN's port of each interface, and whether its flows are installed; or why nobody knows."""


def read(host: Host, domains: Iterable[RunningDomain]) -> Carried:
    """Ask Open vSwitch's database once for all interfaces, where a VM has one there."""
    if not any(domain.ports for domain in domains):
        return {}
    if not ovn.is_running(host, "controller"):
        return "ovn-controller does not run on the host"
    operation = {"op": "select", "table": "Interface", "where": [], "columns": list(_COLUMNS)}
    text = json.dumps(["Open_vSwitch", operation])
    argv = ["ovsdb-client", "--timeout=5", "transact", f"unix:{ovn.DATABASE}", text]
    try:
        done = host.run(argv, timeout_s=_TIMEOUT_S)
    except Problem as problem:
        return problem.message
    if done.status != 0 or len(done.output) > _OUTPUT_AT_MOST:
        said = (done.errors.strip().splitlines() or [f"{len(done.output)} characters"])[-1][:200]
        return f"Open vSwitch's database cannot be read: {said}"
    try:
        return _parsed(json.loads(done.output)[0]["rows"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return "Open vSwitch's database does not answer as one"


def record(found: Recorder, domain: RunningDomain, carried: Carried) -> None:
    """Record each interface of a VM that Open vSwitch carries."""
    for device, port in domain.ports:
        if isinstance(carried, str):
            found.unread(NAME, carried)
        else:
            found.add(NAME, float(carried.get(device) == (port, True)), device, port)


def _parsed(rows: Iterable[Mapping[str, Any]]) -> Dict[str, Tuple[str, bool]]:
    found = {}
    for row in rows:
        ids = dict(row["external_ids"][1])
        # An interface that the switch could not open has no port number, or -1.
        number = row["ofport"]
        is_open = isinstance(number, int) and number > 0
        found[str(row["name"])] = (
            str(ids.get("iface-id", "")).lower(),
            is_open and ids.get("ovn-installed") == "true",
        )
    return found
