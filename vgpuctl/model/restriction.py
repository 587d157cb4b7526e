# SPDX-License-Identifier: Apache-2.0
"""Restrictions: hosts and GPUs that must not be handed out, and why. The store keeps them."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

WHOLE_HOST = ""
"""The device of a restriction that covers a host with all of its GPUs."""


class RestrictionKind(enum.StrEnum):
    """The meaning of a restriction.

    cordon: an operator takes the host or GPU out of placement; VMs on it go on, and may start again there. drain: the
    host was emptied for maintenance; nothing starts there. quarantine: a GPU or VF is suspect; nothing starts
    on it until it is released. fence: the host was declared dead; nothing that it says is trusted until its remains are
    gone.
    """

    CORDON = "cordon"
    DRAIN = "drain"
    QUARANTINE = "quarantine"
    FENCE = "fence"


@dataclass(frozen=True)
class Restriction:
    """One restriction.

    device: the PCI address of a GPU or VF, the UUID of a card whose slot another restricted card has by now, or
    WHOLE_HOST. finding: the code of the finding that caused a quarantine. gpu_uuid: follows the card to another slot or
    host. set_by: who set it, `user@host`. set_at: seconds since the epoch, UTC.
    """

    host: str
    device: str
    kind: RestrictionKind
    reason: str
    finding: str | None = None
    gpu_uuid: str | None = None
    set_by: str = ""
    set_at: float = 0.0

    @property
    def subject(self) -> str:
        """The host or device that it covers, for messages: `gpu1` or `gpu1 0000:41:00.0`."""
        return f"{self.host} {self.device}".strip()


def restrictions_on(every: Iterable[Restriction], host: str, device: str, gpu_uuid: str | None) -> list[Restriction]:
    """Find the restrictions of one GPU or VF: those of its address, and the quarantines of its UUID wherever it is now.

    A quarantine with a UUID stays with its card: the card that is now at the old address is another one and is free.
    """
    return [one for one in every if _covers(one, host, device, gpu_uuid)]


def _covers(one: Restriction, host: str, device: str, gpu_uuid: str | None) -> bool:
    if one.device == WHOLE_HOST:
        return False
    if one.gpu_uuid is not None and gpu_uuid is not None:
        return one.gpu_uuid == gpu_uuid
    return (one.host, one.device) == (host, device)
