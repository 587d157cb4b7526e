# SPDX-License-Identifier: Apache-2.0
"""Every state that the store keeps, for example of hosts, GPUs or VMs, with one file for each subject.

Metrics, web pages, reports and docs/monitoring.md iterate over STATE_KINDS; usecases/observed/states.py reads the rows.
A test compares the table with the enums, so that no state is forgotten.
"""

from vgpuctl.model.states.kind import UNKNOWN, StateKind, StateRow
from vgpuctl.model.states.of_hosts import OF_HOSTS
from vgpuctl.model.states.of_store import OF_STORE, TruthMismatch
from vgpuctl.model.states.of_tenants import OF_TENANTS, SEAT_STATES
from vgpuctl.model.states.of_vms import OF_VMS

__all__ = ["SEAT_STATES", "STATE_KINDS", "UNKNOWN", "StateKind", "StateRow", "TruthMismatch", "state_kind"]

STATE_KINDS: tuple[StateKind, ...] = (*OF_HOSTS, *OF_VMS, *OF_TENANTS, *OF_STORE)
_BY_NAME = {one.name: one for one in STATE_KINDS}


def state_kind(name: str) -> StateKind:
    """Return a kind of state by its name. Raises KeyError."""
    return _BY_NAME[name]
