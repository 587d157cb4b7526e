# SPDX-License-Identifier: Apache-2.0
"""SSH settings of the operator's machine; model/host_target.py has those of the inventory."""

from dataclasses import dataclass, field
from pathlib import Path

from vgpuctl.hosts.ssh_program import SshProgram


@dataclass(frozen=True)
class SshSettings:
    """Files, limits and the remote libvirt helper of every connection.

    known_hosts_file: in place of ssh_config's UserKnownHostsFile; the inventory's goes first. ssh_config_file: in
    place of ssh's own files, as `ssh -F`; None means ~/.ssh/config and /etc/ssh/ssh_config. libvirt_helper: the
    program, with its arguments, that bridges its stdin and stdout to libvirt's socket on the host. libvirt_answer_s:
    the limit of one libvirt call.
    """

    known_hosts_file: Path | None = None
    ssh_config_file: Path | None = None
    connect_timeout_s: float = 10.0
    keepalive_s: int = 15
    libvirt_helper: tuple[str, ...] = ("virt-ssh-helper", "qemu:///system")
    libvirt_answer_s: float = 60.0
    ssh: SshProgram = field(default_factory=SshProgram, compare=False, repr=False)
