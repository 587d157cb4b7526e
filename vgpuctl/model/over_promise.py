# SPDX-License-Identifier: Apache-2.0
"""A tenant's policy for its VMs that take time of a GPU which their neighbours were promised."""

from collections.abc import Iterable
from enum import StrEnum

from vgpuctl.model.vm import MUST_RESTART, Vm


class OverPromise(StrEnum):
    """The answer to such a VM.

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


_WORK_STOPPED = "the work of its VF was stopped"


def stopped_work(functions: Iterable[str], reason: str) -> str:
    """The problem of a running VM of whose VFs these do no work until it is started again."""
    return f"{_WORK_STOPPED} ({', '.join(functions)}), and it {MUST_RESTART}: {reason}"


def is_work_stopped(vm: Vm, function: str) -> bool:
    """True if the work of this VF of the VM was stopped, and the VM was not started since."""
    problem = vm.problem or ""
    return vm.must_restart and problem.startswith(_WORK_STOPPED) and function in problem
