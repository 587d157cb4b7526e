# SPDX-License-Identifier: Apache-2.0
"""One private libvirtd for all tests of this folder, and a domain of it for each test."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.libvirtd_fixture import LocalLibvirtd, missing_for_libvirtd
from tests.unit.guests.cases import facts, vm
from vgpuctl.guests.domain.view import DomainView, domain_view
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage


@pytest.fixture(scope="session")
def libvirtd() -> Iterator[LocalLibvirtd]:
    missing = missing_for_libvirtd()
    if missing is not None:
        pytest.skip(missing)
    # The name of libvirt's monitor socket is limited to 108 characters, pytest's folders are long.
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with LocalLibvirtd(folder) as daemon:
            yield daemon
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def hypervisor(libvirtd: LocalLibvirtd) -> Iterator[Hypervisor]:
    with Hypervisor(libvirtd.uri, host="gpu1") as opened:
        yield opened
        for fact in opened.domains():
            opened.destroy(fact.name)
            opened.undefine(fact.name)


@pytest.fixture
def storage(hypervisor: Hypervisor) -> Iterator[Storage]:
    opened = Storage(hypervisor)
    opened.ensure_pool("default")
    yield opened
    for volume in opened.volumes("default"):
        opened.delete_volume("default", volume.name)


@pytest.fixture
def view() -> DomainView:
    """A guest of 64 MiB without disk: its firmware reports on the serial console that it finds nothing to boot."""
    made = domain_view(vm(), [], facts(kvm=False))
    return replace(made, memory_mib=64, vcpus=1)
