# SPDX-License-Identifier: Apache-2.0
"""Attach GPUs to a running domain, and detach them. Its definition stays: it is written as a whole at each start."""

from collections.abc import Callable
from typing import Any

from vgpuctl.guests.domain.view import gpu_functions
from vgpuctl.guests.facts.domain_facts import domain_fact
from vgpuctl.guests.facts.spare_ports import free_spare_port
from vgpuctl.guests.libvirt_errors import libvirt_module
from vgpuctl.guests.live.domain import LiveChange, LiveDomain
from vgpuctl.guests.templating import render_template
from vgpuctl.model.display import VgpuDisplay
from vgpuctl.model.lease import Share


class LiveGpus(LiveDomain):
    """The GPUs of one domain."""

    def spare_port(self) -> tuple[int, int] | None:
        """A free spare port of the running domain: its controller index and its number. None when none is free."""
        xml = self.xml()
        return None if xml is None else free_spare_port(xml)

    def has(self, share: Share) -> bool:
        """True if the running domain has a device of the share, whoever attached it."""
        return bool(self._aliases(share))

    def attach(self, index: int, share: Share, port: int) -> LiveChange:
        """Attach a share behind a root port; `next start` where the driver cannot. index: its position.

        Raises DomainRejected with what libvirt answered.
        """
        if self.has(share):
            return LiveChange.DONE
        (hostdev,) = gpu_functions(index, share, port, VgpuDisplay.OFF)
        element = render_template("hostdev.xml.j2", hostdev=hostdev)
        flags = libvirt_module().VIR_DOMAIN_AFFECT_LIVE
        return self._change(
            f"attach {share.profile} on {share.function} to", lambda domain: domain.attachDeviceFlags(element, flags)
        )

    def detach(self, share: Share, *, timeout_s: float) -> LiveChange:
        """Detach a share and wait until the running domain has it no more; `pending` when the guest keeps it.

        libvirt answers when the guest is asked; QEMU removes the device when the guest has let go of it, which a guest
        without an operating system never does. `next start` where the driver cannot. Raises DomainRejected.
        """
        flags = libvirt_module().VIR_DOMAIN_AFFECT_LIVE
        for alias in self._aliases(share):
            asked = self._change(
                f"detach {share.profile} on {share.function} from", _detach(alias, flags), is_asked_before=True
            )
            if asked is LiveChange.NEXT_START:
                return asked
        return self._wait_until_gone(lambda: self.has(share), timeout_s)

    def _aliases(self, share: Share) -> list[str]:
        xml = self.xml()
        if xml is None:
            return []
        state = self._hypervisor.state(self._name, uuid=self._uuid)
        if state is None:
            return []
        own = {share.vfio_device, *share.companions}
        return [one.alias or "" for one in domain_fact(xml, state).hostdevs if one.device in own]


def _detach(alias: str, flags: int) -> Callable[[Any], object]:
    return lambda domain: domain.detachDeviceAlias(alias, flags)
