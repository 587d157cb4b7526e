# SPDX-License-Identifier: Apache-2.0
"""Where a host is and how to log in, as the inventory says."""

from dataclasses import dataclass, field

AUTO_PYTHON = "auto"


@dataclass(frozen=True)
class HostTarget:
    """One host of the inventory. None means: ssh_config or the default decides. Secrets never appear in its repr.

    python_interpreter: a path or name on the host, or AUTO_PYTHON for the first that is new enough.
    is_local: `ansible_connection: local`, which is refused with a hint (vgpuctl reaches every host over SSH).
    """

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    private_key_file: str | None = None
    password: str | None = field(default=None, repr=False)
    common_args: str | None = None
    become: bool = False
    become_user: str | None = None
    become_password: str | None = field(default=None, repr=False)
    python_interpreter: str = AUTO_PYTHON
    host_key_checking: bool = True
    groups: tuple[str, ...] = ()
