# SPDX-License-Identifier: Apache-2.0
"""This machine as a host: a real sshd, a private libvirtd with real QEMU, and the agent on the machine's own files.

It has no GPU: it is for tests that need QEMU's own rules and no GPU, without an emulated host.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.operator import Operator
from tests.libvirtd_fixture import LocalLibvirtd, missing_for_libvirtd
from tests.sshd_fixture import LoopbackSshd, missing_for_sshd

_INVENTORY = """
all:
  hosts:
    gpu1:
      ansible_host: {address}
      ansible_port: {port}
      ansible_user: root
      ansible_ssh_private_key_file: {key}
      ansible_ssh_common_args: -o UserKnownHostsFile={known_hosts} -o IdentityAgent=none
"""


@contextmanager
def real_host(home: Path) -> Iterator[Operator]:
    """An operator of this machine as host gpu1, until the block ends. home: a new folder for store and inventory."""
    if missing := missing_for_sshd() or missing_for_libvirtd():
        pytest.skip(missing)
    # The name of libvirt's monitor socket is limited to 108 characters, pytest's folders are long.
    with TemporaryDirectory(prefix="vgpuctl-", dir="/tmp") as short:
        Path(short).chmod(0o755)
        with LocalLibvirtd(Path(short)) as libvirtd:
            # libvirtd has no KVM there, so the agent must see none either.
            mounts = {
                Path("/run/libvirt"): libvirtd.folder / "sockets",
                Path("/var/log/libvirt"): libvirtd.folder / "var/log/libvirt",
                Path("/dev"): _devices(home / "dev"),
            }
            with LoopbackSshd(home / "sshd", mounts=mounts) as sshd:
                yield _operator(home, sshd)


def _operator(home: Path, sshd: LoopbackSshd) -> Operator:
    inventory = home / "inventory.yml"
    inventory.write_text(
        _INVENTORY.format(address=sshd.address, port=sshd.port, key=sshd.client_key, known_hosts=sshd.known_hosts)
    )
    return Operator(home, inventory, f"sqlite:///{home}/store.db")


def _devices(folder: Path) -> Path:
    """A /dev of what programs cannot do without."""
    folder.mkdir()
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        os.mknod(folder / name, stat.S_IFCHR | 0o666, Path(f"/dev/{name}").stat().st_rdev)
    (folder / "fd").symlink_to("/proc/self/fd")
    return folder
