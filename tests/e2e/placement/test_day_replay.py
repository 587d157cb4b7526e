# SPDX-License-Identifier: Apache-2.0
"""Two hours of three tenants on three simulated hosts, checked after each step (tests/bench/day_replay.py)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.bench.day_checks import Seen, faults, look
from tests.bench.day_plan import BEGIN, Scale, plan_day
from tests.bench.day_replay import Replay
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import simulated_fleet
from vgpuctl.model.reservation import Reservation
from vgpuctl.quota.host_pools import HostPool
from vgpuctl.quota.limits import Quota
from vgpuctl.store.store import open_store
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.state import MachineFolder

SCALE = Scale(hours=2, vms=6, tenants=3, round_s=2400, killed=0.4, mean_life_s=1800)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    """One host each with vGPUs on VFs, with mediated devices and with a whole card."""
    with simulated_fleet(tmp_path_factory.mktemp("day"), 3, "a40*2,t4*2,rtx-3090*2") as made:
        yield made


@pytest.mark.long(
    "tests/e2e/operate/test_proofs.py::test_a_small_proof_finds_nothing",
    "tests/e2e/placement/test_day_replay.py::test_the_checks_find_what_does_not_hold",
)
def test_a_day_holds_what_it_must_after_every_step(fleet: lab.LabFolder, tmp_path: Path) -> None:
    replay = Replay(fleet, tmp_path, look_every=10, tell=lambda _text: None)
    told = replay.run(plan_day(replay.machine_shapes(), SCALE, seed=307))
    assert told["faults"] == []
    counts = told["counts"]

    assert told["steps"] >= 15, counts
    assert counts["event vm-created"] >= 4, counts
    assert sum(count for name, count in counts.items() if name.startswith("killed ")) >= 2, counts
    assert counts["controller ended"] >= 1, counts


@pytest.fixture(scope="module")
def one_vm(
    fleet: lab.LabFolder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Seen, Mapping[str, MachineFolder]]]:
    """The store and the machines with one VM on a half of the A40."""
    home = tmp_path_factory.mktemp("operator")
    operator = Operator(home, simulated_folder(fleet).inventory, f"sqlite:///{home}/store.db")
    operator.does("create-tenant", "acme")
    create = ("create-vm", "web", "--tenant", "acme", "--gpu", "A40-24Q", "--memory", "1GiB", "--network", "none")
    operator.does(*create)
    with open_store(operator.database) as store:
        seen = look(store)
    names = lab.simulated.names(folder=fleet)
    yield seen, {name: MachineFolder(simulated_folder(fleet).host(name)) for name in names}
    operator.does("delete-vm", "web", "--tenant", "acme", "--yes", "--timeout", "0")


def test_the_checks_find_what_does_not_hold(one_vm: tuple[Seen, Mapping[str, MachineFolder]]) -> None:
    seen, machines = one_vm
    (lease,) = seen.leases
    (vm,) = seen.vms

    def found(changed: Seen, before: Seen = seen) -> str:
        return "\n".join(faults(before, changed, machines, BEGIN))

    nothing = replace(seen, vms=[], leases=[], intervals=[])
    assert found(seen) == ""
    assert "no lease explains" in found(replace(seen, leases=[]))
    assert "beside its leases" in found(replace(seen, leases=[]))
    assert "does not count the lease" in found(replace(seen, intervals=[]))
    assert "ended intervals of the ledger changed" in found(
        seen, replace(seen, intervals=[replace(seen.intervals[0], ended_at=2.0**33)])
    )
    assert "beside its VMs" in found(replace(seen, vms=[]))
    others = [replace(lease, id=f"other-{number}", share=replace(lease.share, function=f"0000:41:01.{number}"))
              for number in range(2)]  # fmt: skip
    assert "3 vGPUs" in found(replace(seen, leases=[lease, *others]))
    assert "MiB promised of 49152" in found(replace(seen, leases=[lease, *others]))
    smaller = replace(others[0], share=replace(others[0].share, profile="A40-8Q"))
    assert "vGPUs of different sizes" in found(replace(seen, leases=[lease, smaller]))
    for resource in ("vms", "framebuffer", "shares:A40-24Q", "memory"):
        assert f"of 0 {resource}" in found(replace(seen, quotas={"acme": [Quota(resource, 0)]}))
    worn = replace(seen.intervals[0], begun_at=BEGIN - 7200)
    hours = {"acme": [Quota("gpu-hours", 60)]}
    assert "after 1.00 of 0.02 GPU-hours" in found(
        replace(seen, quotas=hours), replace(nothing, intervals=[replace(worn, ended_at=BEGIN)])
    )
    assert "which is not granted" in found(replace(seen, pools=[HostPool("gold", (vm.host,), ())]), nothing)
    promised = Reservation("umbrella", "mine", vm.request.gpus, vm.host, (lease.share,), BEGIN - 1, BEGIN + 1)
    assert "holds what is reserved as umbrella/mine" in found(replace(seen, reservations=[promised]))
    assert "dead runs" in found(replace(seen, open_operations=1))
    large = replace(vm, request=replace(vm.request, memory_mib=2**20))
    assert "has promised 1048576 MiB" in found(replace(seen, vms=[large]))
