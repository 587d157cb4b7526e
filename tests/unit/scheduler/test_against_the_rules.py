# SPDX-License-Identifier: Apache-2.0
"""place() and the planner against a model of the resource manager's rules (reference 2.2).

Never placed: what the rules refuse. Never refused: what they allow. The model is written apart from the scheduler.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.emulated_host import EmulatedHost
from tests.unit.fleet_factory import emulated_a40, emulated_t4, leases_of, vm
from vgpuctl import catalog
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import NoCapacity, UsageError
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.lease import Lease
from vgpuctl.model.policy import Policy, PolicyName, parse_policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.planner.plan import check_share, plan_release, plan_share
from vgpuctl.scheduler.place import place
from vgpuctl.sharing.kinds import kind_of

A40_TYPES = ["A40-1Q", "A40-8Q", "A40-8C", "A40-16Q", "A40-24Q", "A40-48Q", "A40-2B"]
T4_TYPES = ["T4-2Q", "T4-2B4", "T4-4C", "T4-8Q", "T4-16Q"]

HOSTS: dict[str, tuple[Callable[[], list[EmulatedGpu]], list[str]]] = {
    "A40 mdev-vf": (lambda: [emulated_a40(sharing="mdev-vf")], A40_TYPES),
    "A40 vf-profile": (lambda: [emulated_a40(sharing="vf-profile")], A40_TYPES),
    "two A40 vf-profile": (lambda: [emulated_a40(), emulated_a40("0000:51:00.0")], A40_TYPES),
    "A40 mixed sizes": (lambda: [replace(emulated_a40(), is_mixed=True)], A40_TYPES),
    "two A40 of two modes": (
        lambda: [replace(emulated_a40(sharing="mdev-vf"), is_mixed=True), emulated_a40("0000:51:00.0")],
        A40_TYPES,
    ),
    "T4 mdev": (lambda: [emulated_t4()], T4_TYPES),
    "few VFs": (lambda: [replace(emulated_a40(), vf_count=3)], A40_TYPES),
}

POLICIES = st.sampled_from([parse_policy(text) for text in (*PolicyName, "spread:0.3+binpack:0.7")])

# (what, a number that picks a type or a lease)
DEEDS = st.lists(
    st.tuples(st.sampled_from(["create", "create", "create", "delete", "foreign", "read"]), st.integers(0, 63)),
    max_size=25,
)


class Operator:
    """Creates and deletes as the use cases do: it reads the host after a delete, not after a create."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.policy = policy
        gpus, self.types = HOSTS[name]
        self.host = EmulatedHost("gpu1", gpus())
        self.seen = self.host.read()
        self.leases: list[Lease] = []
        self.made = 0

    def create(self, number: int) -> None:
        wanted = self.types[number % len(self.types)]
        allowed = any(gpu.can_create(wanted) for gpu in self.host.gpus)
        try:
            placement = place(vm(wanted), [self.seen], self.leases, self.policy)
        except NoCapacity:
            assert not allowed, f"{wanted} was refused, the rules allow it"
            return
        assert allowed, f"{wanted} was placed, the rules refuse it"
        self.made += 1
        uuid = f"00000000-0000-4000-9000-{self.made:012d}"
        chosen = kind_of(placement.shares[0].sharing).named(placement.shares[0], uuid)
        live = self.host.read().facts
        assert check_share(chosen, live) is None
        self.host.apply(plan_share(chosen, live).steps)
        self.leases.extend(leases_of(replace(placement, shares=(chosen,)), vm_name=f"vm-{self.made}"))

    def delete(self, number: int) -> None:
        if self.leases:
            gone = self.leases.pop(number % len(self.leases))
            plan = plan_release(gone.share, self.host.read().facts)
            assert plan.steps
            self.host.apply(plan.steps)
            assert not plan_release(gone.share, self.host.read().facts).steps
            self.read(number)

    def foreign(self, number: int) -> None:
        """Somebody else makes a vGPU, and the host is read again."""
        gpu = self.host.gpus[0]
        wanted = self.types[number % len(self.types)]
        self.made += 1
        keys = reversed(gpu.functions) if gpu.on_vfs else [f"00000000-0000-4000-a000-{self.made:012d}"]
        key = next((one for one in keys if gpu.refusal(wanted, one) is None), None)
        if key is not None:
            gpu.create(wanted, key, f"00000000-0000-4000-a000-{self.made:012d}")
        self.read(number)

    def read(self, number: int) -> None:
        self.seen = self.host.read()


@pytest.mark.parametrize("name", HOSTS)
@given(deeds=DEEDS, policy=POLICIES)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_placing_agrees_with_the_rules_after_any_deeds(name: str, deeds: list[tuple[str, int]], policy: Policy) -> None:
    operator = Operator(name, policy)
    for what, number in deeds:
        getattr(operator, what)(number)


WANTS = st.lists(
    st.sampled_from(
        [
            GpuRequest("T4-4Q", profile="T4-4Q"),
            GpuRequest("T4-8Q", profile="T4-8Q"),
            GpuRequest("T4-16Q", profile="T4-16Q"),
            GpuRequest("P4-4Q", profile="P4-4Q"),
            GpuRequest("passthrough", sharing=Sharing.PASSTHROUGH),
            GpuRequest("memory>=4GiB", minimum_memory_mib=4096),
            GpuRequest("memory=8GiB", exact_memory_mib=8192),
            GpuRequest("memory>=2GiB,series=B", minimum_memory_mib=2048, series="B"),
        ]
    ),
    min_size=1,
    max_size=4,
)


@given(
    wants=WANTS,
    first=st.lists(st.sampled_from(["T4-4Q", "T4-8Q", "T4-2B"]), max_size=3),
    others=st.lists(st.sampled_from(["nvidia-t4", "nvidia-tesla-p4"]), max_size=2),
    policy=POLICIES,
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_several_gpus_of_one_vm_are_placed_exactly_when_some_choice_holds_them(
    wants: list[GpuRequest], first: list[str], others: list[str], policy: Policy
) -> None:
    gpus = [emulated_t4()]
    for number, key in enumerate(others):
        gpus.append(EmulatedGpu(catalog.board(key), f"0000:{0x4B + 0x10 * number:02x}:00.0", "mdev"))
    for number, name in enumerate(first):
        if gpus[0].can_create(name):
            gpus[0].create(name, f"00000000-0000-4000-a000-{number:012d}")
    request = VmRequest("web-1", "acme", tuple(wants))
    try:
        place(request, [EmulatedHost("gpu1", gpus).read()], [], policy)
    except (NoCapacity, UsageError):
        assert not some_choice_holds(wants, gpus, frozenset())
    else:
        assert some_choice_holds(wants, gpus, frozenset())


def some_choice_holds(wants: Sequence[GpuRequest], gpus: list[EmulatedGpu], whole: frozenset[int]) -> bool:
    """Try every GPU and every type for every want."""
    if not wants:
        return True
    wanted, rest = wants[0], wants[1:]
    for index, gpu in enumerate(gpus):
        if index in whole:
            continue
        if wanted.sharing is Sharing.PASSTHROUGH:
            if not gpu.vgpus and some_choice_holds(rest, gpus, whole | {index}):
                return True
            continue
        tried: set[int] = set()
        for one in gpu.types():
            if fits(wanted, one.name, one.fb_mib, one.series) and one.fb_mib not in tried and gpu.can_create(one.name):
                tried.add(one.fb_mib)
                copied = copy.deepcopy(gpus)
                copied[index].create(one.name, f"new-{len(rest)}")
                if some_choice_holds(rest, copied, whole):
                    return True
    return False


def fits(wanted: GpuRequest, name: str, size: int, series: str) -> bool:
    return (
        wanted.profile in (None, name)
        and size >= (wanted.minimum_memory_mib or 0)
        and wanted.exact_memory_mib in (None, size)
        and wanted.series in (None, series)
    )
