# SPDX-License-Identifier: Apache-2.0
"""Deleted VMs whose disks are kept for a time. A row exists until the VM is made again, or its disks are deleted."""

from collections.abc import Iterable

from vgpuctl.model.kept_vm import KeptVm
from vgpuctl.model.vm import Vm
from vgpuctl.store import codec
from vgpuctl.store.database import Row, given
from vgpuctl.store.rows import Rows


class KeptVmRows(Rows):
    """Add, find and delete the records of VMs whose disks are kept."""

    def keep_vm(self, vm: Vm, *, until: float) -> None:
        """Note that the disks of a VM which is deleted stay until then (seconds since the epoch, UTC).

        A second call for the VM sets another end. Raises ConcurrentChange when the tenant keeps the disks of an
        earlier VM of this name.
        """
        if self._update("kept_vms", {"uuid": vm.uuid}, until=until):
            return
        self._insert(
            "kept_vms",
            uuid=vm.uuid,
            tenant=vm.request.tenant,
            name=vm.request.name,
            host=vm.host,
            request=codec.encode(vm.request),
            request_version=codec.REQUEST_VERSION,
            domain=vm.domain_name,
            guest_driver=vm.guest_driver,
            kept_at=self._clock(),
            until=until,
            conflict=f"tenant {vm.request.tenant} keeps the disks of another VM {vm.request.name}",
        )

    def kept_vm(self, tenant: str, name: str) -> KeptVm | None:
        """The deleted VM of this name whose disks are kept; None when there is none."""
        return next(map(_kept_vm, self._find("kept_vms", tenant=tenant, name=name)), None)

    def kept_vms(self, *, tenant: str | None = None, host: str | None = None) -> list[KeptVm]:
        """Deleted VMs of a tenant, a host, both, or all; by tenant and name."""
        return _in_order(self._find("kept_vms", **given(tenant=tenant, host=host)))

    def kept_vms_over_at(self, at: float) -> list[KeptVm]:
        """Those whose time is over at `at` (seconds since the epoch, UTC), by tenant and name."""
        return _in_order(self._read("SELECT * FROM kept_vms WHERE until <= :at", at=at))

    def kept_until(self, uuid: str) -> float | None:
        """Until when the disks of a VM are kept (seconds since the epoch, UTC); None for not at all."""
        for row in self._find("kept_vms", uuid=uuid):
            return float(row.until)
        return None

    def drop_kept_vm(self, uuid: str) -> bool:
        """Delete the record. Returns False when it was gone."""
        return self._delete("kept_vms", uuid=uuid) == 1


def _in_order(rows: Iterable[Row]) -> list[KeptVm]:
    return sorted(map(_kept_vm, rows), key=lambda one: (one.request.tenant, one.request.name))


def _kept_vm(row: Row) -> KeptVm:
    what = f"deleted VM {row.name} of tenant {row.tenant}"
    request = codec.decode_request(row.request, row.request_version, what=what)
    kept = KeptVm(row.uuid, request, row.host, row.kept_at, row.until, guest_driver=row.guest_driver)
    if row.domain == kept.as_vm().domain_name:
        return kept
    return KeptVm(row.uuid, request, row.host, row.kept_at, row.until, row.domain, row.guest_driver)
