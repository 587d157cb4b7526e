# SPDX-License-Identifier: Apache-2.0
"""The programs by which libvirt gives guests a TPM: without both it offers no emulator."""

from typing import Tuple

from vgpuctl.agent.host import Host

# The names that libvirt looks for (src/util/virtpm.c). Debian has them in the packages swtpm and swtpm-tools.
_PROGRAMS = ("swtpm", "swtpm_setup")


def read(host: Host) -> Tuple[str, ...]:
    """Return those of the two programs that the host has."""
    return tuple(name for name in _PROGRAMS if host.find_program(name) is not None)
