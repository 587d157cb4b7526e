# SPDX-License-Identifier: Apache-2.0
"""A fleet that is kept between placements answers as a new one does."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fleet_factory import emulated_a40, host, leases_of, t4_host, vm
from tests.unit.scheduler.performance.true_model import TrueModel
from vgpuctl.model.constraints import Constraints
from vgpuctl.model.lease import Lease
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.kept_fleet import KeptFleet
from vgpuctl.scheduler.performance.fit import fit
from vgpuctl.scheduler.scorer import FleetView
from vgpuctl.sharing.kinds import kind_of

HOSTS = {"a": host("a", emulated_a40()), "b": t4_host("b", cards=2), "c": host("c", emulated_a40())}
CHANGED = {
    name: replace(one, constraints=replace(one.constraints, maintenance="a new fan")) for name, one in HOSTS.items()
}
STEP = st.tuples(
    st.sampled_from(["A40-24Q", "A40-48Q", "T4-8Q", "T4-16Q"]),
    st.lists(st.sampled_from("abc"), unique=True, min_size=1),
    st.lists(st.sampled_from("abc"), unique=True, max_size=1),
    st.booleans(),
    st.sampled_from([None, 0.0, 90.0]),
    st.sampled_from([None, "predicted", "least-utilised"]),
)
CLASSES = ("training", "vdi", "render")
MODEL = fit(TrueModel(profiles=("A40-24Q", "T4-8Q")).measure(60, 3, seed=3))


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=8))
def test_a_kept_fleet_answers_as_a_new_one(
    steps: list[tuple[str, list[str], list[str], bool, float | None, str | None]],
) -> None:
    kept, leases = KeptFleet(), list[Lease]()
    for number, (text, names, in_maintenance, deletes, busy, policy) in enumerate(steps):
        capacities = [CHANGED[name] if name in in_maintenance else HOSTS[name] for name in names]
        used = {} if busy is None else {("a", HOSTS["a"].facts.gpus[0].address): busy}
        workloads = {f"uuid-of-vm-{one}": CLASSES[one % 3] for one in range(number)}
        model = MODEL if busy is None else None
        view = FleetView(last_host=names[0], utilisation_percent=used, model=model, workloads=workloads)
        request = replace(vm(text), workload=CLASSES[number % 3], constraints=Constraints(policy=policy))
        answer = kept.with_hosts(capacities, leases, view).place(request)
        assert answer == Fleet(capacities, leases, view=view).place(request)
        if deletes:
            del leases[:1]
        elif answer is not None:
            identity = f"00000000-0000-4000-9000-{number:012d}"
            shares = tuple(kind_of(one.sharing).named(one, identity) for one in answer.shares)
            leases += leases_of(replace(answer, shares=shares), vm_name=f"vm-{number}")
