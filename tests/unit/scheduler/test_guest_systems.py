# SPDX-License-Identifier: Apache-2.0
"""Hosts that cannot give a guest its firmware or its TPM take no such VM, and say why."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, host, vm
from vgpuctl.agent.wire.facts import GuestFirmware
from vgpuctl.catalog.guest_os import with_os_defaults
from vgpuctl.errors import NoCapacity
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware, VmRequest
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.place import place

PLAIN = GuestFirmware("60-edk2-x86_64.json", ("acpi-s3",))
NO_KEYS = GuestFirmware("50-secure.json", ("requires-smm", "secure-boot"))
ENROLLED = GuestFirmware("40-enrolled.json", ("enrolled-keys", "requires-smm", "secure-boot"))
BOTH = ("swtpm", "swtpm_setup")
VM = VmRequest("web-1", "acme")
WIN11 = with_os_defaults(replace(VM, os="win11", memory_mib=4096))
UEFI = replace(VM, firmware=Firmware.UEFI)


def having(builds: Sequence[GuestFirmware] | None, programs: tuple[str, ...] | None = BOTH) -> HostCapacity:
    there = host("gpu1")
    builds = None if builds is None else tuple(builds)
    return replace(there, facts=replace(there.facts, guest_firmwares=builds, tpm_programs=programs))


@pytest.mark.parametrize(
    ("code", "request_", "capacity", "words", "remedy"),
    [
        ("host-firmware", WIN11, having([PLAIN, NO_KEYS]), "no UEFI build with Secure Boot and enrolled keys", "ovmf"),
        ("host-firmware", WIN11, having([]), "it has no UEFI build at all", "--secure-boot off"),
        ("host-firmware", UEFI, having([ENROLLED]), "every UEFI build has Secure Boot", "--firmware bios"),
        ("host-firmware", UEFI, having([]), "there is no UEFI build", "ovmf"),
        ("host-tpm", WIN11, having([ENROLLED], ()), "the host has no swtpm and no swtpm_setup", "swtpm-tools"),
        ("host-tpm", WIN11, having([ENROLLED], ("swtpm",)), "the host has no swtpm_setup", "swtpm-tools"),
        ("host-tpm", replace(VM, tpm=Switch.ON), having(None, ()), "libvirt emulates no TPM", "swtpm-tools"),
    ],
)
def test_a_host_without_a_part_is_no_candidate(
    code: str, request_: VmRequest, capacity: HostCapacity, words: str, remedy: str
) -> None:
    answer = explain(request_, [capacity], [])
    assert isinstance(answer, list)
    (rejection,) = answer
    assert rejection.code == code
    assert words in rejection.reason
    assert rejection.remedy is not None and remedy in rejection.remedy


@pytest.mark.parametrize(
    ("request_", "capacity"),
    [
        (WIN11, having([PLAIN, ENROLLED])),
        (WIN11, having(None, None)),
        (UEFI, having([NO_KEYS])),
        (UEFI, having([PLAIN], ())),
        (VM, having([], ())),
    ],
)
def test_a_host_with_all_parts_or_unknown_ones_is_a_candidate(request_: VmRequest, capacity: HostCapacity) -> None:
    assert not isinstance(explain(request_, [capacity], []), list)


@pytest.mark.parametrize("gpus", [(), ("A40-8Q",), ("2*A40-8Q",), ("A40-8Q", "A40-12Q")])
def test_the_host_with_all_parts_is_chosen_whatever_the_gpus_are(gpus: tuple[str, ...]) -> None:
    ready, lacking = a40_host("gpu2", cards=2), a40_host("gpu1", cards=2)
    hosts = [
        replace(ready, facts=replace(ready.facts, guest_firmwares=(ENROLLED,), tpm_programs=BOTH)),
        replace(lacking, facts=replace(lacking.facts, guest_firmwares=(ENROLLED,), tpm_programs=())),
    ]
    request = replace(WIN11, gpus=vm(*gpus).gpus)
    assert place(request, hosts, []).host == "gpu2"
    with pytest.raises(NoCapacity) as refused:
        place(request, hosts[1:], [])
    assert "swtpm" in str(refused.value.context)
