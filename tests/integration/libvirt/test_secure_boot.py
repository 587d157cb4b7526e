# SPDX-License-Identifier: Apache-2.0
"""A guest with Secure Boot and a TPM really boots by libvirt, OVMF and swtpm, under emulation.

OVMF's shell is not signed, so that a guest with Microsoft's keys must refuse it, and one without Secure Boot starts it.
"""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.libvirtd_fixture import LocalLibvirtd
from tests.unit.guests.cases import REQUEST, facts, vm
from vgpuctl.agent.facts import guest_firmware, guest_tpm
from vgpuctl.agent.host import Host
from vgpuctl.catalog.guest_os import with_os_defaults
from vgpuctl.errors import StateError
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import domain_view
from vgpuctl.guests.facts.capabilities import hyperv_features
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.model.display import DisplayKind, DisplayRequest
from vgpuctl.model.guest_firmware import Variables
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import Vm, VmRequest

WINDOWS = replace(REQUEST, os="win11", display=DisplayRequest(DisplayKind.NONE))
STATE = ("swtpm", "qemu/nvram")
BOOT_LIMIT_S = 60.0
# OVMF on a shell that it rejects, and with nothing to boot: the build of Debian 13 for Secure Boot has no shell.
REJECTED = ("Security Violation", "No bootable option")


@pytest.fixture(autouse=True)
def _programs() -> None:
    missing = [name for name in ("swtpm", "swtpm_setup") if shutil.which(name) is None]
    if missing or not Path("/usr/share/OVMF/OVMF_VARS_4M.ms.fd").exists():
        pytest.skip(f"packages swtpm, swtpm-tools and ovmf are needed; missing: {', '.join(missing) or 'ovmf'}")


@pytest.fixture
def state_folder(libvirtd: LocalLibvirtd) -> Iterator[Path]:
    folder = libvirtd.folder / "var/lib/libvirt"
    yield folder
    for name in STATE:
        for one in (folder / name).iterdir() if (folder / name).is_dir() else ():
            shutil.rmtree(one) if one.is_dir() else one.unlink()


def _define(
    hypervisor: Hypervisor, libvirtd: LocalLibvirtd, request: VmRequest, *, variables: Variables | None = None
) -> Vm:
    """Define a VM of 256 MiB on this machine as it is. Its serial console goes to a log."""
    made = vm(replace(with_os_defaults(request), memory_mib=256, vcpus=1))
    here = Host()
    there = replace(
        facts(kvm=False, libvirt_version=hypervisor.version()),
        guest_firmwares=guest_firmware.read(here if variables is None else _AsInside(libvirtd)),
        tpm_programs=guest_tpm.read(here),
    )
    hypervisor.define(render_domain(domain_view(made, [], there, variables=variables)))
    return made


class _AsInside(Host):
    """This machine with the folder for descriptors that libvirtd has."""

    def __init__(self, libvirtd: LocalLibvirtd) -> None:
        super().__init__()
        self._etc = libvirtd.folder / "etc/qemu"

    def path(self, path: str) -> str:
        """The place of a path."""
        return str(self._etc / path.removeprefix("/etc/qemu/")) if path.startswith("/etc/qemu/") else super().path(path)


def _boot(hypervisor: Hypervisor, libvirtd: LocalLibvirtd, made: Vm, *words: str) -> str:
    """Start the VM, wait until its serial console has said one of these, and take its power."""
    hypervisor.start(made.domain_name)
    log = libvirtd.folder / f"var/log/libvirt/qemu/{made.domain_name}-serial.log"
    deadline = time.monotonic() + BOOT_LIMIT_S
    said = ""
    while not any(word in said for word in words):
        assert time.monotonic() < deadline, said[-2000:]
        time.sleep(0.2)
        said = log.read_text(errors="replace") if log.exists() else ""
    hypervisor.destroy(made.domain_name)
    return said


def _files(folder: Path) -> dict[str, bytes]:
    found = (one for name in STATE for one in (folder / name).rglob("*") if one.is_file() and one.name != ".lock")
    return {str(one.relative_to(folder)): one.read_bytes() for one in found}


def test_secure_boot_rejects_an_unsigned_shell_and_the_tpm_keeps_its_state(
    hypervisor: Hypervisor, libvirtd: LocalLibvirtd, state_folder: Path
) -> None:
    made = _define(hypervisor, libvirtd, WINDOWS)
    assert "Shell>" not in _boot(hypervisor, libvirtd, made, *REJECTED, "Shell>")
    tpm, nvram = f"swtpm/{made.uuid}/tpm2/tpm2-00.permall", f"qemu/nvram/{made.uuid}_VARS.fd"
    before = _files(state_folder)
    assert set(before) == {tpm, nvram}
    assert len(before[nvram]) == Path("/usr/share/OVMF/OVMF_VARS_4M.ms.fd").stat().st_size
    assert b"Microsoft Corporation" in before[nvram], "the guest has no keys to reject a shell by"

    _define(hypervisor, libvirtd, WINDOWS)
    assert _files(state_folder) == before
    hypervisor.undefine(made.domain_name, uuid=made.uuid, keeps_state=True)
    assert _files(state_folder) == before
    _define(hypervisor, libvirtd, WINDOWS)
    hypervisor.undefine(made.domain_name, uuid=made.uuid)
    assert _files(state_folder) == {}


@pytest.mark.long(
    "tests/integration/libvirt/test_secure_boot.py::test_a_guest_keeps_its_build_when_another_one_is_put_before_it"
)
def test_without_secure_boot_the_shell_starts(
    hypervisor: Hypervisor, libvirtd: LocalLibvirtd, state_folder: Path
) -> None:
    made = _define(hypervisor, libvirtd, replace(REQUEST, os="debian-12", secure_boot=Switch.OFF))
    assert "Security Violation" not in _boot(hypervisor, libvirtd, made, "Shell>", "Security Violation")
    assert set(_files(state_folder)) == {f"qemu/nvram/{made.uuid}_VARS.fd"}


def test_a_guest_keeps_its_build_when_another_one_is_put_before_it(
    hypervisor: Hypervisor, libvirtd: LocalLibvirtd, state_folder: Path, tmp_path: Path
) -> None:
    request = replace(REQUEST, os="debian-12", secure_boot=Switch.OFF)
    made = _define(hypervisor, libvirtd, request)
    hypervisor.start(made.domain_name)
    hypervisor.destroy(made.domain_name)
    (nvram,) = (state_folder / "qemu/nvram").iterdir()
    own = Variables("raw", nvram.stat().st_size)
    assert own == Variables("raw", 540_672)
    upgraded = libvirtd.folder / "etc/qemu/firmware/10-2m.json"
    upgraded.parent.mkdir(parents=True)
    # The variables are as large as those of OVMF's 2 MiB builds, which Debian 13 does not have.
    code, template = tmp_path / "code.fd", tmp_path / "variables.fd"
    shutil.copy("/usr/share/OVMF/OVMF_CODE_4M.fd", code)
    template.write_bytes(bytes(131_072))
    descriptor = json.loads(Path("/usr/share/qemu/firmware/60-edk2-x86_64.json").read_text())
    descriptor["mapping"]["executable"]["filename"] = str(code)
    descriptor["mapping"]["nvram-template"]["filename"] = str(template)
    upgraded.write_text(json.dumps(descriptor))
    try:
        _define(hypervisor, libvirtd, request)
        hypervisor.start(made.domain_name)
        live = hypervisor.xml(made.domain_name) or ""
        hypervisor.destroy(made.domain_name)
        assert f"{code}<" in live, "libvirt takes the new build, and looks at no variables"
        (libvirtd.folder / f"var/log/libvirt/qemu/{made.domain_name}-serial.log").unlink()
        _define(hypervisor, libvirtd, request, variables=own)
        assert "Security Violation" not in _boot(hypervisor, libvirtd, made, "Shell>")
        with pytest.raises(StateError, match="no UEFI build of the host fits the UEFI variables"):
            _define(hypervisor, libvirtd, request, variables=Variables("raw", 7))
    finally:
        shutil.rmtree(upgraded.parent)
        hypervisor.undefine(made.domain_name, uuid=made.uuid)
    assert _files(state_folder) == {}


def test_libvirt_reports_the_enlightenments_of_emulated_guests(hypervisor: Hypervisor) -> None:
    reported = hyperv_features(hypervisor, kvm=False)
    assert reported is None or "vpindex" not in reported
    with Hypervisor("test:///default") as without_capabilities:
        assert hyperv_features(without_capabilities, kvm=True) is None
