# SPDX-License-Identifier: Apache-2.0
"""Bytes and packets of VMs: a controller compares the counters of two readings of a host, and adds the increase to the
ledger.

The counters are libvirt's, of each interface of a VM, and begin at 0 with its QEMU. So the traffic between a VM's last
reading and its end is in no ledger, and that of a time without a controller is, if the QEMU is the same afterwards.
"""

from collections.abc import Collection

import msgspec

from vgpuctl import typed_json
from vgpuctl.agent.wire.readings import HostReadings, Measured
from vgpuctl.quota.traffic import Counters, HostCounters, TrafficCount, TrafficKind, increases
from vgpuctl.store.store import Session

_KIND = "traffic"
_MOST_DEVICES = 32
"""Of one VM; the agent tells no more (agent/readings/vms.py)."""
_COUNTED = (
    "network_received_bytes",
    "network_sent_bytes",
    "network_received_packets",
    "network_sent_packets",
)


def note_traffic(session: Session, host: str, readings: HostReadings) -> None:
    """Add to the ledger, in the caller's transaction, what the host's VMs carried since its last reading."""
    vms = {vm.uuid.lower(): vm for vm in session.vms(host=host)}
    adopted = {uuid for uuid, vm in vms.items() if vm.is_adopted}
    before, now = _last(session, host), _counters(readings, vms)
    for uuid, carried in increases(before, now, adopted).items():
        vm = vms[uuid]
        session.add_traffic(vm.request.tenant, TrafficKind.VM, vm.uuid, vm.request.name, carried, at=session.now())
    kept = _kept(before, now, vms)
    if kept != before:
        session.save_host_record(host, _KIND, msgspec.json.encode(kept).decode())


def _kept(before: HostCounters | None, now: HostCounters, vms: Collection[str]) -> HostCounters:
    """The counters with which the next reading is compared. A VM that this reading lacks keeps its last ones."""
    if before is None or before.boot_id != now.boot_id:
        return now
    return HostCounters(now.boot_id, {**{uuid: one for uuid, one in before.vms.items() if uuid in vms}, **now.vms})


def _counters(readings: HostReadings, vms: Collection[str]) -> HostCounters:
    """The counters of each of these VMs whose interfaces were all told. A host is believed about its own VMs alone."""
    found = {}
    for vm in readings.vms:
        devices = {labels[0] for name in _COUNTED for labels, _value in vm.measured.all(name) if len(labels) == 1}
        if vm.uuid.lower() not in vms or len(devices) > _MOST_DEVICES:
            continue
        counted = {device: _of_device(vm.measured, device) for device in sorted(devices)}
        whole = {device: one for device, one in counted.items() if one is not None}
        if len(whole) == len(counted) and vm.measured.why_missing(_COUNTED[0]) is None:
            started_s = vm.measured.get("start_since_boot_seconds")
            found[vm.uuid.lower()] = Counters(started_s, whole)
    return HostCounters(readings.boot_id, found)


def _of_device(measured: Measured, device: str) -> TrafficCount | None:
    numbers = [measured.get(name, device) for name in _COUNTED]
    known = [int(one) for one in numbers if one is not None]
    return TrafficCount(*known) if len(known) == len(numbers) else None


def _last(session: Session, host: str) -> HostCounters | None:
    """The counters of the last reading; a record of another version of vgpuctl counts as none."""
    record = session.host_record(host, _KIND)
    if record is None:
        return None
    try:
        found: HostCounters = typed_json.decode(record.content, HostCounters)
    except msgspec.MsgspecError:
        return None
    return found
