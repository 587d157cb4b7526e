# SPDX-License-Identifier: Apache-2.0
"""What becomes of a VM that takes time of a GPU which its neighbours were promised, as its tenant's policy has it."""

from enum import StrEnum


class OverPromise(StrEnum):
    """What happens.

    allow: an event and no alert. notify: an event and an alert, the usual. limit: its VF gets a shorter time slice,
    where the driver has one. move: it moves live to another host. stop: the work of its VF is stopped until the VM is
    started again.
    """

    ALLOW = "allow"
    NOTIFY = "notify"
    LIMIT = "limit"
    MOVE = "move"
    STOP = "stop"

    @property
    def is_answered(self) -> bool:
        """True if the controller does something about it."""
        return self in (OverPromise.LIMIT, OverPromise.MOVE, OverPromise.STOP)
