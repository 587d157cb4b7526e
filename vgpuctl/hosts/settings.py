# SPDX-License-Identifier: Apache-2.0
"""What the operator's machine decides about SSH; what the inventory decides is in model/host_target.py."""

import os
from dataclasses import dataclass, field
from pathlib import Path


def _default_key_files() -> tuple[Path, ...]:
    folder = Path.home() / ".ssh"
    return tuple(folder / name for name in ("id_ed25519", "id_ecdsa", "id_rsa"))


@dataclass(frozen=True)
class SshSettings:
    """Files, limits and the remote libvirt helper of every connection.

    known_hosts_file: used where neither the inventory nor ssh_config names UserKnownHostsFile. ssh_config_file:
    None reads none. default_key_files: tried when no IdentityFile is configured. agent_socket: a path; None
    means `SSH_AUTH_SOCK`, an empty text means no agent. libvirt_helper: the program, with its arguments, that
    bridges its stdin and stdout to libvirt's socket on the host.
    """

    known_hosts_file: Path
    ssh_config_file: Path | None = None
    connect_timeout_s: float = 10.0
    keepalive_s: int = 15
    system_known_hosts_file: Path | None = Path("/etc/ssh/ssh_known_hosts")
    system_ssh_config_file: Path | None = Path("/etc/ssh/ssh_config")
    default_key_files: tuple[Path, ...] = field(default_factory=_default_key_files)
    agent_socket: str | None = None
    libvirt_helper: tuple[str, ...] = ("virt-ssh-helper", "qemu:///system")

    def agent_path(self) -> str | None:
        """Path of the agent's socket, None for no agent."""
        path = os.environ.get("SSH_AUTH_SOCK") if self.agent_socket is None else self.agent_socket
        return path or None


def user_settings() -> SshSettings:
    """Settings with the files of the user who runs vgpuctl: `~/.ssh/known_hosts` and `~/.ssh/config`."""
    folder = Path.home() / ".ssh"
    return SshSettings(known_hosts_file=folder / "known_hosts", ssh_config_file=folder / "config")
