# SPDX-License-Identifier: Apache-2.0
"""The seed's network-config: the interface is found by its MAC address, and has its port's address."""

from vgpuctl.guests.seed.documents import check_yaml
from vgpuctl.guests.templating import render_template
from vgpuctl.model.network import Attachment, Backend, mac_address
from vgpuctl.model.vm import CloudInit, Vm


def network_document(cloud_init: CloudInit, vm: Vm, attachment: Attachment | None) -> str | None:
    """Write the network-config; None for a VM without a network. Raises UsageError for a document of the user."""
    if cloud_init.network_config is not None:
        document = cloud_init.network_config.reveal()
        check_yaml(document, what="network-config")
        return document
    if attachment is not None:
        return _port_config(attachment)
    if vm.request.network is not None:
        return render_template("network-config.j2", mac_address=mac_address(vm.uuid), attachment=None)
    return None


def _port_config(attachment: Attachment) -> str:
    """The port's address, gateway and name servers: libvirt's gateway resolves names, OVN's does not."""
    network = attachment.network
    is_ovn = network.request.backend is Backend.OVN
    return render_template(
        "network-config.j2",
        mac_address=attachment.port.mac_address,
        attachment=attachment,
        resolvers=list(network.request.dns) or ([] if is_ovn else [network.gateway]),
        mtu=attachment.tunnel_mtu if is_ovn else None,
    )
