# SPDX-License-Identifier: Apache-2.0
"""list-external-networks: the external networks of the store."""

from collections.abc import Sequence

from vgpuctl.model.vpc import ExternalNetwork
from vgpuctl.usecases.running.services import Services


def list_external_networks(services: Services) -> Sequence[tuple[ExternalNetwork, dict[str, str]]]:
    """Every external network with its held addresses, address → tenant/holder."""
    with services.store.reading() as session:
        return [(network, session.external_addresses(network.name)) for network in session.external_networks()]
