# SPDX-License-Identifier: Apache-2.0
"""Layouts that a host can declare, for property tests."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import strategies as st

from vgpuctl.model.layout import (
    Encapsulation,
    FabricLayout,
    FabricMode,
    GpuLayout,
    GpuMatch,
    HostLayout,
    Layout,
    MigLayout,
    MigVgpuLayout,
    NetworkLayout,
    OffLayout,
    OwnLayout,
    PassthroughLayout,
    SchedulerLayout,
    SchedulerPolicy,
    SizeMode,
    VfLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.model.vgpu_params import VgpuParams
from vgpuctl.planner.mig_geometry import instances_of

ADDRESSES = ("0000:41:00.0", "0000:61:00.0", "0000:81:00.0")
MODELS = ("10de:20b0", "10de:2235", "10de:2331")
PROFILES = ("1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb")
PARTS = ("1c.2g.10gb", "1c.3g.20gb", "2c.3g.20gb", "3c.7g.40gb")
TYPES = ("A40-4Q", "A40-8Q", "A40-8C", "A40-16Q")
NETWORKS = (
    NetworkLayout(("unix:/run/ovn/ovnsb_db.sock",), "10.83.0.0/24", "h1"),
    NetworkLayout(("ssl:192.0.2.1:6642", "ssl:192.0.2.2:6642"), "10.0.0.7/32", "rack1", Encapsulation.VXLAN, 9000),
)
MIG_TYPES = ("A100-1-5C", "A100-2-10C", "A100-3-20C")


@st.composite
def instances(draw: st.DrawFn, *, placed: bool, parted: bool) -> tuple[WantedInstance, ...]:
    """A geometry as the layout's reader gives it; placed: with placements. parted: with parts of GPU instances."""
    names = PROFILES + PARTS if parted else PROFILES
    devices = draw(st.dictionaries(st.sampled_from(names), st.integers(1, 3)))
    counts = Counter(one.profile for one in instances_of(devices))
    slots = {name: draw(st.sets(st.integers(0, 7), max_size=count)) for name, count in sorted(counts.items())}
    return instances_of(devices, {name: sorted(some) for name, some in slots.items()} if placed else None)


@st.composite
def schedulers(draw: st.DrawFn) -> SchedulerLayout:
    """A scheduler that works with both size modes."""
    policy = draw(st.sampled_from((SchedulerPolicy.BEST_EFFORT, SchedulerPolicy.EQUAL_SHARE)))
    slice_us = draw(st.none() | st.integers(1000, 30000)) if policy.has_time_slice() else None
    return SchedulerLayout(policy, slice_us)


@st.composite
def shares(draw: st.DrawFn, types: Sequence[str], *, most: int = 3) -> tuple[tuple[str, int], ...]:
    """Counts of vGPU types, sorted."""
    wanted = draw(st.dictionaries(st.sampled_from(types), st.integers(1, 3), max_size=most))
    return tuple(sorted(wanted.items()))


@st.composite
def vgpu_layouts(draw: st.DrawFn) -> VgpuLayout:
    """Time-sliced vGPUs; shares of several sizes come with mixed-size mode."""
    wanted = draw(shares(TYPES))
    sizes = {name.split("-")[1][:-1] for name, _ in wanted}
    mode = SizeMode.MIXED if len(sizes) > 1 else draw(st.none() | st.sampled_from(SizeMode))
    allowed = tuple(sorted({*dict(wanted), draw(st.sampled_from(TYPES))})) if draw(st.booleans()) else ()
    return VgpuLayout(draw(st.none() | st.booleans()), mode, draw(st.none() | schedulers()), allowed, wanted)


def function_params(*, of_vf: bool) -> st.SearchStrategy[VgpuParams]:
    """Parameters of the VFs or the PF of an Intel card, sorted."""
    values = {
        "exec_quantum_ms": st.integers(0, 2**32 - 1).map(str),
        "preempt_timeout_us": st.integers(0, 2**32 - 1).map(str),
        "sched_priority": st.sampled_from(("low", "normal", "high")),
    }
    sizes = {"vram_quota": st.integers(1, 2**20).map(lambda mib: str(mib << 20))} if of_vf else {}
    return st.fixed_dictionaries({}, optional={**values, **sizes}).map(lambda found: tuple(sorted(found.items())))


def layouts() -> st.SearchStrategy[Layout]:
    """The possible layouts of one GPU."""
    return st.one_of(
        st.just(OffLayout()),
        instances(placed=True, parted=True).map(OwnLayout),
        st.sampled_from((PassthroughLayout(), PassthroughLayout("vfio-pci"))),
        st.builds(VfLayout, st.integers(1, 256), function_params(of_vf=True), function_params(of_vf=False)),
        instances(placed=True, parted=True).map(MigLayout),
        st.builds(MigVgpuLayout, instances(placed=True, parted=False), shares=shares(MIG_TYPES)),
        vgpu_layouts(),
    )


@st.composite
def gpu_layouts(draw: st.DrawFn, kinds: st.SearchStrategy[Layout]) -> tuple[GpuLayout, ...]:
    """Entries for all, for models and for addresses, each at most once."""
    matches = draw(st.lists(st.sampled_from(every_match()), unique=True, max_size=4))
    return tuple(GpuLayout(match, draw(kinds)) for match in matches)


def every_match() -> list[GpuMatch]:
    """The matches that the layouts choose from."""
    return [
        GpuMatch(),
        *(GpuMatch(board=model) for model in MODELS),
        *(GpuMatch(address=address) for address in ADDRESSES),
    ]


def host_layouts() -> st.SearchStrategy[HostLayout]:
    """Whole layouts, with what is about the host."""
    return st.builds(
        HostLayout,
        gpus=gpu_layouts(layouts()),
        kernel_arguments=st.sampled_from(((), ("iommu=pt",), ("intel_iommu=on", "iommu=pt"))),
        stop_services=st.sampled_from(((), ("dcgm.service",))),
        hugepages=st.dictionaries(st.sampled_from((64, 2048, 1 << 20)), st.integers(0, 512)).map(
            lambda pages: tuple(sorted(pages.items()))
        ),
        uplinks=st.sampled_from(((), (("tenants", "ens1f0"),))),
        network=st.sampled_from((None, *NETWORKS)),
        fabric=st.none() | st.builds(FabricLayout, st.sampled_from(FabricMode)),
    )
