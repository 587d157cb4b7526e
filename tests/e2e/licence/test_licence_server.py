# SPDX-License-Identifier: Apache-2.0
"""Seats that vgpuctl counts and leases that the lab's licence server has given out, through the life of VMs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.licence.licence_tokens import written
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import machine
from vgpuctl_lab import faults, licensing

TENANT = ("--tenant", "acme")
VM = (*TENANT, "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
NAME = "dls"
NOW = ("--shutdown-timeout", "0", "--yes")


@dataclass(frozen=True)
class Site:
    """An operator, and the licence server of the site."""

    operator: Operator
    folder: lab.LabFolder
    home: Path

    def counted(self) -> set[str]:
        """The UUIDs of the VMs whose seats vgpuctl counts, those that come back later too."""
        return {seat["vm_uuid"] for pool in self.operator.json("list-licence-pools") for seat in pool["seats"]}

    def coming_back(self) -> int:
        """How many of them come back later."""
        return sum(pool["coming_back"] for pool in self.operator.json("list-licence-pools"))

    def leased(self) -> set[str]:
        """The UUIDs of the guests that the server has given a lease."""
        (server,) = [one for one in licensing.status(folder=self.folder) if one.name == NAME]
        return {lease.client for lease in server.leases}

    def agree(self, count: int) -> None:
        """Both count the same guests."""
        assert self.counted() == self.leased()
        assert len(self.leased()) == count

    def taken(self, vm: str) -> list[float]:
        """When a VM took its seat."""
        pools = self.operator.json("list-licence-pools")
        return [seat["taken_at"] for pool in pools for seat in pool["seats"] if seat["vm_name"] == vm]

    def states(self, vm: str) -> list[str]:
        """The licence states of a VM by the host's NVML."""
        found: list[str] = self.operator.json("show-vm", vm, *TENANT)["licence_states"]
        return found

    def wait_for(self, vm: str, state: str) -> None:
        """Wait until a VM's guest has a licence state."""
        end = time.monotonic() + 60
        while (found := self.states(vm)) != [state]:
            assert time.monotonic() < end, found

    def token(self, name: str = NAME, lifetime_s: float = 3600.0) -> str:
        """A file with a new token of a server."""
        text = licensing.token(name, lifetime_s=lifetime_s, folder=self.folder)
        return str(written(self.home / f"{name}-{time.monotonic_ns()}.tok", text))


@pytest.fixture(scope="module")
def site(fleet: lab.LabFolder, fleet_operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    licensing.up(NAME, {"vws": 3}, lease_s=3600, folder=fleet)
    made = Site(fleet_operator, fleet, tmp_path_factory.mktemp("tokens"))
    for tenant in ("acme", "umbrella"):
        fleet_operator.does("create-tenant", tenant)
    fleet_operator.does("list-gpus", "--refresh")
    create = ("create-licence-pool", "dls", "--edition", "vws", "--seats", "3", "--lease", "1h")
    fleet_operator.does(*create, "--token", made.token())
    yield made
    licensing.down(folder=fleet)


def test_both_count_alike_from_create_to_delete(site: Site) -> None:
    operator = site.operator
    site.agree(0)
    operator.does("create-vm", "one", *VM)
    operator.does("create-vm", "two", *VM)
    site.agree(2)
    assert site.states("one") == ["licensed"]
    operator.does("stop-vm", "one", *TENANT, "--hold", "keep")
    site.agree(1)
    operator.does("start-vm", "one", *TENANT)
    taken = site.taken("one")
    operator.does("move-vm", "one", *TENANT)
    site.agree(2)
    assert site.taken("one") == taken, "a VM that moves keeps its seat"
    operator.does("stop-vm", "one", *TENANT, "--force")
    site.agree(2)
    assert site.coming_back() == 1, "the guest could not return it"
    operator.does("start-vm", "one", *TENANT)
    site.agree(2)
    assert site.coming_back() == 0, "the same guest gets its own seat again"
    operator.does("delete-vm", "two", *TENANT, "--yes")
    site.agree(1)


def test_a_guest_that_powers_off_by_itself_returns_its_seat_at_once(site: Site) -> None:
    vm = site.operator.json("show-vm", "one", *TENANT)["vm"]
    with libvirt_of(site.operator.inventory, vm["host"]) as there:
        assert there.shutdown("acme.one", 5, uuid=vm["uuid"])
    site.operator.does("repair")
    site.agree(0)
    site.operator.does("start-vm", "one", *TENANT)
    site.agree(1)


def test_both_count_alike_when_a_vm_is_preempted(site: Site) -> None:
    host = site.operator.json("show-vm", "one", *TENANT)["vm"]["host"]
    site.operator.does("delete-vm", "one", *TENANT, "--yes")
    whole = ("--gpu", "A40-48Q", *VM[4:], "--limit", host)
    site.operator.does("create-vm", "one", *TENANT, *whole, "--priority", "low", "--preemptible", "stop")
    low = site.leased()
    urgent = ("create-vm", "urgent", "--tenant", "umbrella", *whole, "--priority", "high")
    site.operator.does(*urgent, "--preempt", "--grace", "0", "--shutdown-timeout", "0")
    site.agree(1)
    assert not low & site.leased(), "the seat of the preempted guest went to the other"
    site.operator.does("delete-vm", "urgent", "--tenant", "umbrella", "--yes")
    site.operator.does("start-vm", "one", *TENANT)
    site.agree(1)


def test_both_count_alike_when_a_host_is_drained(site: Site) -> None:
    host = site.operator.json("show-vm", "one", *TENANT)["vm"]["host"]
    site.operator.does("drain-host", host, "--reason", "fans", *NOW)
    assert site.operator.json("show-vm", "one", *TENANT)["vm"]["host"] != host
    site.agree(1)
    site.operator.does("uncordon-host", host)


def test_the_guest_of_a_lost_host_keeps_its_seat_on_both_sides(site: Site) -> None:
    host = site.operator.json("show-vm", "one", *TENANT)["vm"]["host"]
    faults.begin(host, "power-off", folder=site.folder)
    site.agree(1)
    faults.clear(host, folder=site.folder)
    site.operator.does("repair")
    site.agree(1)
    site.operator.does("delete-vm", "one", *TENANT, "--yes")
    site.agree(1)
    assert site.coming_back() == 1


def test_a_guest_goes_from_step_to_step_without_its_server_and_is_licensed_again(site: Site) -> None:
    operator = site.operator
    licensing.up(NAME, lease_s=6, folder=site.folder)
    operator.does("create-vm", "two", *VM)
    vm = operator.json("show-vm", "two", *TENANT)["vm"]
    assert site.states("two") == ["licensed"]
    licensing.stop(NAME, folder=site.folder)
    site.wait_for("two", "unlicensed-unrestricted")
    host = machine(site.folder, vm["host"])
    for minutes, state in ((20, "unlicensed-restricted"), (24 * 60, "unlicensed")):
        with host.change() as now:
            now.skipped_s = minutes * 60.0
        assert site.states("two") == [state]
    with host.change() as now:
        now.skipped_s = 0.0
    assert "a seat of dls (vws); the host's NVML says unlicensed" in operator.does("show-vm", "two", *TENANT).out
    assert vm["uuid"] in site.counted() - site.leased(), "vgpuctl counts the seat, which its guest cannot use"
    licensing.up(NAME, lease_s=3600, folder=site.folder)
    site.wait_for("two", "licensed")
    assert vm["uuid"] in site.leased()


def test_tokens_that_the_server_refuses(site: Site) -> None:
    operator = site.operator
    operator.does("set-licence-pool", "dls", "--token", site.token())
    licensing.revoke_tokens(NAME, folder=site.folder)
    operator.does("create-vm", "revoked", *VM)
    # The driver tells it, and vgpuctl shows it: the token looks like a good one.
    assert site.states("revoked") == ["unlicensed-unrestricted"]
    operator.does("delete-vm", "revoked", *TENANT, "--yes")
    operator.does("set-licence-pool", "dls", "--token", site.token(lifetime_s=3600.0))
    operator = operator.later(3700)
    for options in ((), ("--dry-run",)):
        refused = operator.is_refused("create-vm", "late", *VM, *options)
        assert refused["reference"] == "state" and "its client configuration token has expired at" in refused["message"]
    assert not [vm for vm in operator.json("list-vms") if vm["vm"]["request"]["name"] == "late"]
    operator.does("start-vm", "two", *TENANT)
    operator.does("delete-vm", "two", *TENANT, "--yes")
