# SPDX-License-Identifier: Apache-2.0
"""Where a host is and how to log in, as the inventory says."""

from dataclasses import dataclass

from vgpuctl.model.secret import ProgramLine, Secret

AUTO_PYTHON = "auto"


@dataclass(frozen=True)
class HostTarget:
    """One host of the inventory. None means: ssh_config or the default decides. Secrets are not shown.

    python_interpreter: a path or name on the host, or AUTO_PYTHON for the first that is new enough.
    is_local: `ansible_connection: local`, which is refused with a hint (vgpuctl reaches every host over SSH).
    """

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    private_key_file: str | None = None
    password: Secret[str] | None = None
    common_args: ProgramLine | None = None
    become: bool = False
    become_user: str | None = None
    become_password: Secret[str] | None = None
    python_interpreter: str = AUTO_PYTHON
    host_key_checking: bool = True
    groups: tuple[str, ...] = ()
