# SPDX-License-Identifier: Apache-2.0
"""Firmware, TPM and Windows settings of guests, beyond their golden files."""

from dataclasses import replace

import pytest

from tests.unit.guests.cases import REQUEST, vm
from tests.unit.guests.os_cases import BUILDS, BUILDS_AFTER_AN_UPGRADE, REPORTED, asks_for, host
from vgpuctl.errors import StateError
from vgpuctl.guests.domain.firmware_view import tpm_view, tseg_mib, uefi_view
from vgpuctl.guests.domain.windows_view import note_missing, windows_view
from vgpuctl.guests.facts.capabilities import reported_hyperv, undefine_state_flags
from vgpuctl.guests.libvirt_errors import libvirt_module
from vgpuctl.guests.libvirt_hints import hint_for
from vgpuctl.model.guest_firmware import Variables
from vgpuctl.model.guest_state import nvram_file
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Firmware

TIB_MIB = 1 << 20


@pytest.mark.parametrize(
    ("addresses_mib", "vcpus", "wanted"),
    [
        (4096, 2, None),
        (TIB_MIB, 48, None),
        (TIB_MIB + 1, 48, 24),
        (3 * TIB_MIB, 96, 40),
        (5 * 1024, 272, 24),
    ],
)
def test_system_management_memory_grows_with_addresses_and_cpus(
    addresses_mib: int, vcpus: int, wanted: int | None
) -> None:
    assert tseg_mib(addresses_mib, vcpus) == wanted


def test_the_file_of_variables_follows_the_uuid_unless_the_request_is_of_an_older_kind() -> None:
    older, newer = vm(replace(REQUEST, firmware=Firmware.UEFI)), vm(asks_for("debian-12"))
    assert nvram_file(older) == "acme.web-1_VARS.fd"
    assert nvram_file(newer) == f"{newer.uuid}_VARS.fd"
    assert nvram_file(replace(newer, request=replace(newer.request, name="web-2"))) == nvram_file(newer)


@pytest.mark.parametrize(("libvirt_version", "wanted"), [("8.5.0", True), ("8.6.0", False), ("12.8.0", False)])
def test_older_libvirt_is_told_of_the_secure_loader(libvirt_version: str, *, wanted: bool) -> None:
    view = uefi_view(vm(asks_for("win11")), host(libvirt_version=libvirt_version), window_gib=None)
    assert view is not None and view.has_secure_loader is wanted


def test_secure_boot_off_on_a_host_with_secure_builds_only_takes_the_build_without_keys() -> None:
    request = replace(REQUEST, firmware=Firmware.UEFI, secure_boot=Switch.OFF)
    view = uefi_view(vm(request), replace(host(), guest_firmwares=BUILDS[:2]), window_gib=None)
    assert view is not None and view.has_smm
    assert [(str(one.name), one.is_wanted) for one in view.features] == [("enrolled-keys", False)]


@pytest.mark.parametrize(("libvirt_version", "wanted"), [("6.10.0", False), ("7.0.0", True)])
def test_the_tpm_is_persistent_where_libvirt_knows_it(libvirt_version: str, *, wanted: bool) -> None:
    view = tpm_view(vm(asks_for("win11")), host(libvirt_version=libvirt_version))
    assert view is not None and view.is_persistent is wanted
    assert tpm_view(vm(asks_for("debian-12")), host()) is None


@pytest.mark.parametrize(
    ("missing", "gone"),
    [
        ("vpindex", {"vpindex", "synic", "stimer", "tlbflush", "ipi"}),
        ("synic", {"synic", "stimer"}),
        ("relaxed", {"relaxed"}),
    ],
)
def test_an_enlightenment_goes_with_those_that_it_needs(missing: str, gone: set[str]) -> None:
    every = {one.name for one in windows_view(host(), REPORTED).hyperv}
    left = {one.name for one in windows_view(host(), REPORTED - {missing}).hyperv}
    assert every - left == gone
    note = note_missing(host(), REPORTED - {missing})
    assert note is not None and all(name in note for name in gone)


def test_what_only_nested_hyperv_needs_is_never_given() -> None:
    given = {one.name for one in windows_view(host(libvirt_version="12.8.0"), None).hyperv}
    assert not given & {"evmcs", "reenlightenment", "emsr_bitmap", "avic", "vendor_id"}
    assert note_missing(host(), REPORTED) is None


def test_versions_have_their_own_enlightenments() -> None:
    old = windows_view(host(libvirt_version="4.6.0"), None).hyperv
    assert not {"frequencies", "tlbflush", "ipi"} & {one.name for one in old}
    assert [one.has_direct for one in old if one.name == "stimer"] == [False]


def test_an_emulated_guest_gets_none_and_it_is_said() -> None:
    view = windows_view(host(kvm=False), REPORTED)
    assert (view.hyperv, view.has_hyperv_clock, view.hidden_cpu_features) == ((), False, ())
    assert "no KVM" in (note_missing(host(kvm=False), REPORTED) or "")


def test_capabilities_name_the_enlightenments() -> None:
    xml = (
        "<domainCapabilities><features><hyperv supported='yes'><enum name='features'><value>relaxed</value>"
        "<value>vpindex</value></enum></hyperv></features></domainCapabilities>"
    )
    assert reported_hyperv(xml) == frozenset({"relaxed", "vpindex"})
    assert reported_hyperv("<domainCapabilities><features/></domainCapabilities>") is None


def test_flags_of_undefine_follow_libvirts_version() -> None:
    library = libvirt_module()
    nvram, keep = library.VIR_DOMAIN_UNDEFINE_NVRAM, library.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
    assert undefine_state_flags(8_008_000, keeps_state=False) == nvram
    assert undefine_state_flags(8_009_000, keeps_state=False) == nvram | library.VIR_DOMAIN_UNDEFINE_TPM
    assert undefine_state_flags(8_008_000, keeps_state=True) == keep
    assert undefine_state_flags(9_000_000, keeps_state=True) == keep | library.VIR_DOMAIN_UNDEFINE_KEEP_TPM


def test_a_broken_tpm_emulator_has_a_hint() -> None:
    hint = hint_for("Could not run '/usr/bin/swtpm_setup'. exitstatus: 1; Check error log 'web-swtpm.log' for details.")
    assert hint is not None and "/var/lib/swtpm-localca" in hint


def test_a_host_without_a_build_for_the_variables_is_refused_by_name() -> None:
    request = replace(REQUEST, firmware=Firmware.UEFI)
    new = replace(host(), guest_firmwares=BUILDS_AFTER_AN_UPGRADE[:2])
    with pytest.raises(StateError, match=r"fits the UEFI variables of web-1 \(131072 bytes, raw\); it has 31-4m.json"):
        uefi_view(vm(request), new, window_gib=None, variables=Variables("raw", 131_072))
    for facts in (new, host(), replace(host(), guest_firmwares=None)):
        view = uefi_view(vm(request), facts, window_gib=None)
        assert view is not None and view.code is None, "without variables, and of unknown builds, libvirt chooses"
    first = uefi_view(vm(request), new, window_gib=None, variables=Variables("qcow2", 540_672))
    assert first is not None and first.code is None, "the build that libvirt would choose fits"
