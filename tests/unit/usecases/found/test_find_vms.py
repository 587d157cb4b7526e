# SPDX-License-Identifier: Apache-2.0
"""VMs are found by names of one or several tenants, by globs, or all at once, in natural order."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stored_fleet import open_stored
from vgpuctl.errors import GuestError, NotFound, UsageError
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.usecases.found.find_vms import VmSelection, find_vms
from vgpuctl.usecases.running.each_vm import on_each_vm
from vgpuctl.usecases.running.services import Services

NAMES = ("acme/web-10", "acme/web-2", "acme/db", "globex/web-2")
HOSTS = {"acme/web-10": "gpu1", "acme/web-2": "gpu2", "acme/db": "gpu1", "globex/web-2": "gpu3"}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with open_stored(tmp_path, ("gpu1", "gpu2", "gpu3")) as opened:
        with opened.store.transaction() as session:
            for tenant in ("acme", "globex", "empty"):
                session.add_tenant(tenant)
            for number, written in enumerate(NAMES):
                tenant, name = written.split("/")
                uuid = f"00000000-0000-4000-8000-{number:012}"
                session.add_vm(Vm(uuid, VmRequest(name, tenant), HOSTS[written], VmState.RUNNING))
        yield opened


def _name(vm: Vm) -> str:
    return f"{vm.request.tenant}/{vm.request.name}"


def _found(
    services: Services,
    *names: str,
    tenant: str | None = None,
    is_all: bool = False,
    is_every_tenant: bool = False,
    if_exists: bool = False,
) -> list[str]:
    selection = VmSelection(names, tenant, is_all, is_every_tenant)
    return [_name(vm) for vm, _leases in find_vms(services, selection, if_exists=if_exists)]


def test_names_and_globs_of_several_tenants_are_found_once(services: Services) -> None:
    assert _found(services, "acme/web-10", "globex/web-2") == ["acme/web-10", "globex/web-2"]
    assert _found(services, "acme/web-*") == ["acme/web-2", "acme/web-10"]
    assert _found(services, "*/web-2", "acme/web-2", "acme/web-[12]") == ["acme/web-2", "globex/web-2"]
    assert _found(services, "d?", "web-2", tenant="acme") == ["acme/db", "acme/web-2"]
    assert _found(services, "web-*", is_every_tenant=True) == ["acme/web-2", "acme/web-10", "globex/web-2"]


def test_all_is_of_a_tenant_or_of_every_tenant(services: Services) -> None:
    assert _found(services, tenant="acme", is_all=True) == ["acme/db", "acme/web-2", "acme/web-10"]
    assert len(_found(services, is_all=True, is_every_tenant=True)) == len(NAMES)
    assert _found(services, tenant="empty", is_all=True) == []
    for selection in (VmSelection(is_all=True), VmSelection(("web-*",)), VmSelection(("web-2",))):
        with pytest.raises(UsageError, match=r"the tenant of .* is not given"):
            find_vms(services, selection)


@pytest.mark.parametrize("name", ["acme/web-3", "acme/x*", "*/x*", "nobody/*", "nobody/web-2"])
def test_what_fits_no_vm_is_an_error_unless_it_need_not_exist(services: Services, name: str) -> None:
    with pytest.raises(NotFound):
        _found(services, name, "acme/db")
    if not name.startswith("nobody/"):
        assert _found(services, name, "acme/db", if_exists=True) == ["acme/db"]


def test_one_failure_stops_no_other_and_hosts_are_at_work_together(services: Services) -> None:
    vms = [vm for vm, _leases in find_vms(services, VmSelection(is_all=True, is_every_tenant=True))]
    together = threading.Barrier(3, timeout=20)
    first = {"acme/web-2", "acme/db", "globex/web-2"}

    def work(vm: Vm) -> str:
        if _name(vm) in first:
            together.wait()
        if _name(vm) == "acme/db":
            raise GuestError("it fails")
        return _name(vm)

    done = on_each_vm(services, vms, work)
    assert [one.vm for one in done] == vms
    assert [one.value for one in done] == [None, "acme/web-2", "acme/web-10", "globex/web-2"]
    assert [str(one.error) for one in done if one.error is not None] == ["it fails"]


def test_work_in_turn_is_done_in_the_callers_thread(services: Services) -> None:
    vms = [vm for vm, _leases in find_vms(services, VmSelection(is_all=True, is_every_tenant=True))]
    done = on_each_vm(services, vms, lambda _vm: threading.current_thread(), is_in_turn=True)
    assert {one.value for one in done} == {threading.main_thread()}
