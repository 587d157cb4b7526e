# SPDX-License-Identifier: Apache-2.0
"""Finding the VMs that a command line names: by names, globs or labels, or all of a tenant or of every tenant."""

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vgpuctl.errors import InventoryError, NotFound
from vgpuctl.model.labels import Selector
from vgpuctl.model.lease import Lease
from vgpuctl.model.natural_order import natural_path
from vgpuctl.model.qualified_name import split_name, without_tenant
from vgpuctl.model.vm import Vm, VmRequest
from vgpuctl.usecases.found.deletion import is_glob
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.running.services import Services

Found = tuple[Vm, tuple[Lease, ...]]


@dataclass(frozen=True)
class VmSelection:
    """The VMs that a command line selects.

    names: `NAME` or `TENANT/NAME`; each part may be a glob with `*`, `?` and `[…]`. tenant: of names without one, and
    of is_all. is_every_tenant: globs without a tenant, and is_all, are of every tenant. selector: of the VMs that globs
    and is_all fit, only those with such labels. limit: of those, only the VMs on hosts that this pattern of --limit
    fits; hosts: their names, once `located` knows them.
    """

    names: tuple[str, ...] = ()
    tenant: str | None = None
    is_all: bool = False
    is_every_tenant: bool = False
    selector: Selector | None = None
    limit: str | None = None
    hosts: frozenset[str] | None = None

    @property
    def is_one(self) -> bool:
        """True if exactly one VM is named, by a plain name."""
        return not self.is_all and len(self.names) == 1 and not is_glob(self.names[0])

    @property
    def is_by_name(self) -> bool:
        """True if every VM is named by its plain name."""
        return not self.is_all and not any(map(is_glob, self.names))

    def plain_names(self) -> list[tuple[str, str]]:
        """The tenant and name of each plain name, once. Raises UsageError for one without a tenant."""
        return list(dict.fromkeys(self._split(one, every=None) for one in self.names if not is_glob(one)))

    def globs(self) -> list[tuple[str, str]]:
        """The globs of tenant and name of each glob, and of is_all. Raises UsageError for one without a tenant."""
        written = [one for one in self.names if is_glob(one)] + ["*"] * self.is_all
        return [self._split(one, every="*" if self.is_every_tenant else None) for one in written]

    def fits(self, request: VmRequest, glob: tuple[str, str], host: str | None = None) -> bool:
        """True if a VM fits one of `globs`, the selector and the hosts. host: None for one that waits for a place."""
        if self.hosts is not None and host not in self.hosts:
            return False
        is_named = fnmatch.fnmatchcase(request.tenant, glob[0]) and fnmatch.fnmatchcase(request.name, glob[1])
        return is_named and (self.selector is None or self.selector.fits(request.labels))

    @property
    def words(self) -> str:
        """Selector and hosts for a message, behind a glob."""
        labels = "" if self.selector is None else f" with --selector {self.selector.text!r}"
        return labels + ("" if self.limit is None else f" on hosts of --limit {self.limit!r}")

    @property
    def _every(self) -> str:
        """The option that stands for names."""
        return "--selector" if self.selector is not None else "--limit" if self.limit is not None else "--all"

    def _split(self, written: str, *, every: str | None) -> tuple[str, str]:
        whose, name = split_name(written)
        tenant = (self.tenant or every) if whose is None else whose
        if tenant is None:
            more = "; -A is for all tenants" if is_glob(written) else ""
            raise without_tenant(written if name != "*" else self._every, more=more)
        return tenant, name


def find_vms(services: Services, selection: VmSelection, *, if_exists: bool = False) -> list[Found]:
    """The VMs of a selection with their live leases, each once, in natural order of tenant and name.

    if_exists: report a name or glob that fits no VM, instead of raising NotFound. is_all fits none or more.
    """
    selection = located(services, selection)
    found = {vm.uuid: (vm, leases) for vm, leases in _named(services, selection, if_exists=if_exists)}
    if globs := selection.globs():
        with services.store.reading() as session:
            every = session.vms()
            for tenant, name in globs:
                if not is_glob(tenant):
                    session.tenant(tenant)
                fitting = [vm for vm in every if selection.fits(vm.request, (tenant, name), vm.host)]
                if not fitting and not (if_exists or selection.is_all):
                    raise NotFound(f"no VM fits {tenant}/{name}{selection.words}", hint=_see(tenant))
                if not fitting:
                    services.say(f"{tenant}/{name}{selection.words}: no VM fits, nothing to do")
                found |= {vm.uuid: (vm, tuple(session.leases(vm_uuid=vm.uuid))) for vm in fitting}
    return sorted(found.values(), key=lambda one: natural_path(one[0].printed_name))


def located(services: Services, selection: VmSelection) -> VmSelection:
    """The selection with the names of its hosts."""
    if selection.limit is None or selection.hosts is not None:
        return selection
    return replace(selection, hosts=hosts_fitting(services, selection.limit))


def hosts_fitting(services: Services, limit: str) -> frozenset[str]:
    """The hosts that a pattern of --limit fits; also one whose VMs the store has and that no inventory lists.

    Raises InventoryError for a pattern that fits no host.
    """
    with services.store.reading() as session:
        if limit in {vm.host for vm in session.vms()}:
            return frozenset({limit})
    try:
        return frozenset(services.inventory.select(limit))
    except InventoryError as error:
        if "=" in limit:
            error.hint = f"VMs with labels are `--selector {limit!r}`; --limit names hosts"
        raise


def _named(services: Services, selection: VmSelection, *, if_exists: bool) -> Iterator[Found]:
    for tenant, name in selection.plain_names():
        try:
            yield find_vm(services, tenant, name)
        except NotFound as error:
            if not if_exists:
                raise
            services.say(f"{error.message}, nothing to do")


def _see(tenant: str) -> str:
    return f"see `vgpuctl list-vms {'--all-tenants' if is_glob(tenant) else f'--tenant {tenant}'}`"
