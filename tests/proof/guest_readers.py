# SPDX-License-Identifier: Apache-2.0
"""Readers of what guests, their displays and licence services send, and of what is written of a VM's devices."""

import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from tests.proof.fuzz_readers import DATA, Reader, read_all, values
from vgpuctl.catalog import board, type_by_id
from vgpuctl.catalog.guest_os import parse_guest_os
from vgpuctl.catalog.osinfo import read_resources
from vgpuctl.catalog.vgpu_versions import parse_driver, ranges_of
from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.facts.capabilities import reported_hyperv
from vgpuctl.guests.facts.disk_facts import attachable_xml, disk_of, domain_disks, has_scsi_controller
from vgpuctl.guests.facts.graphics_facts import graphics_of, has_picture
from vgpuctl.guests.facts.guest_report import describe, read_report
from vgpuctl.guests.facts.nic_facts import find_place, interface_xml, macs_of
from vgpuctl.guests.facts.smi_log import read_smi_log
from vgpuctl.guests.facts.spare_ports import count_ports, free_ports, free_spare_port, take_port
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.screenshot import as_screenshot
from vgpuctl.guests.live.guest_agent import ask_probe
from vgpuctl.model.disk_chain import check_snapshot_name
from vgpuctl.model.licence_token import read_token, server_name
from vgpuctl.model.version import version_of
from vgpuctl.model.vgpu_params import parse_vgpu_param
from vgpuctl.specs.compact import compact
from vgpuctl.specs.vm_devices import DATA_DISK, NIC
from vgpuctl_lab.licence_token import licence_token

_UUID = "11111111-2222-4333-8444-555555555555"


def _bytes(content: bytes, _folder: Path, *, read: Callable[[bytes], Any]) -> Any:
    return read(content)


def _report(content: bytes) -> Any:
    report = read_report(content)
    return report, describe(report)


def _agent(content: bytes) -> Any:
    """A guest's agent that answers everything with this text."""
    answer = content.decode("utf-8", "surrogateescape")
    there = SimpleNamespace(host="gpu1", connection=SimpleNamespace(lookupByUUIDString=lambda _uuid: None))
    with mock.patch("libvirt_qemu.qemuAgentCommand", lambda *_: answer):
        return ask_probe(cast(Hypervisor, there), "acme.web", uuid=_UUID, is_windows=None, timeout_s=0)


def _picture(content: bytes) -> Any:
    shot = as_screenshot(content, where="acme.web")
    return shot.width, shot.height, len(shot.png)


def _devices(content: bytes) -> Any:
    """The disks, interfaces, ports and displays of a domain."""
    text = content.decode("utf-8", "surrogateescape")
    read: tuple[Callable[[str], Any], ...] = (
        *(domain_disks, has_scsi_controller, macs_of, free_ports, free_spare_port, count_ports, has_picture),
        partial(disk_of, serial="data"),
        partial(graphics_of, uuid=_UUID),
        partial(find_place, position=1),
        partial(find_place, position=0),
        partial(interface_xml, mac="52:54:00:00:00:01"),
        partial(take_port, domain="acme.web", device="disk data"),
    )
    found = []
    for one in read:
        try:
            found.append(one(text))
        except VgpuctlError as refused:
            found.append(refused.message)
    for disk in domain_disks(text):
        try:
            found.append(attachable_xml(text, text, disk.serial, domain="acme.web") if disk.serial else None)
        except VgpuctlError as refused:
            found.append(refused.message)
    return found


def _system(content: bytes, folder: Path) -> Any:
    place = folder / "os" / "debian.org"
    place.mkdir(parents=True, exist_ok=True)
    (place / "debian-12.xml").write_bytes(content)
    return read_resources.__wrapped__("debian.org/debian-12", (str(folder),))


def _driver(text: str) -> Any:
    found = parse_driver(text)
    return None if found is None else (found, ranges_of(*found))


_GPU = {"name": "NVIDIA A40-8Q", "uuid": "GPU-1", "memory_mib": 8192, "licence": "Licensed (Expiry: 2026-1-1)"}
_TOLD = {
    "version": 1, "driver": "570.133.20", "open_module": True, "gpus": [_GPU], "cuda_devices": 1, "cuda_copies": 1,
    "peer_copies": [{"source": 0, "target": 1, "problem": None, "mib_s": 350_000}],
    "errors": ["nvidia-smi: none"], "kernel_log": ["NVRM: Xid"],
}  # fmt: skip
_REPORT = json.dumps(_TOLD).encode()
_DONE = {"pid": 7, "exited": True, "exitcode": 0, "out-data": base64.b64encode(_REPORT).decode()}
_STATUS = json.dumps({"return": _DONE}).encode()
_PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNg+M8AAAICAQB7CYF4AAAAAElFTkSuQmCC")
_PPM = b"P6\n# of QEMU\n2 2\n255\n" + bytes(range(12))
_SYSTEM = b"""<libosinfo version="0.0.1"><os id="http://debian.org/debian/12"><resources arch="x86_64">
<minimum><ram>536870912</ram><storage>4294967296</storage></minimum>
<recommended><n-cpus>1</n-cpus><ram>1073741824</ram></recommended></resources></os></libosinfo>"""
_SMI = b"""<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "a.dtd"><nvidia_smi_log>
<driver_version>573.48</driver_version><gpu><uuid>GPU-1</uuid><fb_memory_usage><total>8192 MiB</total>
</fb_memory_usage></gpu></nvidia_smi_log>"""
_HYPERV = (
    "<domainCapabilities><features><hyperv supported='yes'><enum name='features'><value>relaxed</value>"
    "<value>vpindex</value></enum></hyperv></features></domainCapabilities>"
)


def _encoded(document: bytes, *names: str) -> tuple[bytes, ...]:
    """The document, said to be in each of these encodings."""
    return tuple(f'<?xml version="1.0" encoding="{name}"?>'.encode() + document for name in names)


GUEST_READERS: dict[str, Reader] = {
    "a guest's report": Reader(partial(_bytes, read=_report), (_REPORT,)),
    "nvidia-smi of a guest": Reader(partial(_bytes, read=read_smi_log), (_SMI,)),
    "an answer of a guest's agent": Reader(partial(_bytes, read=_agent), (_STATUS,)),
    "a picture": Reader(partial(_bytes, read=_picture), (_PNG, _PPM)),
    "a domain's devices": Reader(partial(_bytes, read=_devices), read_all(*(DATA / "domains").glob("*.xml"))),
    "domain capabilities": values(reported_hyperv, _HYPERV),
    "a system of osinfo's database": Reader(_system, (_SYSTEM, *_encoded(_SYSTEM, "utf-8", "utf-7", "rot13", "none"))),
    "a licence token": values(read_token, licence_token("dls-1.example")),
    "a licence server": values(
        partial(server_name, what="--server"), "dls-1.example", "https://[fe80::1]:443/x", "10.0.0.1:7070"
    ),
    "a driver's version": values(_driver, "570.133.20", "R570", "17.5"),
    "the version of a host's program": values(version_of, "10.0.0-2ubuntu8", "9.0.0", "8.0"),
    "the id of a vGPU type": values(partial(type_by_id, board("nvidia-a40")), "nvidia-558", "558", "1204"),
    "a data disk": values(
        partial(compact(DATA_DISK).parse, what="--data-disk"), "data,size=1GiB,bus=scsi,cache=none,iops=100,keep"
    ),
    "an interface": values(
        partial(compact(NIC).parse, what="--nic"), "front,model=e1000e,security_groups=web+db,bandwidth_mbps=100"
    ),
    "a vGPU's parameter": values(parse_vgpu_param, "frame_rate_limiter=0", "enable_uvm=1"),
    "an operating system": values(parse_guest_os, "win11", "ubuntu-24.04"),
    "a snapshot's name": values(check_snapshot_name, "before-update"),
}
"""Beside `tests.proof.fuzz_readers.READERS`."""
