# SPDX-License-Identifier: Apache-2.0
"""Change the limits of a running domain alone: of its disks, interfaces and vCPUs. Its definition is written as a whole
elsewhere."""

from collections.abc import Callable, Sequence
from typing import Any

from vgpuctl.errors import DomainRejected
from vgpuctl.guests.facts.domain_limits import LimitChange, LimitedPart, limit_changes
from vgpuctl.guests.libvirt_errors import libvirt_module
from vgpuctl.guests.live.domain import LiveChange, LiveDomain


class LiveLimits(LiveDomain):
    """The limits of one domain."""

    def differing(self, definition: str) -> list[LimitChange]:
        """The limits of the running domain that are not as its definition has them; none when it is off."""
        live = self.xml()
        return [] if live is None else limit_changes(live, definition)

    def impossible(self, changes: Sequence[LimitChange]) -> LimitChange | None:
        """The first limit that cannot change while the domain runs, by what libvirt tells of it now.

        One of the vCPUs needs the cgroups of libvirt's system daemon. Nothing is written.
        """
        return next((one for one in changes if not self._can(one)), None)

    def set(self, changes: Sequence[LimitChange], definition: str) -> LimitChange | None:
        """Set limits, and read them back. Returns the first that cannot change while the domain runs, else None.

        definition: which they are of. Raises DomainRejected. Those before one that is not set are set.
        """
        flags = libvirt_module().VIR_DOMAIN_AFFECT_LIVE
        for one in changes:
            if self._change(f"limit {one} of", _setter(one, flags)) is not LiveChange.DONE:
                return one
        left = self.differing(definition)
        if left:
            raise DomainRejected(
                f"domain {self._name} on {self._hypervisor.host} was given other limits, and libvirt shows others:"
                f" {', '.join(map(str, left))}"
            )
        return None

    def _can(self, change: LimitChange) -> bool:
        """True if libvirt tells the present values, as it does of all that it can change."""
        library = libvirt_module()
        flags = library.VIR_DOMAIN_AFFECT_LIVE
        try:
            found = _reader(change, flags)(self._domain())
        except library.libvirtError:
            return False
        return change.values.keys() <= found.keys()


def _reader(change: LimitChange, flags: int) -> Callable[[Any], dict[str, object]]:
    if change.part is LimitedPart.DISK:
        return lambda domain: domain.blockIoTune(change.device, flags)
    if change.part is LimitedPart.INTERFACE:
        return lambda domain: domain.interfaceParameters(change.device, flags)
    return lambda domain: domain.schedulerParametersFlags(flags)


def _setter(change: LimitChange, flags: int) -> Callable[[Any], object]:
    values = dict(change.values)
    if change.part is LimitedPart.DISK:
        return lambda domain: domain.setBlockIoTune(change.device, values, flags)
    if change.part is LimitedPart.INTERFACE:
        return lambda domain: domain.setInterfaceParameters(change.device, values, flags)
    return lambda domain: domain.setSchedulerParametersFlags(values, flags)
