# SPDX-License-Identifier: Apache-2.0
"""list-pools: every pool with its hosts and tenants."""

from collections.abc import Sequence

from vgpuctl.quota.pools import Pool
from vgpuctl.usecases.support.services import Services


def list_pools(services: Services) -> Sequence[Pool]:
    """Every pool, by name."""
    with services.store.reading() as session:
        return session.pools()
