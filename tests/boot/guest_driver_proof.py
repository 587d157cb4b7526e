# SPDX-License-Identifier: Apache-2.0
"""Debian boots with our seed and sets itself up for its GPU, from a repository and from a run-file; `make test-guest`.

The packages and the installer are stand-ins: NVIDIA's own are not free to pass on.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.boot.guest import HOST, UUID, VERSION, Guest, GuestImage, Served, served
from vgpuctl.guests.seed.image import answers_files, seed_files
from vgpuctl.model.disk import DiskRequest, InstallRequest
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.guest_driver import DriverSource, GuestDriver
from vgpuctl.model.licence import Edition
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit, Vm, VmRequest, VmState
from vgpuctl_lab import LabFolder, licensing
from vgpuctl_lab.licence_token import licence_token

pytestmark = pytest.mark.timeout(1800)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGDQW0C9oeNpkDFrkDHTtAnbGUFhmBTvA2ZwOlYkVqMv me"
TOKEN = licence_token("dls-1.example.org")
USER_DATA = """\
#cloud-config
write_files:
  - {path: /etc/of-the-user, content: theirs}
runcmd:
  - [cp, /var/lib/vgpuctl/guest-ready, /run/seen-by-the-user]
"""
MARKER = "/var/lib/vgpuctl/guest-ready"
REQUEST = VmRequest(
    name="web-1",
    tenant="acme",
    gpus=(parse_gpu_request("passthrough"),),
    network="default",
    licence=Edition.VCS,
    cloud_init=CloudInit(
        user_data=SecretText.of(USER_DATA), licence_token=SecretText.of(base64.b64encode(TOKEN.encode()).decode())
    ),
)
LICENCE_SERVER = "dls"


@pytest.fixture(scope="module")
def image() -> GuestImage:
    return GuestImage.made()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, image: GuestImage) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served"), image.release) as one:
        yield one


@pytest.fixture
def licences(tmp_path: Path) -> Iterator[LabFolder]:
    """A lab with a licence server."""
    folder = LabFolder(tmp_path / "lab")
    licensing.up(LICENCE_SERVER, {"vcs": 1}, lease_s=60, folder=folder)
    yield folder
    licensing.down(folder=folder)


def _clients(folder: LabFolder) -> list[tuple[str, str]]:
    """The guests with a lease."""
    (server,) = licensing.status(folder=folder)
    return [(one.client, one.edition) for one in server.leases]


def _with_token(token: str) -> VmRequest:
    encoded = SecretText.of(base64.b64encode(token.encode()).decode())
    return replace(REQUEST, cloud_init=replace(REQUEST.cloud_init, licence_token=encoded))


@contextmanager
def _booted(folder: Path, image: GuestImage, driver: GuestDriver, request: VmRequest = REQUEST) -> Iterator[Guest]:
    guest = Guest(folder, image, replace(request, guest_driver=driver))
    try:
        yield guest
    finally:
        guest.end()


def _marker(guest: Guest) -> tuple[dict[str, Any], dict[str, str]]:
    """The guest's own report, and the result of each step."""
    ready = json.loads(guest.reads(MARKER))
    return ready, {one["name"]: one["result"] for one in ready["steps"]}


def test_a_guest_installs_its_driver_from_a_signed_repository_and_gets_its_licence(
    tmp_path: Path, image: GuestImage, files: Served, licences: LabFolder
) -> None:
    token = licensing.token(LICENCE_SERVER, addresses=[HOST], folder=licences)
    driver = GuestDriver(
        DriverSource.PACKAGES,
        version="580",
        repository=files.repository,
        key=files.key,
        package="nvidia-driver",
        toolkit=True,
    )
    with _booted(tmp_path, image, driver, _with_token(token)) as guest:
        line = guest.wait_for("vgpuctl: guest ")
        assert line.strip() == f"vgpuctl: guest ready: driver {VERSION}"
        ready, steps = _marker(guest)
        assert (ready["driver"], ready["failures"]) == ({"source": "packages", "version": VERSION}, [])
        assert {name for name, result in steps.items() if result == "skipped"} == {"nouveau"}
        assert guest.reads("/etc/nvidia/ClientConfigToken/client_configuration_token.tok") == token
        assert guest.runs("stat -c %a /etc/nvidia/ClientConfigToken/*.tok /dev/sr0").split() == ["600", "600"]
        assert "FeatureType=4" in guest.reads("/etc/nvidia/gridd.conf")
        held = guest.runs("apt-mark showhold").split()
        assert {"linux-image-cloud-amd64", "nvidia-driver"} <= set(held)
        assert json.loads(guest.reads("/var/run/cdi/nvidia.yaml"))["kind"] == "nvidia.com/gpu"
        guest.runs("cloud-init status --wait >/dev/null")
        assert guest.reads("/etc/of-the-user") == "theirs"
        assert json.loads(guest.reads("/run/seen-by-the-user")) == ready
        # Our own documents keep the schema of the guest's cloud-init.
        guest.runs("mkdir /run/ours")
        for name, document in _documents().items():
            encoded = base64.b64encode(document.encode()).decode()
            guest.runs(f"echo {encoded} | base64 -d >/run/ours/{name}")
            said = guest.runs(f"cloud-init schema --config-file /run/ours/{name} 2>&1; echo $?")
            assert said.splitlines()[-1] == "0", (name, said)
        # Its licence: checked out with the token of our seed, told by the probe, returned when the guest powers off.
        assert _clients(licences) == [(UUID, "vcs")], guest.reads("/run/gridd-state")
        (gpu,) = json.loads(guest.runs("/usr/local/lib/vgpuctl/probe"))["gpus"]
        assert gpu["licence"] == "Licensed"
        guest.runs("systemctl poweroff")
        guest.wait_for_end()
        assert _clients(licences) == []


def _documents() -> dict[str, str]:
    """The cloud-configs of our own seeds: of a plain guest, and what Ubuntu's installer hands on."""
    plain = CloudInit(ssh_authorized_keys=(KEY,), licence_token=REQUEST.cloud_init.licence_token)
    vm = Vm(UUID, replace(REQUEST, cloud_init=plain), "here", VmState.CREATING)
    install = InstallRequest("ubuntu-iso", unattended=True)
    ubuntu = replace(vm, request=replace(vm.request, os="ubuntu-24.04", disk=DiskRequest(), install=install))
    inside = yaml.safe_load(answers_files(plain, ubuntu)["user-data"])["autoinstall"]["user-data"]
    return {
        "plain": seed_files(plain, vm)["user-data"],
        "installed": "#cloud-config\n" + yaml.safe_dump(inside),
    }


def test_a_guest_runs_the_installer_whose_checksum_is_right(tmp_path: Path, image: GuestImage, files: Served) -> None:
    script = SecretText.of("#!/bin/sh\ncp /var/lib/vgpuctl/guest-ready /run/seen-by-the-user\n")
    request = replace(
        REQUEST, cloud_init=replace(REQUEST.cloud_init, user_data=script, licence_token=None), licence=None
    )
    driver = GuestDriver(
        DriverSource.RUN_FILE,
        version=VERSION,
        url=f"{files.address}/driver.run",
        sha256=files.sha256,
        # gcc, make, dkms and the headers come from it too.
        repository=files.repository,
        key=files.key,
        toolkit=True,
    )
    with _booted(tmp_path, image, driver, request) as guest:
        line = guest.wait_for("vgpuctl: guest ")
        assert line.strip() == f"vgpuctl: guest ready: driver {VERSION}"
        ready, steps = _marker(guest)
        assert {name for name, result in steps.items() if result == "skipped"} == {"nouveau", "licence"}
        flags = "--silent --ui=none --no-questions --accept-license --disable-nouveau --dkms"
        assert guest.reads("/run/installer-flags").strip() == flags
        assert guest.runs("ls /var/lib/vgpuctl").split() == ["guest-ready"], "the installer does not stay"
        # The probe of check-vm is there, and answers.
        assert json.loads(guest.runs("/usr/local/lib/vgpuctl/probe"))["version"] == 1
        guest.runs("cloud-init status --wait >/dev/null")
        assert json.loads(guest.reads("/run/seen-by-the-user")) == ready


def test_a_guest_does_not_run_an_installer_with_another_checksum(
    tmp_path: Path, image: GuestImage, files: Served
) -> None:
    driver = GuestDriver(
        DriverSource.RUN_FILE,
        url=f"{files.address}/driver.run",
        sha256="0" * 64,
        repository=files.repository,
        key=files.key,
        toolkit=True,
    )
    with _booted(tmp_path, image, driver) as guest:
        line = guest.wait_for("vgpuctl: guest ")
        assert f"not ready: driver: {files.address}/driver.run has the checksum {files.sha256}" in line
        ready, steps = _marker(guest)
        assert ready["driver"] == {"source": "run-file", "version": None}
        assert {steps[name] for name in ("check", "hold", "toolkit")} == {"skipped"}
        guest.runs("! test -e /run/installer-flags")
