# SPDX-License-Identifier: Apache-2.0
"""One page of the VMs, filtered and sorted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vgpuctl.model.natural_order import natural
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.list_vms import ListedVm, list_vms

VMS_ON_PAGE = 200
SORTS: Mapping[str, Callable[[ListedVm], Any]] = {
    "tenant": lambda one: natural(one.vm.request.tenant),
    "name": lambda one: natural(one.vm.request.name),
    "state": lambda one: one.word,
    "host": lambda one: natural(one.vm.host),
    "profile": lambda one: [natural(name) for name in _profiles(one)],
}
"""What VMs are sorted by; those that are equal stay in the order of tenant and name."""


@dataclass(frozen=True)
class VmPage:
    """A part of the VMs that fit. first: number of the first one; total: how many fit. sort: a key of SORTS, with `-`
    before it for the other direction. states, profiles: of all VMs of the tenant and host, to choose from."""

    vms: tuple[ListedVm, ...]
    first: int
    total: int
    sort: str
    states: tuple[str, ...]
    profiles: tuple[str, ...]


def read_vm_page(services: Services, given: Mapping[str, str], *, first: int) -> VmPage:
    """The VMs that fit the fields of the page's form: tenant, host, name (a part of it), state, profile, sort.

    An empty field filters nothing. Raises NotFound for an unknown tenant.
    """
    every = list_vms(services, tenant=given.get("tenant") or None, host=given.get("host") or None)
    name, state, profile = (given.get(field, "").strip() for field in ("name", "state", "profile"))
    fits = [
        one
        for one in every
        if name.lower() in one.vm.request.name.lower()
        and state in ("", one.word)
        and (not profile or profile in _profiles(one))
    ]
    asked = given.get("sort", "")
    sort = asked if asked.removeprefix("-") in SORTS else "tenant"
    fits.sort(key=SORTS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    first = min(first, len(fits))
    return VmPage(
        tuple(fits[first : first + VMS_ON_PAGE]),
        first,
        len(fits),
        sort,
        tuple(sorted({one.word for one in every})),
        tuple(sorted({name for one in every for name in _profiles(one)}, key=natural)),
    )


def _profiles(one: ListedVm) -> list[str]:
    return [lease.share.profile for lease in one.leases]
