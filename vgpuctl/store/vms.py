# SPDX-License-Identifier: Apache-2.0
"""VMs in the store. A VM's row exists from before its first side effect until after the last one is undone."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from vgpuctl.errors import NotFound, StateError
from vgpuctl.model.labels import Labels
from vgpuctl.model.natural_order import natural_path
from vgpuctl.model.numa import GuestNuma
from vgpuctl.model.vm import PreemptionNotice, Vm, VmRequest, VmState, comes_back, moves_live_to
from vgpuctl.store import codec
from vgpuctl.store.ceilings import CeilingRows
from vgpuctl.store.database import Row, given
from vgpuctl.store.licences import LicenceRows
from vgpuctl.store.queue import QueueRows


class VmRows(QueueRows, LicenceRows, CeilingRows):
    """Add, find, change and delete VMs."""

    def add_vm(self, vm: Vm) -> None:
        """Add a VM.

        Raises NotFound for an unknown tenant, QuotaExceeded above a ceiling of it, ConcurrentChange when the tenant has
        a VM of this name or the uuid is taken.
        """
        request = vm.request
        self.tenant(request.tenant)
        self.require_below(request)
        self._insert(
            "vms",
            uuid=vm.uuid,
            tenant=request.tenant,
            name=request.name,
            host=vm.host,
            state=vm.state.value,
            problem=_problem(vm.problem),
            request=codec.encode(request),
            request_version=codec.REQUEST_VERSION,
            created_at=self._clock(),
            gang=vm.gang,
            domain=vm.domain_name,
            numa=_numa(vm.numa),
            conflict=f"another run has just created VM {request.name} of tenant {request.tenant}",
        )

    def vm(self, tenant: str, name: str) -> Vm | None:
        """One VM by its tenant and name, None when there is none."""
        return next(map(_vm, self._find("vms", tenant=tenant, name=name)), None)

    def vm_of(self, uuid: str) -> Vm | None:
        """One VM by its UUID, None when there is none."""
        return next(map(_vm, self._find("vms", uuid=uuid)), None)

    def vms(self, tenant: str | None = None, host: str | Collection[str] | None = None) -> list[Vm]:
        """VMs of a tenant, of one host or several, both, or all; by tenant and name."""
        on = host if host is None or isinstance(host, str) else sorted(host)
        return _in_order(self._find("vms", **given(tenant=tenant, host=on)))

    def vm_created_at(self, uuid: str) -> float | None:
        """When a VM was created, in seconds since the epoch, UTC; None when it is not there any more."""
        return next((row.created_at for row in self._find("vms", uuid=uuid)), None)

    def vms_with_notice(self) -> list[Vm]:
        """VMs that are to be preempted, by tenant and name."""
        return _in_order(self._read("SELECT * FROM vms WHERE preempted_at IS NOT NULL"))

    def vms_moving_live(self) -> list[Vm]:
        """VMs that run and are on their way to another host, by tenant and name."""
        return _in_order(self._read("SELECT * FROM vms WHERE problem LIKE :moving", moving=moves_live_to("%")))

    def vms_over_at(self, at: float) -> list[Vm]:
        """VMs whose declared time is over at `at` (seconds since the epoch, UTC), by tenant and name."""
        return _in_order(self._read("SELECT * FROM vms WHERE ends_at <= :at", at=at))

    def vm_times(self) -> dict[str, float]:
        """When each VM was created (seconds since the epoch, UTC), by uuid."""
        return {row.uuid: row.created_at for row in self._read("SELECT uuid, created_at FROM vms")}

    def last_placed_host(self) -> str | None:
        """The host of the VM that was added last, None when there is none."""
        for row in self._read("SELECT host FROM vms ORDER BY created_at DESC, uuid LIMIT 1"):
            return str(row.host)
        return None

    def set_vm_state(
        self,
        uuid: str,
        state: VmState,
        problem: str | None = None,
        *,
        kept_until: float | None = None,
        has_shut_down: bool = False,
        has_started: bool = False,
    ) -> None:
        """Set a VM's state; the problem is replaced, by none too. Raises NotFound.

        That a VM must be restarted stays its problem as long as it runs, unless it has another, or has_started: with a
        new QEMU, whose vGPUs are new.

        The declared time of a VM begins when it begins to run. kept_until: when the shares of a stopped one are given
        back, None for never. A VM that runs, or is being deleted, no longer waits for its start in the queue.
        A stopped one returns its seat, unless it is to start again at once; has_shut_down: its guest has powered off,
        so its server has the licence back already.
        """
        values: dict[str, object] = {"state": state.value, "problem": _problem(problem)}
        if state is VmState.STOPPED:
            values["ends_at"] = kept_until
            if has_shut_down:
                self.note_licence_returned(uuid)
            if not comes_back(problem):
                self.release_licence_seat(uuid)
        elif state is VmState.RUNNING:
            for row in self._find("vms", uuid=uuid):
                values["ends_at"] = self._end_of(row)
                if problem is None and _vm(row).must_restart and not has_started:
                    del values["problem"]
        self._change_vm(uuid, **values)
        if state in (VmState.RUNNING, VmState.DELETING):
            self._drop_start_of(uuid)

    def set_vm_notice(self, uuid: str, notice: PreemptionNotice | None) -> None:
        """Set the notice that a VM is preempted at the end of its grace period; None withdraws it. Raises NotFound."""
        if notice is None:
            self._change_vm(uuid, preempted_at=None, preempted_by=None, preempted_for_good=None)
        else:
            cause = codec.plain_text(notice.cause)
            self._change_vm(uuid, preempted_at=notice.at, preempted_by=cause, preempted_for_good=notice.is_final)

    def move_vm(self, uuid: str, host: str, numa: GuestNuma | None) -> None:
        """Set the host of a stopped VM, and its part of that host's NUMA nodes. Raises NotFound."""
        self._change_vm(uuid, host=host, numa=_numa(numa))

    def set_vm_guest_driver(self, uuid: str, version: str) -> None:
        """Note the NVIDIA driver that the VM's host has read from its guest. Raises NotFound."""
        self._change_vm(uuid, guest_driver=version)

    def set_vm_numa(self, uuid: str, numa: GuestNuma | None) -> None:
        """Set the part of its host's NUMA nodes that a VM has. Raises NotFound."""
        self._change_vm(uuid, numa=_numa(numa))

    def set_vm_request(self, uuid: str, request: VmRequest) -> None:
        """Replace what was asked for; tenant and name stay, and labels, which `set_vm_labels` alone changes.

        Raises NotFound, QuotaExceeded for what grows above a ceiling of the tenant, and StateError when the request
        names another tenant or VM.
        """
        for row in self._find("vms", uuid=uuid):
            there = _vm(row).request
            self.require_below(request, there)
            request = replace(request, labels=there.labels)
            if (row.tenant, row.name) != (request.tenant, request.name):
                raise StateError(
                    f"VM {row.name} of tenant {row.tenant} cannot become {request.name} of tenant {request.tenant}",
                    hint="create a new VM of that name",
                )
        self._change_vm(uuid, request=codec.encode(request), request_version=codec.REQUEST_VERSION)

    def set_vm_labels(self, uuid: str, labels: Labels) -> None:
        """Replace the labels of a VM. Raises NotFound."""
        for row in self._find("vms", uuid=uuid):
            request = replace(_vm(row).request, labels=labels)
            self._change_vm(uuid, request=codec.encode(request), request_version=codec.REQUEST_VERSION)
            return
        raise self._gone(uuid)

    def delete_vm(self, uuid: str) -> bool:
        """Delete a VM's row with its ports, their addresses, and its place in the queue for its start.

        Returns False when it was gone already.

        Raises StateError while a lease of this VM is not `gone`: the row is what leads `repair` to it.
        """
        live = "SELECT * FROM leases WHERE vm_uuid = :uuid AND state <> 'gone'"
        held = [f"{row.device} on host {row.host}" for row in self._read(live, uuid=uuid)]
        if held:
            raise StateError(
                f"VM {uuid} still holds {len(held)} GPU shares, its row in the store stays",
                context=held,
                hint="run `vgpuctl repair`",
            )
        self._write("DELETE FROM addresses WHERE holder IN (SELECT id FROM ports WHERE vm_uuid = :uuid)", uuid=uuid)
        self._delete("ports", vm_uuid=uuid)
        self._drop_start_of(uuid)
        self.release_licence_seat(uuid)
        return self._delete("vms", uuid=uuid) == 1

    def _end_of(self, row: Row) -> float | None:
        """When the declared time of a VM ends that runs from now on.

        The end of a stopped one was of its shares, but one that moves keeps the end that it had.
        """
        vm = _vm(row)
        if row.ends_at is not None and (vm.state is not VmState.STOPPED or vm.is_on_its_way):
            return float(row.ends_at)
        duration_s = vm.request.duration_s
        return None if duration_s is None else self._clock() + duration_s

    def _drop_start_of(self, uuid: str) -> None:
        for row in self._find("vms", uuid=uuid):
            self.drop_start(row.tenant, row.name)

    def _change_vm(self, uuid: str, **values: Any) -> None:
        if self._update("vms", {"uuid": uuid}, **values) != 1:
            raise self._gone(uuid)

    def _gone(self, uuid: str) -> NotFound:
        return NotFound(
            f"there is no VM with uuid {uuid} in the store {self._store_name}",
            hint="another run may have deleted it; see `vgpuctl list-vms`",
        )


def _in_order(rows: Iterable[Row]) -> list[Vm]:
    return sorted(map(_vm, rows), key=lambda vm: natural_path(vm.printed_name))


def _vm(row: Row) -> Vm:
    what = f"VM {row.name} of tenant {row.tenant}"
    request = codec.decode_request(row.request, row.request_version, what=what)
    notice = None
    if row.preempted_at is not None:
        notice = PreemptionNotice(row.preempted_at, row.preempted_by or "", bool(row.preempted_for_good))
    numa = codec.decode_numa(row.numa, what=what)
    state = VmState(row.state)
    vm = Vm(row.uuid, request, row.host, state, row.problem, row.ends_at, row.gang, notice, numa=numa)
    vm = replace(vm, guest_driver=row.guest_driver)
    return vm if row.domain in (None, vm.domain_name) else replace(vm, domain=row.domain)


def _numa(numa: GuestNuma | None) -> str | None:
    return None if numa is None else codec.encode(numa)


def _problem(problem: str | None) -> str | None:
    return None if problem is None else codec.plain_text(problem)
