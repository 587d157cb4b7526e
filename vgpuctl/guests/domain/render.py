# SPDX-License-Identifier: Apache-2.0
"""From a DomainView to libvirt's domain XML."""

from vgpuctl.guests.domain.metadata import NAMESPACE
from vgpuctl.guests.domain.nic_view import NicView
from vgpuctl.guests.domain.pci_layout import CHANNEL_BUS, ENTROPY_BUS, NETWORK_BUS
from vgpuctl.guests.domain.view import DomainView
from vgpuctl.guests.templating import render_template

BUSES = {"network": NETWORK_BUS, "entropy": ENTROPY_BUS, "channel": CHANNEL_BUS}


def render_interface(nic: NicView) -> str:
    """Render the XML of one interface, for a domain that runs."""
    return render_template("interface.xml.j2", nic=nic)


def render_domain(view: DomainView) -> str:
    """Render the XML of one domain. Equal views give equal text."""
    return render_template("domain.xml.j2", domain=view, buses=BUSES, metadata_namespace=NAMESPACE)
