# SPDX-License-Identifier: Apache-2.0
"""record-host: a capture of one host, with its names replaced, which the lab replays."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vgpuctl import __version__
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.catalog.lookup import board_by_pci
from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.facts.capabilities import read_capabilities
from vgpuctl.hosts.bundle import build_agent
from vgpuctl.local_files import write_file
from vgpuctl.model.anonymous import Anonymiser, NameKind, host_words
from vgpuctl.model.capture import FORMAT, Capture, CapturedBoard, CaptureManifest, ReplacedCount
from vgpuctl.model.host_target import HostTarget
from vgpuctl.usecases.running.services import Services

# Keys of what the kernel says: a word in it that is also the name of a VM is not that name.
_OF_KERNEL = re.compile(r"\w+ (?:\[\")?/(?:sys|proc|dev)/")
_DEFINITION = re.compile(r"\w+ /(?:run|etc)/libvirt/(?:qemu|storage)/(?P<name>[^/\"]+)\.xml")
_HOME = re.compile(r"/home/([A-Za-z_][\w.-]*)")
_TENANT = re.compile(r'tenant="([^"]+)"')
_DOMAIN = re.compile(r"^Domain: '(.+)'$", re.MULTILINE)
_ANSWERS = ("facts", "health", "diagnostics", "readings")
_CLUSTER = "clusterUuid"


@dataclass(frozen=True)
class RecordedHost:
    """A capture that was written. replaced: (kind, value, replacement); what was a secret has no value."""

    file: Path
    size_bytes: int
    manifest: CaptureManifest
    replaced: tuple[tuple[str, str, str], ...]


def record_host(services: Services, name: str, file: Path, *, note: str = "") -> RecordedHost:
    """Read everything that commands read of a host, and write it to a file with names replaced.

    Nothing is written on the host, and nothing to the store. note: the contributor's own words, which are replaced as
    everything is. Raises what the host's connection and agent raise, FileNotWritten.
    """
    session = services.host(name)
    facts = session.agent.facts()
    machine = session.agent.record()
    try:
        libvirt = read_capabilities(session.hypervisor)
    except VgpuctlError as error:
        libvirt = {"problem": error.message}
    capture, anonymiser = anonymous_capture(facts, machine, libvirt, session.connection.target, note=note)
    data = capture.as_file()
    write_file(file, data, "the capture", mode=0o600)
    return RecordedHost(file, len(data), capture.manifest, tuple(anonymiser.replaced()))


def anonymous_capture(
    facts: HostFacts,
    machine: dict[str, Any],
    libvirt: dict[str, str | None],
    target: HostTarget,
    *,
    note: str = "",
) -> tuple[Capture, Anonymiser]:
    """Return the capture of a recording with everything replaced, and what replaced it."""
    names = host_words(facts.hostname, target.name, target.address)
    answers: dict[str, Any] = machine["answers"]
    tenants = set(_tenants(answers))
    # A domain of ours is named tenant.vm.
    vms = {word for name in _vm_names(answers) for word in (name, *(name.removeprefix(f"{one}.") for one in tenants))}
    users = {target.user or "", *_HOME.findall(json.dumps(answers))}
    names |= {NameKind.VM: vms, NameKind.TENANT: tenants, NameKind.USER: users}
    # The mark comes of the boot's random number, which is not in the capture.
    mark = hashlib.sha256(f"{facts.hostname} {facts.boot_id}".encode()).hexdigest()[:8]
    anonymiser = Anonymiser(names, mark=mark)
    for key, given in answers.items():
        anonymiser.look_at([key, given], with_names=not _OF_KERNEL.match(key))
    anonymiser.look_at([machine["nvml"], libvirt], with_names=False)
    anonymiser.look_at([note, facts.hostname])
    replaced: dict[str, Any] = {}
    for key, given in answers.items():
        replaced |= anonymiser.replace({key: given}, with_names=not _OF_KERNEL.match(key))
    nvml = _without_clusters(anonymiser.replace(machine["nvml"], with_names=False))
    manifest = _manifest(facts, machine["is_emulated"], anonymiser, note)
    whole = {"is_emulated": machine["is_emulated"], "answers": replaced, "nvml": nvml}
    return Capture(manifest, whole, anonymiser.replace(libvirt, with_names=False)), anonymiser


def _manifest(facts: HostFacts, is_emulated: bool, anonymiser: Anonymiser, note: str) -> CaptureManifest:
    boards = []
    for gpu in facts.gpus:
        known = board_by_pci(gpu.vendor_id, gpu.device_id, gpu.subsystem_id)
        boards.append(
            CapturedBoard(
                gpu.address,
                gpu.vendor_id,
                gpu.device_id,
                gpu.subsystem_id,
                gpu.name,
                known.key if known else None,
                gpu.driver,
                gpu.sharing,
            )
        )
    return CaptureManifest(
        format=FORMAT,
        vgpuctl=__version__,
        agent=build_agent().sha256,
        taken_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        host=anonymiser.replace(facts.hostname),
        is_emulated=is_emulated,
        kernel=facts.kernel,
        operating_system=facts.operating_system,
        distribution=facts.distribution,
        python=facts.python,
        nvidia_driver=facts.nvidia_driver,
        nvml=facts.nvml_version,
        libvirt=facts.libvirt_version,
        qemu=facts.qemu_version,
        boards=tuple(boards),
        calls=_ANSWERS,
        replaced=tuple(ReplacedCount(kind, count) for kind, count in anonymiser.counts().items()),
        note=anonymiser.replace(note),
    )


def _vm_names(answers: dict[str, Any]) -> Iterable[str]:
    """Yield the names of VMs and of storage pools."""
    for key, given in answers.items():
        definition = _DEFINITION.match(key)
        if definition is not None:
            yield definition["name"]
        elif key.startswith('run ["virsh"'):
            yield from _DOMAIN.findall("\n".join(_outputs(given)))


def _outputs(given: list[list[Any]]) -> Iterable[str]:
    for _count, answer in given:
        value = answer.get("value")
        if isinstance(value, list) and len(value) == 3:
            yield str(value[1])


def _tenants(answers: dict[str, Any]) -> Iterable[str]:
    for key, given in answers.items():
        if _DEFINITION.match(key):
            yield from _TENANT.findall(json.dumps(given).replace('\\"', '"'))


def _without_clusters(value: Any) -> Any:
    """Replace the NVSwitch cluster's UUID, which NVML tells as bytes; one of zeros is none."""
    if isinstance(value, dict):
        return {key: _hidden_cluster(one) if key == _CLUSTER else _without_clusters(one) for key, one in value.items()}
    return [_without_clusters(one) for one in value] if isinstance(value, list) else value


def _hidden_cluster(value: Any) -> Any:
    if isinstance(value, list):
        return [1] * len(value) if any(value) else value
    return "1" * len(value) if isinstance(value, str) and value.strip("\0") else value
