# SPDX-License-Identifier: Apache-2.0
"""Every golden domain is accepted by libvirt: by its test driver as it is, by its QEMU driver as emulated guest."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.libvirtd_fixture import LocalLibvirtd
from tests.unit.guests.all_cases import CASES
from tests.unit.guests.cases import REQUEST, facts, vm
from vgpuctl.agent.facts import guest_firmware
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import DomainRejected
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import CpuMode, domain_view
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.model.vm import Firmware


@pytest.mark.parametrize("name", CASES)
def test_the_test_driver_defines_it(name: str) -> None:
    view = CASES[name]
    with Hypervisor("test:///default") as hypervisor:
        hypervisor.define(render_domain(view))
        fact = next(fact for fact in hypervisor.domains() if fact.name == view.name)
        assert fact.uuid == view.uuid
        assert fact.metadata == view.metadata
        assert [hostdev.alias for hostdev in fact.hostdevs] == [hostdev.alias for hostdev in view.hostdevs]


@pytest.mark.parametrize("name", CASES)
def test_the_qemu_driver_defines_it_and_changes_no_address(name: str, hypervisor: Hypervisor) -> None:
    view = replace(CASES[name], kvm=False, cpu_mode=CpuMode.MAXIMUM, maxphysaddr_passthrough=False)
    wanted = render_domain(view)
    hypervisor.define(wanted)
    defined = hypervisor.xml(view.name)
    assert defined is not None
    assert _guest_addresses(wanted) <= _guest_addresses(defined)
    # libvirt adds what q35 has built in (SATA) and no PCI device of its own choice.
    added = _guest_addresses(defined) - _guest_addresses(wanted)
    assert {address for address in added if address[0] != "0x00"} == set()
    hypervisor.define(wanted)
    assert hypervisor.xml(view.name) == defined


def test_a_domain_that_breaks_the_schema_is_refused(hypervisor: Hypervisor) -> None:
    broken = render_domain(CASES["no_gpu_tcg"]).replace("<memballoon model='none'/>", "<memballoon model='huge'/>")
    with pytest.raises(DomainRejected, match=r"cannot define the domain on gpu1: .*libvirt error \d+"):
        hypervisor.define(broken)


def test_a_kvm_domain_on_a_host_without_kvm_is_refused_with_a_hint(hypervisor: Hypervisor) -> None:
    with pytest.raises(DomainRejected) as caught:
        hypervisor.define(render_domain(CASES["no_gpu_kvm"]))
        hypervisor.start(CASES["no_gpu_kvm"].name)
    assert caught.value.hint is not None
    assert "/dev/kvm" in caught.value.hint


@pytest.fixture
def secure_builds_only(libvirtd: LocalLibvirtd) -> Iterator[HostFacts]:
    """The daemon's host has UEFI builds as RHEL 8 has them: each knows Secure Boot, one has keys, none is plain."""
    folder = libvirtd.folder / "etc/qemu/firmware"
    folder.mkdir(parents=True)
    for path in Path("/usr/share/qemu/firmware").iterdir():
        (folder / path.name).touch()
    secure = ("acpi-s3", "amd-sev", "requires-smm", "secure-boot", "verbose-dynamic")
    for name, ending, features in (
        ("30-edk2-ovmf-sb-enrolled.json", "ms", ("enrolled-keys", *secure)),
        ("40-edk2-ovmf-sb.json", "snakeoil", secure),
    ):
        code = {"filename": "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "format": "raw"}
        variables = {"filename": f"/usr/share/OVMF/OVMF_VARS_4M.{ending}.fd", "format": "raw"}
        content = {
            "interface-types": ["uefi"],
            "mapping": {"device": "flash", "executable": code, "nvram-template": variables},
            "targets": [{"architecture": "x86_64", "machines": ["pc-q35-*"]}],
            "features": features,
            "tags": [],
        }
        (folder / name).write_text(json.dumps(content))
    root = libvirtd.folder / "seen"
    (root / "usr/share/OVMF").mkdir(parents=True)
    (root / "usr/share/OVMF/OVMF_CODE_4M.secboot.fd").touch()
    (root / "etc").mkdir()
    (root / "etc/qemu").symlink_to(libvirtd.folder / "etc/qemu")
    yield replace(facts(kvm=False), guest_firmwares=guest_firmware.read(Host(str(root))))
    shutil.rmtree(folder)
    shutil.rmtree(root)


def test_a_host_with_secure_builds_only_starts_a_guest_by_the_build_without_keys(
    secure_builds_only: HostFacts, hypervisor: Hypervisor
) -> None:
    request = replace(REQUEST, firmware=Firmware.UEFI, memory_mib=256, vcpus=1)
    plain = domain_view(vm(request), [], replace(secure_builds_only, guest_firmwares=None))
    with pytest.raises(DomainRejected) as refused:
        hypervisor.define(render_domain(plain))
        hypervisor.start(plain.name)
    assert refused.value.hint is not None
    for package in ("ovmf", "edk2-ovmf", "qemu-ovmf-x86_64"):
        assert package in refused.value.hint
    chosen = domain_view(vm(request), [], secure_builds_only)
    hypervisor.define(render_domain(chosen))
    hypervisor.start(chosen.name)
    running = ElementTree.fromstring(hypervisor.xml(chosen.name) or "")
    assert running.findtext("os/loader") == "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
    nvram = running.find("os/nvram")
    assert nvram is not None and nvram.get("template") == "/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd"


def test_a_guest_of_huge_pages_without_a_mounted_hugetlbfs_is_refused_with_the_way_out(hypervisor: Hypervisor) -> None:
    view = replace(CASES["hugepages"], kvm=False, cpu_mode=CpuMode.MAXIMUM)
    with pytest.raises(DomainRejected) as refused:
        hypervisor.define(render_domain(view))
        hypervisor.start(view.name)
    assert refused.value.hint is not None and "check-hosts" in refused.value.hint


def test_libvirt_itself_prints_nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with Hypervisor("test:///default") as hypervisor, pytest.raises(DomainRejected):
        hypervisor.define("<domain/>")
    assert capfd.readouterr().err == ""


def _guest_addresses(xml: str) -> set[tuple[str, str, str]]:
    root = ElementTree.fromstring(xml)
    return {
        (address.get("bus", ""), address.get("slot", ""), address.get("function", ""))
        for address in root.iterfind("devices/*/address[@type='pci']")
    }


def test_a_domain_is_compared_with_the_schema_unless_only_values_differ_from_one_that_was_accepted() -> None:
    xml = "<domain type='test'><name>{name}</name><memory>1024</memory><os><type>hvm</type></os>{more}</domain>"
    emulator = "<devices><emulator>{path}</emulator></devices>"
    # The schema wants an absolute path; the driver itself takes any.
    relative = xml.format(name="relative", more=emulator.format(path="qemu"))
    with Hypervisor("test:///default") as hypervisor:
        hypervisor.define(xml.format(name="plain", more=""))
        with pytest.raises(DomainRejected):
            hypervisor.define(relative)
        hypervisor.define(xml.format(name="absolute", more=emulator.format(path="/usr/bin/qemu")))
        hypervisor.define(relative)
        assert {"plain", "absolute", "relative"} <= {fact.name for fact in hypervisor.domains()}
