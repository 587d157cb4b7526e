# SPDX-License-Identifier: Apache-2.0
"""Changes of a running domain alone; its definition is written as a whole elsewhere."""

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from vgpuctl.errors import DomainRejected
from vgpuctl.guests.libvirt_errors import error_code, libvirt_module, translate, translated
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor

_POLL_S = 0.2


class LiveChange(StrEnum):
    """The outcome of a change of a running domain.

    pending: QEMU asked the guest, which has not let go of the device yet. next start: the domain is off, has no port
    for it, or its driver cannot change it while it runs.
    """

    DONE = "done"
    PENDING = "pending"
    NEXT_START = "next start"


class LiveDomain:
    """One domain, by the UUID of its VM."""

    def __init__(self, hypervisor: Hypervisor, name: str, *, uuid: str) -> None:
        self._hypervisor = hypervisor
        self._name = name
        self._uuid = uuid

    def xml(self) -> str | None:
        """The XML of the running domain; None when it is off or gone."""
        state = self._hypervisor.state(self._name, uuid=self._uuid)
        if state is None or not state.is_active():
            return None
        with translated(f"read the XML of domain {self._name} on {self._hypervisor.host}"):
            return str(self._domain().XMLDesc(0))

    def _change(self, action: str, change: Callable[[Any], object], *, is_asked_before: bool = False) -> LiveChange:
        """Change the domain. is_asked_before: accept a refusal because the same was asked before."""
        library = libvirt_module()
        try:
            change(self._domain())
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_SUPPORT or _is_of_a_test_driver(refused):
                return LiveChange.NEXT_START
            if is_asked_before and "in the process of unplug" in str(refused):
                return LiveChange.DONE
            what = f"{action} domain {self._name} on {self._hypervisor.host}"
            raise translate(refused, what, DomainRejected) from refused
        return LiveChange.DONE

    @staticmethod
    def _wait_until_gone(is_there: Callable[[], bool], timeout_s: float) -> LiveChange:
        """Wait until the running domain no longer has a device; `pending` when the guest keeps it."""
        deadline = time.monotonic() + timeout_s
        while is_there():
            if time.monotonic() > deadline:
                return LiveChange.PENDING
            time.sleep(_POLL_S)
        return LiveChange.DONE

    def _domain(self) -> Any:
        with translated(f"find domain {self._name} on {self._hypervisor.host}"):
            return self._hypervisor.connection.lookupByUUIDString(self._uuid)


def _is_of_a_test_driver(refused: Any) -> bool:
    """True if libvirt's test driver refuses a flag of a call that it knows in part."""
    return bool(refused.get_error_domain() == libvirt_module().VIR_FROM_TEST)
