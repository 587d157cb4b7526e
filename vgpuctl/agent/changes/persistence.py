# SPDX-License-Identifier: Apache-2.0
"""Stop nvidia-persistenced, which keeps cards open without using them, for a step that needs a card alone.

It is stopped only if it has a node of one of the cards open, and started again afterwards. If the agent is killed in
between, it stays stopped; the only effect is a slower next start of the driver.
"""

import sys
from contextlib import contextmanager
from typing import Iterator, Sequence

from vgpuctl.agent.changes.services import ensure as ensure_service
from vgpuctl.agent.facts import services
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.steps import SetServiceActive

SERVICE = "nvidia-persistenced.service"
_TRIES, _PAUSE_S = 20, 0.5


def holds(host: Host, addresses: Sequence[str]) -> bool:
    """Tell whether the daemon has a node of one of these cards open."""
    nodes = OpenNodes(host)
    return any(nodes.persistence(address) for address in addresses)


@contextmanager
def paused(host: Host, addresses: Sequence[str]) -> Iterator[None]:
    """Keep the daemon away from the cards; it is started again whatever happens in the block.

    Raises Problem: `held` when it is not systemd's or does not let go, `service-did-not-stop`.
    """
    if not services.has_systemd(host):
        _refuse_while_held(host, addresses)
    if not ensure_service(host, SetServiceActive(SERVICE, False), dry_run=False).changed:
        _refuse_while_held(host, addresses)
    try:
        _wait_until_free(host, addresses)
        yield
    finally:
        try:
            ensure_service(host, SetServiceActive(SERVICE, True), dry_run=False)
        except Problem as problem:
            # The step itself is done, or has failed for a reason of its own: neither is this.
            sys.stderr.write(f"<4>{problem.message}\n")


def _wait_until_free(host: Host, addresses: Sequence[str]) -> None:
    for _ in range(_TRIES):
        if not holds(host, addresses):
            return
        host.wait(_PAUSE_S)
    _refuse_while_held(host, addresses)


def _refuse_while_held(host: Host, addresses: Sequence[str]) -> None:
    nodes = OpenNodes(host)
    for address in addresses:
        require_unheld(nodes, address, nodes.persistence(address))
