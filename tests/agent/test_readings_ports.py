# SPDX-License-Identifier: Apache-2.0
"""The ports of VMs in networks of OVN, as Open vSwitch and ovn-controller of the host tell them."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.measured import read, vm_uuid
from tests.agent.simulated import Machine
from vgpuctl.agent.host import Completed
from vgpuctl.agent.readings import domains, ports
from vgpuctl.agent.readings.domains import RunningDomain
from vgpuctl.agent.wire.readings import Measured
from vgpuctl.agent.wire.steps import SetOvnDaemon
from vgpuctl_lab.simulated.machine.domains import start
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

FIRST, SECOND = "aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002"
XML = """<domain type='kvm'><name>acme.web</name><uuid>{uuid}</uuid><memory unit='KiB'>1048576</memory><devices>
<interface type='bridge'><source bridge='br-int'/>
<virtualport type='openvswitch'><parameters interfaceid='{first}'/></virtualport></interface>
<interface type='network'><source network='default'/></interface>
<interface type='bridge'><source bridge='br-int'/>
<virtualport type='openvswitch'><parameters interfaceid='{second}'/></virtualport></interface>
</devices></domain>"""


def _machine(folder: Path, host: type[SimulatedHost] = SimulatedHost) -> Machine:
    simulated = Machine(folder, "a40", host=host)
    simulated.done(SetOvnDaemon("switch", True), SetOvnDaemon("controller", True))
    xml = XML.format(uuid=vm_uuid(0), first=FIRST, second=SECOND)
    start(simulated.files, vm_uuid(0), "acme.web", [], xml=xml)
    return simulated


def _measured(simulated: Machine) -> Measured:
    [vm] = read(simulated).vms
    return vm.measured


def test_a_port_is_up_when_its_flows_are_installed(tmp_path: Path) -> None:
    simulated = _machine(tmp_path)
    assert _measured(simulated).all("network_port_up") == ((("vnet0", FIRST), 1.0), (("vnet2", SECOND), 1.0))
    with simulated.files.change() as state:
        state.ovn.not_installed = [SECOND]
    assert _measured(simulated).all("network_port_up") == ((("vnet0", FIRST), 1.0), (("vnet2", SECOND), 0.0))


def test_nobody_knows_of_ports_without_ovn_controller(tmp_path: Path) -> None:
    simulated = _machine(tmp_path)
    simulated.done(SetOvnDaemon("controller", False))
    measured = _measured(simulated)
    assert measured.all("network_port_up") == ()
    assert "ovn-controller does not run" in (measured.why_missing("network_port_up") or "")
    assert measured.get("network_sent_bytes", "vnet0") is not None


class Said(SimulatedHost):
    """A host whose Open vSwitch says what the test wants."""

    said = Completed(0, "", "")

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        return self.said


def _row(**columns: object) -> dict[str, object]:
    ids = {"iface-id": FIRST, "ovn-installed": "true"}
    usual = {"name": "vnet0", "external_ids": ["map", [list(one) for one in ids.items()]], "ofport": 3}
    return {**usual, **columns}


DOMAIN = RunningDomain(vm_uuid(0), "acme.web", ports=(("vnet0", FIRST),))


@pytest.mark.parametrize(
    ("rows", "is_up"),
    [
        ([_row()], 1.0),
        ([_row(ofport=-1)], 0.0),
        ([_row(ofport=["set", []])], 0.0),
        ([_row(external_ids=["map", [["iface-id", FIRST]]])], 0.0),
        ([_row(external_ids=["map", [["iface-id", SECOND], ["ovn-installed", "true"]]])], 0.0),
        ([_row(name="vnet9")], 0.0),
        ([], 0.0),
    ],
    ids=["up", "not open", "no number yet", "no flows", "port of another", "other device", "gone"],
)
def test_a_port_is_down_unless_everything_says_that_it_is_up(rows: list[object], is_up: float, tmp_path: Path) -> None:
    simulated = _machine(tmp_path)
    host = Said(str(simulated.files.folder))
    host.said = Completed(0, json.dumps([{"rows": rows}]), "")
    found = ports.read(host, [DOMAIN])
    assert not isinstance(found, str)
    assert float(found.get("vnet0") == (FIRST, True)) == is_up


@pytest.mark.parametrize(
    ("output", "status", "said"),
    [
        ("", 1, "cannot be read"),
        ("{", 0, "does not answer as one"),
        ("[]", 0, "does not answer as one"),
        (json.dumps([{"error": "not allowed"}]), 0, "does not answer as one"),
        (json.dumps([{"rows": [7]}]), 0, "does not answer as one"),
        (json.dumps([{"rows": [_row(external_ids="none")]}]), 0, "does not answer as one"),
        (json.dumps([{"rows": [_row(external_ids=["map", [["one"]]])]}]), 0, "does not answer as one"),
        ("x" * ((16 << 20) + 1), 0, "cannot be read"),
    ],
)
def test_a_damaged_answer_is_a_reason(output: str, status: int, said: str, tmp_path: Path) -> None:
    simulated = _machine(tmp_path)
    host = Said(str(simulated.files.folder))
    host.said = Completed(status, output, "")
    found = ports.read(host, [DOMAIN])
    assert isinstance(found, str) and said in found


def test_a_host_without_such_ports_is_not_asked(tmp_path: Path) -> None:
    host = Said(str(_machine(tmp_path).files.folder))
    host.said = Completed(1, "", "nobody may ask")
    assert ports.read(host, [RunningDomain(vm_uuid(0), "acme.web")]) == {}


@pytest.mark.parametrize("port", ["", "x", "../../etc", "A" * 36, FIRST + "0"])
def test_a_port_of_another_form_is_none(port: str, tmp_path: Path) -> None:
    simulated = Machine(tmp_path, "a40")
    start(simulated.files, vm_uuid(0), "acme.web", [], xml=XML.format(uuid=vm_uuid(0), first=port, second=SECOND))
    (found,) = domains.read(simulated.host, []).values()
    assert [one for _device, one in found.ports] == [SECOND]
