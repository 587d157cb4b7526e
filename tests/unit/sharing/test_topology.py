# SPDX-License-Identifier: Apache-2.0
"""Nearness of two GPUs of a host, from what was read, from the catalogue, and from labels."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fleet_factory import whole_card
from vgpuctl.agent.wire.facts import FabricFacts, Gpu, GpuTopology, NvLinks
from vgpuctl.model.host_constraints import NO_HOST_CONSTRAINTS, GpuConstraints, HostConstraints
from vgpuctl.model.layout import GpuMatch
from vgpuctl.sharing.topology import FARTHEST, CellPart, Nearness, RootPart, SwitchPart, topology_of

ADDRESSES = tuple(f"0000:{bus:02x}:00.0" for bus in (0x21, 0x41, 0x81, 0xA1))
SWITCHED = (NvLinks(tuple(range(18)), is_active=True, peer="0000:05:00.0", peer_kind="switch", version=4),)
SXM = "nvidia-h100-sxm5-80gb"


def gpu(
    number: int,
    topology: GpuTopology | None = None,
    *,
    node: int | None = None,
    board: str = "nvidia-geforce-rtx-3090",
) -> Gpu:
    return replace(whole_card(ADDRESSES[number], board), topology=topology, numa_node=node)


def behind(*bridges: str, root: str = "pci0000:40", nvlinks: tuple[NvLinks, ...] | None = None) -> GpuTopology:
    return GpuTopology(root, bridges, nvlinks)


def to_peer(number: int, links: int = 4) -> tuple[NvLinks, ...]:
    return (NvLinks(tuple(range(links)), is_active=True, peer=ADDRESSES[number], peer_kind="gpu", version=3),)


def near(one: Gpu, other: Gpu, constraints: HostConstraints = NO_HOST_CONSTRAINTS) -> Nearness:
    topology = topology_of([one, other], constraints)
    assert topology.nearness(one.address, other.address) is topology.nearness(other.address, one.address)
    return topology.nearness(one.address, other.address)


def test_the_pcie_tree_tells_switches_bridges_roots_and_nodes_apart() -> None:
    here = behind("0000:40:01.0", "0000:41:00.0", "0000:42:00.0")
    cases = {
        Nearness.SWITCH: behind("0000:40:01.0", "0000:41:00.0", "0000:42:04.0"),
        Nearness.BRIDGES: behind("0000:40:01.0", "0000:41:00.0", "0000:42:08.0", "0000:50:00.0", "0000:51:00.0"),
        Nearness.ROOT: behind("0000:40:03.0", "0000:60:00.0", "0000:61:00.0"),
        Nearness.NUMA: behind("0000:c0:01.0", root="pci0000:c0"),
    }
    for expected, there in cases.items():
        assert near(gpu(0, here, node=0), gpu(1, there, node=0)) is expected
    assert near(gpu(0, here, node=0), gpu(1, cases[Nearness.NUMA], node=1)) is Nearness.FAR
    assert near(gpu(0), gpu(1)) is Nearness.FAR


def test_a_link_that_only_one_of_two_gpus_shows_joins_both() -> None:
    driven, with_vfio = gpu(0, behind(nvlinks=to_peer(1)), node=0), gpu(1, behind(), node=1)
    assert near(driven, with_vfio) is Nearness.NVLINK
    assert topology_of([driven, with_vfio]).links == {ADDRESSES[:2]: 4, ADDRESSES[1::-1]: 4}
    inactive = replace(to_peer(1)[0], is_active=False)
    assert near(gpu(0, GpuTopology(nvlinks=(inactive,))), with_vfio) is Nearness.FAR


def test_nvswitch_joins_the_gpus_of_one_clique() -> None:
    def switched(number: int, clique: int | None) -> Gpu:
        uuid = None if clique is None else "00000000-0000-0000-0000-000000000000"
        return gpu(number, GpuTopology(nvlinks=SWITCHED, fabric=FabricFacts("completed", uuid, clique)))

    assert near(switched(0, 1), switched(1, 1)) is Nearness.FABRIC
    assert near(switched(0, 1), switched(1, None)) is Nearness.FABRIC
    assert near(switched(0, 1), switched(1, 2)) is Nearness.FAR


def test_the_catalogue_answers_for_a_card_whose_driver_does_not() -> None:
    switched, with_vfio = gpu(0, GpuTopology(nvlinks=SWITCHED), board=SXM), gpu(1, GpuTopology(), board=SXM)
    assert near(switched, with_vfio) is Nearness.FABRIC
    assert near(gpu(0, board=SXM), gpu(1, board=SXM)) is Nearness.FABRIC
    assert near(switched, gpu(1, GpuTopology(nvlinks=()), board=SXM)) is Nearness.FAR


def test_labels_override_what_was_read() -> None:
    def labelled(**labels: str) -> HostConstraints:
        entries = (
            GpuConstraints(GpuMatch(address=ADDRESSES[int(key[1:])]), frozenset({("nvlink", value)}))
            for key, value in labels.items()
        )
        return HostConstraints(gpus=tuple(entries))

    one, other = gpu(0, behind(nvlinks=to_peer(1)), node=0), gpu(1, behind(nvlinks=to_peer(0)), node=0)
    assert near(one, other, labelled(_0="a", _1="a")) is Nearness.NVLINK
    assert near(one, other, labelled(_0="a", _1="b")) is Nearness.ROOT
    assert near(one, other, labelled(_0="a")) is Nearness.ROOT
    assert near(gpu(0), gpu(1), labelled(_0="a", _1="a")) is Nearness.NVLINK


def test_the_tree_and_the_nvlink_domains_are_for_drawing() -> None:
    first = behind("0000:40:01.0", "0000:41:00.0", "0000:42:00.0", nvlinks=to_peer(1))
    second = behind("0000:40:01.0", "0000:41:00.0", "0000:42:04.0")
    third = behind("0000:40:03.0")
    topology = topology_of([gpu(0, first, node=1), gpu(1, second, node=1), gpu(2, third, node=1), gpu(3, node=0)])
    assert topology.domains == (ADDRESSES[:2],)
    assert (topology.domain_of(ADDRESSES[1]), topology.domain_of(ADDRESSES[2])) == (ADDRESSES[:2], ())
    assert topology.cells == (
        CellPart(0, (RootPart(None, (SwitchPart(None, ADDRESSES[3:]),)),)),
        CellPart(
            1,
            (RootPart("pci0000:40", (SwitchPart("0000:41:00.0", ADDRESSES[:2]), SwitchPart(None, (ADDRESSES[2],)))),),
        ),
    )
    assert topology.used() == (Nearness.NVLINK, Nearness.ROOT, Nearness.FAR)


BRIDGES = st.lists(st.sampled_from(["0000:40:01.0", "0000:41:00.0", "0000:42:00.0", "0000:42:04.0"]), max_size=4)
LINKS = st.none() | st.lists(
    st.builds(
        NvLinks,
        st.just((0, 1)),
        st.booleans(),
        st.sampled_from([None, *ADDRESSES]),
        st.sampled_from([None, "gpu", "switch"]),
    ),
    max_size=2,
).map(tuple)
PLACES = st.builds(GpuTopology, st.sampled_from([None, "pci0000:40", "pci0000:c0"]), BRIDGES.map(tuple), LINKS)


@given(places=st.lists(st.tuples(st.none() | PLACES, st.none() | st.integers(0, 1)), min_size=2, max_size=4))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_nearness_is_symmetric_and_every_gpu_is_drawn_once(places: list[tuple[GpuTopology | None, int | None]]) -> None:
    gpus = [gpu(number, place, node=node, board=SXM) for number, (place, node) in enumerate(places)]
    topology = topology_of(reversed(gpus))
    for one in topology.gpus:
        for other in topology.gpus:
            found = topology.nearness(one, other)
            assert found is topology.nearness(other, one)
            assert (found is Nearness.SAME) == (one == other)
            assert found.steps in range(FARTHEST + 1)
            if found.is_nvlink():
                assert other in topology.domain_of(one)
    drawn = [one for node in topology.cells for root in node.roots for switch in root.switches for one in switch.gpus]
    assert sorted(drawn) == list(topology.gpus)
