# SPDX-License-Identifier: Apache-2.0
"""A VM that was deleted and whose disks stay for a stated time, so that it can be made again with them."""

from dataclasses import dataclass

from vgpuctl.model.vm import Vm, VmRequest, VmState, printed_name


@dataclass(frozen=True)
class KeptVm:
    """The request and the host of a deleted VM. Its volumes are recorded under its UUID as before.

    kept_at, until: seconds since the epoch, UTC; after `until` a controller deletes the disks. domain: the name of its
    libvirt domain, where that is another than today's rule gives.
    """

    uuid: str
    request: VmRequest
    host: str
    kept_at: float
    until: float
    domain: str | None = None
    guest_driver: str | None = None

    @property
    def printed_name(self) -> str:
        """The VM as its events name it."""
        return printed_name(self.request.tenant, self.request.name)

    def as_vm(self) -> Vm:
        """The VM as it comes back: off, without shares."""
        return Vm(
            self.uuid, self.request, self.host, VmState.STOPPED, domain=self.domain, guest_driver=self.guest_driver
        )
