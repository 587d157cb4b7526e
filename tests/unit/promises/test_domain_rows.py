# SPDX-License-Identifier: Apache-2.0
"""Rows about the running domain: kept for what the template renders, broken in the right row for each difference."""

from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.unit.guests import cases
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.guests.domain.disk_view import DiskView
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import domain_view
from vgpuctl.guests.facts.running_domain import running_domain
from vgpuctl.model.disk import DataDisk, DiskRequest
from vgpuctl.model.display import DisplayKind, DisplayRequest, VgpuDisplay, VideoModel
from vgpuctl.model.interfaces import interfaces_of
from vgpuctl.model.lease import LeaseState
from vgpuctl.model.network import Attachment, Backend, Network, NetworkRequest, NetworkState, Port
from vgpuctl.model.network_seen import Checked, NetworksSeen, PortPlace
from vgpuctl.model.nic import NicRequest
from vgpuctl.model.numa import NumaCell
from vgpuctl.model.promise import Moment, PromiseRow, PromiseVerdict, Witness
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware, Vm, VmRequest
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState
from vgpuctl.promises.compare import compare, may_wait, with_waiting
from vgpuctl.promises.witnessed import (
    NotLookedAt,
    PortSeen,
    Promised,
    PromisedGateway,
    PromisedMember,
    Witnessed,
)

GIB = 2**30
NETWORK = Network(
    "8d0c6f0e-5a1b-4a44-9d0b-0e0c0d0e0f00",
    NetworkRequest("front", "acme", "10.0.0.0/24", host="gpu1"),
    NetworkState.CREATED,
)
CARRIED = Network(
    "8d0c6f0e-5a1b-4a44-9d0b-0e0c0d0e0f01",
    NetworkRequest("blue", "acme", "10.0.1.0/24", backend=Backend.OVN),
    NetworkState.CREATED,
)
FRONT = Attachment(NETWORK, Port("port-1", NETWORK.id, cases.VM_UUID, 1, "52:54:00:00:00:01", "10.0.0.5"))
BLUE = Attachment(CARRIED, Port("port-2", CARRIED.id, cases.VM_UUID, 2, "52:54:00:00:00:02", "10.0.1.5"))
SHARE = cases.vgpu("0000:41:00.0", Sharing.MDEV, "0000:41:00.0", cases.MDEV_UUID)
REQUEST = replace(
    cases.FULL_REQUEST,
    disk=DiskRequest(20480, iops=500, mbps=100),
    data_disks=(DataDisk("data", 1024),),
    nics=(NicRequest("front", bandwidth_mbps=1000), NicRequest("blue", bandwidth_mbps=200)),
    hugepages_kib=2048,
    cpu_limit=50,
    cpu_weight=200,
    tpm=Switch.ON,
    firmware=Firmware.UEFI,
    display=DisplayRequest(DisplayKind.VNC, VideoModel.VIRTIO, VgpuDisplay.ON),
)
VM = cases.on(REQUEST, NumaCell(0, 4, 8192, (2, 3, 4, 5)))


def _volume(kind: VolumeKind, label: str, size: int) -> Volume:
    path = f"/pool/{label or 'disk'}.qcow2"
    return Volume(
        *(VM.uuid, "acme", "web-1", "gpu1", kind, "default", path.rpartition("/")[2], VolumeState.MADE),
        capacity_bytes=size,
        path=path,
        label=label,
    )


DISKS = {"": _volume(VolumeKind.DISK, "", 20 * GIB), "data": _volume(VolumeKind.DATA, "data", GIB)}
LEASES = [replace(one, state=LeaseState.RUNNING) for one in cases.leases(SHARE)]
PROMISED = Promised(VM, LEASES, interfaces_of(REQUEST), (FRONT, BLUE), DISKS)
PORTS = {"port-2": PortSeen(is_up=True, addresses=frozenset(["52:54:00:00:00:02 10.0.1.5"]), mbps=200)}


def _xml(vm: Vm = VM) -> str:
    view = domain_view(
        vm,
        LEASES,
        cases.facts(cases.A40, numa_nodes=2),
        disk=DiskView("/pool/disk.qcow2"),
        data_disks={"data": DiskView("/pool/data.qcow2")},
        seed_path=None,
        attachments=(FRONT, BLUE),
        floating={0: (0, 1), 1: (8, 9)},
    )
    return render_domain(view).replace("<memory unit='MiB'>8192<", f"<memory unit='KiB'>{8192 * 1024}<")  # as it dumps


def _seen(xml: str) -> Witnessed:
    sizes = {"/pool/disk.qcow2": 20 * GIB, "/pool/data.qcow2": GIB}
    return Witnessed(
        kernel=NotLookedAt("not asked here"),
        domain=running_domain(xml),
        active_networks={"default", NETWORK.host_name},
        ports=PORTS,
        sizes=sizes,
    )


def _of_domain(seen: Witnessed, promised: Promised = PROMISED) -> dict[str, PromiseVerdict]:
    found = compare(promised, seen, Moment.CHECK)
    witnesses = (Witness.LIBVIRT, Witness.OVN)
    rows: dict[str, PromiseVerdict] = {}
    for one in found:
        if one.row.witness in witnesses and rows.get(str(one)) is not PromiseVerdict.BROKEN:
            rows[str(one)] = one.verdict
    return rows


def test_everything_that_is_rendered_is_kept() -> None:
    rows = _of_domain(_seen(_xml()))
    assert set(rows.values()) == {PromiseVerdict.KEPT}
    assert list(rows) == [
        "vcpus", "memory", "disks", "disks data", "interfaces default", "interfaces front", "interfaces blue",
        "ports blue", "display", "tpm",
    ]  # fmt: skip


def _one(text: str, by: str) -> Callable[[str], str]:
    def change(xml: str) -> str:
        assert text in xml, text
        return xml.replace(text, by, 1)

    return change


def _without(begin: str, end: str) -> Callable[[str], str]:
    def change(xml: str) -> str:
        first = xml.index(begin)
        return xml[:first] + xml[xml.index(end, first) + len(end) :]

    return change


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (_one("<vcpu placement='static'>4<", "<vcpu placement='static' current='2'>4<"), "vcpus"),
        (_one("<vcpu placement='static'>4<", "<vcpu placement='static'>8<"), "vcpus"),
        (_one("vcpupin vcpu='1' cpuset='3'", "vcpupin vcpu='1' cpuset='0-7'"), "vcpus"),
        (_without("<vcpupin vcpu='1'", "/>"), "vcpus"),
        (_one("<shares>200<", "<shares>1000<"), "vcpus"),
        (_one("<quota>50000<", "<quota>-1<"), "vcpus"),
        (_one("<period>100000<", "<period>50000<"), "vcpus"),
        (_one("<memory unit='KiB'>8388608</memory>", "<memory unit='KiB'>4194304</memory>"), "memory"),
        (_one("8388608</memory>", "8388608</memory><currentMemory unit='KiB'>1048576</currentMemory>"), "memory"),
        (_without("<memoryBacking>", "</memoryBacking>"), "memory"),
        (_one("<page size='2048'", "<page size='1048576'"), "memory"),
        (_one("mode='strict' nodeset='0'", "mode='strict' nodeset='1'"), "memory"),
        (_without("<numatune>", "</numatune>"), "memory"),
        (_one("/pool/disk.qcow2", "/pool/other.qcow2"), "disks"),
        (_without("<iotune>", "</iotune>"), "disks"),
        (_one("<total_iops_sec>500<", "<total_iops_sec>50<"), "disks"),
        (_one("/pool/data.qcow2", "/pool/other.qcow2"), "disks data"),
        (_one("52:54:00:00:00:01", "52:54:00:00:00:99"), "interfaces front"),
        (_one("<mac address='52:54:00:00:00:01'/>", "<mac address='52:54:00:00:00:01'/><link state='down'/>"),
         "interfaces front"),
        (_one("<inbound average='122070'/>", "<inbound average='10'/>"), "interfaces front"),
        (_one("name='IP' value='10.0.0.5'", "name='IP' value='10.0.0.6'"), "interfaces front"),
        (_one("<source network='default'/>", "<source network='other'/>"), "interfaces default"),
        (_one("interfaceid='port-2'", "interfaceid='port-3'"), "interfaces blue"),
        (_one("<graphics type='vnc'>", "<graphics type='spice'>"), "display"),
        (_one("<model type='virtio'/>\n      <address type='pci' domain='0x0000' bus='0x00' slot='0x01'",
              "<model type='vga'/>\n      <address type='pci' domain='0x0000' bus='0x00' slot='0x01'"), "display"),
        (_one(" display='on'", " display='off'"), "display"),
        (_without("<tpm ", "</tpm>"), "tpm"),
        (_one("version='2.0'", "version='1.2'"), "tpm"),
    ],
)  # fmt: skip
def test_each_difference_breaks_its_own_row(change: Callable[[str], str], row: str) -> None:
    rows = _of_domain(_seen(change(_xml())))
    assert [name for name, verdict in rows.items() if verdict is PromiseVerdict.BROKEN] == [row]


@pytest.mark.parametrize(
    ("seen", "row"),
    [
        (replace(_seen(_xml()), active_networks={"default"}), "interfaces front"),
        (replace(_seen(_xml()), active_networks={NETWORK.host_name}), "interfaces default"),
        (replace(_seen(_xml()), sizes={"/pool/disk.qcow2": GIB, "/pool/data.qcow2": GIB}), "disks"),
        (replace(_seen(_xml()), ports={}), "ports blue"),
        (replace(_seen(_xml()), ports={"port-2": replace(PORTS["port-2"], is_up=False)}), "ports blue"),
        (replace(_seen(_xml()), ports={"port-2": replace(PORTS["port-2"], mbps=None)}), "ports blue"),
        (replace(_seen(_xml()), ports={"port-2": replace(PORTS["port-2"], addresses=frozenset(["x"]))}), "ports blue"),
    ],
)
def test_what_another_witness_shows_breaks_the_row(seen: Witnessed, row: str) -> None:
    rows = _of_domain(seen)
    assert [name for name, verdict in rows.items() if verdict is PromiseVerdict.BROKEN] == [row]


_NOT_OF_EVERY_VM = (
    PromiseRow.GATEWAY,
    PromiseRow.BALANCERS,
    PromiseRow.RUNS_ONCE,
    PromiseRow.GPU_STATE,
    PromiseRow.PARTITION,
    PromiseRow.VF_PARAMS,
    PromiseRow.COMPUTE_PROMISE,
    PromiseRow.LICENCE_EDITION,
    PromiseRow.GPU_PEERS,
    PromiseRow.MPS,
    PromiseRow.RESTART,
)


def test_a_witness_that_is_silent_keeps_nothing() -> None:
    silent = NotLookedAt("gpu1 does not answer")
    answers: dict[str, Any] = {one.name: silent for one in fields(Witnessed) if one.name != "elsewhere"}
    seen = Witnessed(**answers)
    found = compare(PROMISED, seen, Moment.CHECK)
    assert {one.verdict for one in found} == {PromiseVerdict.NOT_LOOKED_AT}
    assert {one.row for one in found} >= {row for row in PromiseRow if row not in _NOT_OF_EVERY_VM}
    assert all("gpu1 does not answer" in one.why and not one.seen and one.promised for one in found)


@pytest.mark.parametrize(
    ("carrier", "verdict", "seen"),
    [
        ("gpu1", PromiseVerdict.KEPT, "gpu1 carries it"),
        ("gpu2", PromiseVerdict.KEPT, "gpu2 carries it, and gpu1 is the first one"),
        ("", PromiseVerdict.BROKEN, "no chassis carries it"),
        ("gpu9", PromiseVerdict.BROKEN, "gpu9 carries it, and gpu1 is the first one"),
        (NotLookedAt("OVN's southbound database was not named"), PromiseVerdict.NOT_LOOKED_AT, ""),
    ],
)
def test_the_way_out_is_kept_by_a_chassis_of_the_external_network(
    carrier: str | NotLookedAt, verdict: PromiseVerdict, seen: str
) -> None:
    promised = replace(PROMISED, gateway=PromisedGateway("internet", "vgo_1", ("gpu1", "gpu2")))
    found = [
        one
        for one in compare(promised, replace(_seen(_xml()), carrier=carrier), Moment.CHECK)
        if one.row is PromiseRow.GATEWAY
    ]
    assert [(one.subject, one.verdict, one.seen) for one in found] == [("internet", verdict, seen)]
    assert [one for one in compare(promised, _seen(_xml()), Moment.LOOK) if one.row is PromiseRow.GATEWAY] == []


def _places(chassis: str | None = "gpu1", *statuses: str | None) -> NetworksSeen:
    checks = {one: status for one, status in zip(SHOP.checked, statuses, strict=False) if status is not None}
    return NetworksSeen({"port-2": PortPlace(chassis, is_up=True)}, checks)


SHOP = PromisedMember("shop", tuple(Checked("port-2", address, 80, "tcp") for address in ("10.0.1.5", "fd00::5")))
ADDRESS = "52:54:00:00:00:02 10.0.1.5, 200 Mbit/s"


@pytest.mark.parametrize(
    ("places", "chassis", "verdict", "seen"),
    [
        (_places(), "gpu1", PromiseVerdict.KEPT, f"up on gpu1, {ADDRESS}"),
        (_places("gpu2"), "gpu1", PromiseVerdict.BROKEN, f"up on gpu2, {ADDRESS}"),
        (_places(None), "gpu1", PromiseVerdict.BROKEN, f"up on no chassis, {ADDRESS}"),
        (NetworksSeen({}, {}), "gpu1", PromiseVerdict.BROKEN, f"up on no chassis, {ADDRESS}"),
        (_places("gpu2"), None, PromiseVerdict.KEPT, f"up, {ADDRESS}"),
        (NotLookedAt("OVN's southbound database was not named"), "gpu1", PromiseVerdict.KEPT, f"up, {ADDRESS}"),
    ],
)
def test_a_port_is_on_the_chassis_of_the_vms_host_where_the_southbound_database_tells(
    places: NetworksSeen | NotLookedAt, chassis: str | None, verdict: PromiseVerdict, seen: str
) -> None:
    found = compare(replace(PROMISED, chassis=chassis), replace(_seen(_xml()), places=places), Moment.CHECK)
    assert [(one.verdict, one.seen) for one in found if one.row is PromiseRow.PORTS] == [(verdict, seen)]


@pytest.mark.parametrize(
    ("places", "verdict", "said"),
    [
        (_places("gpu1", "online", "online"), PromiseVerdict.KEPT, "10.0.1.5 tcp/80 online, fd00::5 tcp/80 online"),
        (_places("gpu1", "online", "offline"), PromiseVerdict.BROKEN, "10.0.1.5 tcp/80 online, fd00::5 tcp/80 offline"),
        (_places("gpu1", "error", None), PromiseVerdict.BROKEN, "10.0.1.5 tcp/80 error"),
        (_places("gpu1", "online", ""), PromiseVerdict.NOT_LOOKED_AT, "OVN has not checked fd00::5"),
        (_places(), PromiseVerdict.NOT_LOOKED_AT, "OVN has not checked 10.0.1.5, fd00::5"),
        (NotLookedAt("no answer"), PromiseVerdict.NOT_LOOKED_AT, "no answer"),
    ],
)
def test_a_member_of_a_balancer_answers_its_health_checks(
    places: NetworksSeen | NotLookedAt, verdict: PromiseVerdict, said: str
) -> None:
    promised = replace(PROMISED, members=(SHOP,))
    found = compare(promised, replace(_seen(_xml()), places=places), Moment.CHECK)
    (row,) = [one for one in found if one.row is PromiseRow.BALANCERS]
    assert (row.subject, row.verdict, row.seen or row.why) == ("shop", verdict, said)
    assert [one for one in compare(promised, _seen(_xml()), Moment.LOOK) if one.row is PromiseRow.BALANCERS] == []


def test_a_domain_of_it_that_another_host_runs_breaks_the_promise_whatever_its_own_host_says() -> None:
    twice = replace(_seen(_xml()), elsewhere=[("gpu2", "domain acme.web is running")])
    (broken,) = [one for one in compare(PROMISED, twice, Moment.CHECK) if one.is_broken]
    assert (broken.row, broken.seen) == (PromiseRow.RUNS_ONCE, "on gpu2 too: domain acme.web is running")


def test_what_the_vm_gets_at_its_next_start_waits_and_what_was_taken_away_is_broken() -> None:
    running = _without("<disk type='file' device='disk'>", "</disk>")(_xml())
    findings = compare(PROMISED, _seen(running), Moment.LOOK)
    assert may_wait(findings)

    def disk(definition: str, known: Collection[tuple[PromiseRow, str, str]] = ()) -> tuple[PromiseVerdict, str]:
        found = with_waiting(findings, PROMISED, running_domain(definition), known)
        one = next(one for one in found if str(one) == "disks")
        return one.verdict, one.why

    assert disk(_xml()) == (PromiseVerdict.NOT_LOOKED_AT, "it waits for the VM's next start")
    kept = {(one.row, one.subject, one.promised) for one in compare(PROMISED, _seen(_xml()), Moment.LOOK)}
    assert disk(_xml(), kept) == (PromiseVerdict.BROKEN, "")
    assert disk(running) == (PromiseVerdict.BROKEN, "")


def test_a_plain_vm_is_promised_no_more_than_it_asked_for() -> None:
    request = VmRequest(name="web-1", tenant="acme", network=None)
    seen = Witnessed(domain=running_domain("<domain><vcpu>2</vcpu><memory unit='KiB'>2097152</memory></domain>"))
    found = compare(Promised(cases.vm(request)), seen, Moment.CHECK)
    assert [(str(one), one.verdict) for one in found] == [
        ("vcpus", PromiseVerdict.KEPT),
        ("memory", PromiseVerdict.KEPT),
    ]
