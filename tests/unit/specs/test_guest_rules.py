# SPDX-License-Identifier: Apache-2.0
"""Drivers and installations that cannot work are refused by name, before anything is placed."""

from dataclasses import replace

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DiskBus, DiskRequest, InstallRequest
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.switch import Switch
from vgpuctl.model.vm import CloudInit, VmRequest
from vgpuctl.specs.guest_rules import fits_system
from vgpuctl.specs.vm import check_request

SHA256 = "0" * 64
URL = "https://files.example/driver.run"
VM = VmRequest(
    "web-1", "acme", gpus=(parse_gpu_request("A40-8Q"),), os="ubuntu-24.04", disk=DiskRequest(base_image="cloud")
)
RUN_FILE = GuestDriver(DriverSource.RUN_FILE, url=URL, sha256=SHA256)
WINDOWS = GuestDriver(DriverSource.WINDOWS, url=URL, sha256=SHA256)
PACKAGES = GuestDriver(DriverSource.PACKAGES, package="nvidia-driver")
INSTALL = InstallRequest("iso", unattended=True)


@pytest.mark.parametrize(
    ("os", "driver"),
    [
        ("ubuntu-24.04", RUN_FILE),
        (None, PACKAGES),
        ("rhel-9", replace(PACKAGES, repository="https://packages.example/rhel9", toolkit=True)),
        ("debian-12", replace(RUN_FILE, toolkit=True, repository="deb https://packages.example stable main")),
        ("win11", WINDOWS),
        ("linux", replace(PACKAGES, repository="https://packages.example/any")),
        ("sles-15", GuestDriver(DriverSource.IMAGE)),
        ("win11", GuestDriver(DriverSource.IMAGE)),
        ("debian-12", GuestDriver(hold_kernel=False)),
    ],
)
def test_what_can_work_is_accepted(os: str | None, driver: GuestDriver) -> None:
    assert check_request(replace(VM, os=os, guest_driver=driver)).guest_driver == driver


@pytest.mark.parametrize(
    ("gpu", "os", "params", "reason"),
    [
        ("A40-8Q", None, (("enable_uvm", "1"),), "needs a type that takes the whole GPU"),
        ("A40-1B", None, (("enable_uvm", "1"),), "not for types of the series B"),
        ("A40-48Q", "win11", (("enable_uvm", "1"),), "is for Linux guests, and win11 is Windows"),
        ("A40-8Q", None, (("disable_vnc", "0"), ("disable_vnc", "1")), "disable_vnc with two values"),
        ("passthrough", None, (("frame_rate_limiter", "0"),), "is for vGPUs, and the VM asks for none"),
        ("A40-8Q", None, (("exec_quantum_ms", "20"),), "exec_quantum_ms of vgpu_params is for VFs"),
        ("vf", None, (("enable_uvm", "1"), ("exec_quantum_ms", "0")), "enable_uvm of vgpu_params is for vGPUs"),
    ],
)
def test_parameters_that_no_vgpu_can_have_are_refused(
    gpu: str, os: str | None, params: tuple[tuple[str, str], ...], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        check_request(replace(VM, gpus=(parse_gpu_request(gpu),), os=os, vgpu_params=params))


@pytest.mark.parametrize(("gpu", "value"), [("A40-48C", "1"), ("A100-1-5C", "1"), ("A40-8Q", "0")])
def test_parameters_that_a_vgpu_can_have_are_accepted(gpu: str, value: str) -> None:
    request = replace(VM, gpus=(parse_gpu_request(gpu),), vgpu_params=(("enable_uvm", value),))
    assert check_request(request).vgpu_params == request.vgpu_params


@pytest.mark.parametrize(
    ("os", "driver", "reason"),
    [
        ("win11", PACKAGES, "the driver's source packages is for Linux, and win11 is Windows"),
        ("win11", RUN_FILE, "the driver's source run-file is for Linux"),
        ("debian-12", WINDOWS, "is for Windows, and the guest's system is debian-12"),
        (None, WINDOWS, "the guest's system is not said"),
        ("win11", replace(WINDOWS, toolkit=True), "container toolkit is for Linux"),
        ("debian-12", replace(RUN_FILE, sha256=None), "url has no sha256"),
        ("debian-12", replace(RUN_FILE, url=None, sha256=None), "run-file has no url"),
        ("debian-12", replace(PACKAGES, package=None, repository="deb https://a.example s m"), "has no package"),
        ("debian-12", replace(PACKAGES, url=URL, sha256=SHA256), "url has no use with the source packages"),
        ("debian-12", replace(RUN_FILE, package="x"), "package has no use with the source run-file"),
        ("debian-12", replace(RUN_FILE, repository="deb https://a.example s m"), "repository has no use"),
        ("debian-12", replace(PACKAGES, key="k"), "key has no repository"),
        ("rhel-9", replace(PACKAGES, repository="deb https://a.example s m"), "rhel-9 uses DNF"),
        ("debian-12", replace(PACKAGES, repository="https://a.example"), "no line for APT"),
        ("rocky-9", replace(PACKAGES, repository="deb https://a.example s m"), "rocky-9 uses DNF"),
        ("sles-15", PACKAGES, "nothing can be installed in sles-15"),
        ("debian-12", GuestDriver(package="nvidia-driver"), "guest_driver has package and no source"),
        ("debian-12", GuestDriver(toolkit=True), "guest_driver has toolkit and no source"),
    ],
)
def test_a_driver_that_cannot_work_is_refused(os: str | None, driver: GuestDriver, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_request(replace(VM, os=os, guest_driver=driver))


def test_a_module_that_nobody_signed_is_refused_with_secure_boot() -> None:
    with pytest.raises(UsageError, match="cannot load with Secure Boot"):
        check_request(replace(VM, secure_boot=Switch.ON, guest_driver=RUN_FILE))
    check_request(replace(VM, secure_boot=Switch.ON, guest_driver=PACKAGES))


@pytest.mark.parametrize("os", [None, "debian-12", "rhel-9"])
def test_an_installer_without_answers_is_refused_by_name(os: str | None) -> None:
    with pytest.raises(UsageError, match=f"installer of {os or 'a system that is not said'}"):
        check_request(replace(VM, os=os, install=INSTALL))
    check_request(replace(VM, os=os, install=replace(INSTALL, unattended=False)))


def test_an_unattended_installation_needs_a_disk_it_can_see_and_has_no_other_user_data() -> None:
    windows = replace(VM, os="win11", memory_mib=4096, disk=DiskRequest(size_mib=65536), install=INSTALL)
    with pytest.raises(UsageError, match="no driver for a disk on the bus scsi"):
        check_request(windows)
    check_request(replace(windows, disk=DiskRequest(size_mib=65536, bus=DiskBus.SATA)))
    check_request(replace(windows, install=replace(INSTALL, drivers="virtio-win")))
    for disk in (None, DiskRequest(base_image="ubuntu")):
        with pytest.raises(UsageError, match="needs an empty disk"):
            check_request(replace(VM, install=INSTALL, disk=disk))
    own = CloudInit(user_data=SecretText.of("#cloud-config\n"))
    with pytest.raises(UsageError, match="exclude each other"):
        check_request(replace(VM, install=INSTALL, cloud_init=own, disk=DiskRequest()))


def test_a_tenants_driver_is_for_vms_with_a_gpu_and_of_its_system() -> None:
    assert fits_system(RUN_FILE, VM)
    assert not fits_system(RUN_FILE, replace(VM, gpus=()))
    assert not fits_system(RUN_FILE, replace(VM, os="win11"))
    assert fits_system(WINDOWS, replace(VM, os="win11"))
