# SPDX-License-Identifier: Apache-2.0
"""force-off: end a VM at once, without asking its guest; its shares are kept for its next start."""

from vgpuctl.model.vm import Hold, Vm
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm


def force_off(services: Services, vm: Vm) -> tuple[Vm, bool]:
    """End `vm`. Returns it as it is now, and whether anything changed.

    QEMU gets SIGTERM; one that does not end by it within a minute is killed, and its VFs go into quarantine.
    """
    return stop_vm(services, vm, Stop(Hold.KEEP, None))
