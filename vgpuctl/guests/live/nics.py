# SPDX-License-Identifier: Apache-2.0
"""Attach network interfaces to a running domain, and detach them."""

from vgpuctl.guests.domain.nic_view import NicView
from vgpuctl.guests.domain.render import render_interface
from vgpuctl.guests.facts.nic_facts import interface_xml, macs_of
from vgpuctl.guests.libvirt_errors import libvirt_module
from vgpuctl.guests.live.domain import LiveChange, LiveDomain


class LiveNics(LiveDomain):
    """The network interfaces of one domain."""

    def macs(self) -> frozenset[str]:
        """The MAC addresses of the running domain's interfaces; none when it is off."""
        live = self.xml()
        return frozenset() if live is None else macs_of(live)

    def attach(self, nic: NicView) -> LiveChange:
        """Attach an interface behind its port; one that is there already is fine. Raises DomainRejected."""
        live = self.xml()
        if live is None:
            return LiveChange.NEXT_START
        if nic.mac_address in macs_of(live):
            return LiveChange.DONE
        element, flags = render_interface(nic), libvirt_module().VIR_DOMAIN_AFFECT_LIVE
        action = f"attach an interface in network {nic.network} to"
        return self._change(action, lambda domain: domain.attachDeviceFlags(element, flags))

    def detach(self, mac: str, *, timeout_s: float) -> LiveChange:
        """Detach an interface and wait until the running domain has it no more; `pending` when the guest keeps it.

        libvirt answers when the guest is asked. Raises DomainRejected.
        """
        live = self.xml()
        if live is None or mac not in macs_of(live):
            return LiveChange.DONE
        element, flags = interface_xml(live, mac), libvirt_module().VIR_DOMAIN_AFFECT_LIVE
        action = f"detach interface {mac} from"
        asked = self._change(action, lambda domain: domain.detachDeviceFlags(element, flags), is_asked_before=True)
        if asked is LiveChange.NEXT_START:
            return LiveChange.PENDING
        return self._wait_until_gone(lambda: mac in self.macs(), timeout_s)
