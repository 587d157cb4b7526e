# SPDX-License-Identifier: Apache-2.0
"""A declared GPU serves only what its layout says, on every path that asks the scheduler and right before building."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.fleet_factory import (
    a40_host,
    host,
    host_facts,
    intel_vf_host,
    leases_of,
    passthrough_host,
    t4_host,
    vm,
    whole_card,
)
from vgpuctl.agent.wire.cdi import CdiFacts
from vgpuctl.agent.wire.facts import GpuInstance, Holder, MigFacts, UnreadFunction, UnreadPart
from vgpuctl.model.layout import (
    GpuLayout,
    GpuMatch,
    Layout,
    MigLayout,
    MigVgpuLayout,
    OffLayout,
    OwnLayout,
    PassthroughLayout,
    SizeMode,
    VfLayout,
    VgpuLayout,
)
from vgpuctl.model.placement import HostCapacity, Placement
from vgpuctl.planner.plan import check_kept, check_share, plan_release
from vgpuctl.scheduler.calendar import place_over
from vgpuctl.scheduler.capacity import count_more
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.gang import place_together
from vgpuctl.scheduler.gpu_map import map_gpus
from vgpuctl.scheduler.place import place
from vgpuctl.scheduler.relieve import relieve

ALL = GpuMatch()
UUID = "GPU-00000000-0000-4000-8000-000000000001"
KINDS: dict[str, Layout] = {
    "passthrough": PassthroughLayout(),
    "vgpu": VgpuLayout(),
    "mig": MigLayout(),
    "mig-vgpu": MigVgpuLayout(),
    "vf": VfLayout(4),
    "off": OffLayout(),
    "host": OwnLayout(),
}
HOSTS: dict[str, tuple[Callable[[], HostCapacity], set[str]]] = {
    "passthrough": (passthrough_host, {"passthrough"}),
    "A40-8Q": (a40_host, {"vgpu"}),
    "memory>=8GiB": (a40_host, {"vgpu"}),
    "T4-2Q": (t4_host, {"vgpu"}),
    "vf": (intel_vf_host, {"vf"}),
}


def declared(capacity: HostCapacity, layout: Layout, match: GpuMatch = ALL) -> HostCapacity:
    return replace(capacity, declared=(*capacity.declared, GpuLayout(match, layout, "hosts.yml:7")))


def test_a_gpu_of_the_host_s_own_has_no_free_memory() -> None:
    (drawn,) = map_gpus([declared(a40_host(), OwnLayout())], [])
    assert (drawn.memory_mib > 0, drawn.free_mib, drawn.creatable) == (True, 0, ())
    assert "it is for containers of the host and serves no VM" in (drawn.why_none or "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HOSTS)
def test_every_kind_serves_its_own_use_alone(text: str, kind: str) -> None:
    make, served = HOSTS[text]
    capacity = declared(make(), KINDS[kind])
    free = place(vm(text), [make()], [])
    answer = explain(vm(text), [capacity], [])
    live = check_share(free.shares[0], capacity.facts, capacity.rules)
    if kind in served:
        assert isinstance(answer, Placement) and live is None
        return
    assert isinstance(answer, list)
    assert [one.code for one in answer] == ["declared-otherwise"]
    assert f"declared {kind} (hosts.yml:7)" in answer[0].reason
    assert answer[0].remedy == "change `vgpu:` of gpu1 at hosts.yml:7, then run `vgpuctl apply-hosts --limit gpu1`"
    assert live is not None and f"declared {kind}" in live
    assert Fleet([capacity]).place(vm(text)) is None
    assert place_together(Fleet([capacity]), [vm(text), vm(text, name="web-2")]) is None
    assert place_over([vm(text)], [capacity], [], [(0.0, 10.0)]) is None
    assert count_more(vm(text), [capacity], []).total() == 0


@pytest.mark.parametrize("text", HOSTS)
@pytest.mark.parametrize("is_declared", [True, False])
def test_what_containers_still_have_gets_no_vm_whatever_is_declared(text: str, is_declared: bool) -> None:
    make, (served,) = HOSTS[text]
    capacity = declared(make(), KINDS[served]) if is_declared else make()
    gpu = capacity.facts.gpus[0].address
    given = replace(capacity, facts=replace(capacity.facts, cdi=CdiFacts((gpu,))))
    answer = explain(vm(text), [given], [])
    assert isinstance(answer, list) and [one.code for one in answer] == ["declared-otherwise"]
    assert answer[0].reason == "containers of the host can take it: /etc/cdi/vgpuctl.json has it"
    first = "run" if is_declared else "declare `vgpu:` of gpu1 (`version: 1` is enough), then run"
    assert answer[0].remedy == f"{first} `vgpuctl apply-hosts --limit gpu1`"
    share = place(vm(text), [make()], []).shares[0]
    for check in (check_share, check_kept):
        assert "containers of the host can take it" in (check(share, given.facts, given.rules) or "")
    assert Fleet([given]).place(vm(text)) is None
    (drawn,) = map_gpus([given], [])
    assert drawn.free_mib == 0
    other = replace(capacity, facts=replace(capacity.facts, cdi=CdiFacts(("0000:ff:00.0",))))
    assert place(vm(text), [other], []).shares[0] == share


@pytest.mark.parametrize("cdi", [None, CdiFacts(unknown="EIO")])
def test_where_nobody_knows_what_containers_have_no_vm_gets_a_gpu_of_nvidia(cdi: CdiFacts | None) -> None:
    unread = {"cdi": cdi, "unread": (UnreadPart("cdi", "EIO"),) if cdi is None else ()}
    for make, text, is_refused in ((a40_host, "A40-8Q", True), (intel_vf_host, "vf", False)):
        capacity = make()
        answer = explain(vm(text), [replace(capacity, facts=replace(capacity.facts, **unread))], [])  # type: ignore[arg-type]
        assert isinstance(answer, list) is is_refused
        if isinstance(answer, list):
            assert answer[0].reason == "nobody knows whether containers of the host have it: EIO"
            assert answer[0].remedy == "see `vgpuctl check-hosts --limit gpu1`"


def test_a_model_that_cannot_serve_says_so_whatever_is_declared() -> None:
    answer = explain(vm("T4-2Q"), [declared(a40_host(), OffLayout())], [])
    assert isinstance(answer, list) and answer[0].code == "no-such-type"


def test_only_the_types_of_the_layout_are_served() -> None:
    capacity = declared(a40_host(), VgpuLayout(types=("A40-8C",)))
    refused = explain(vm("A40-8Q"), [capacity], [])
    assert isinstance(refused, list) and "allows A40-8C, not A40-8Q" in refused[0].reason
    assert place(vm("memory>=4GiB"), [capacity], []).shares[0].profile == "A40-8C"


def test_vgpus_that_are_kept_ready_leave_other_sizes_out_in_equal_size_mode() -> None:
    kept = VgpuLayout(shares=(("A40-8Q", 2),))
    refused = explain(vm("A40-12Q"), [declared(a40_host(), kept)], [])
    assert isinstance(refused, list) and "keeps A40-8Q ready" in refused[0].reason
    assert place(vm("A40-8C"), [declared(a40_host(), kept)], []).shares[0].profile == "A40-8C"
    mixed = replace(kept, size_mode=SizeMode.MIXED)
    assert place(vm("A40-12Q"), [declared(a40_host(), mixed)], []).shares[0].profile == "A40-12Q"


def test_the_narrowest_entry_counts_and_two_as_narrow_serve_nothing() -> None:
    card = replace(whole_card(), uuid=UUID)
    wide = declared(host("gpu1", card), OffLayout())
    narrow = declared(wide, PassthroughLayout(), GpuMatch(address=card.address))
    assert place(vm("passthrough"), [narrow], []).shares[0].function == card.address
    both = declared(narrow, VgpuLayout(), GpuMatch(uuid=card.uuid))
    refused = explain(vm("passthrough"), [both], [])
    assert isinstance(refused, list) and "contradict each other" in refused[0].reason


def test_a_card_that_shows_no_uuid_may_be_the_one_that_the_layout_names() -> None:
    hidden, other = replace(whole_card(), uuid=None), replace(whole_card("0000:91:00.0"), uuid=UUID)
    named = GpuMatch(uuid="GPU-00000000-0000-4000-8000-00000000beef")
    capacity = declared(host("gpu1", hidden, other), OffLayout(), named)
    assert place(vm("passthrough"), [capacity], []).shares[0].function == other.address
    refused = explain(vm("passthrough*2"), [capacity], [])
    assert isinstance(refused, list) and "match it by address" in str(refused)
    by_address = declared(capacity, PassthroughLayout(), GpuMatch(address=hidden.address))
    assert len(place(vm("passthrough*2"), [by_address], []).shares) == 2


def test_a_card_with_mig_instances_is_never_taken_as_a_whole() -> None:
    instances = (GpuInstance(7, "1g.5gb", 0, 1, in_use=False), GpuInstance(8, "1g.5gb", 1, 1, in_use=False))
    live = replace(passthrough_host().facts.gpus[0], mig=MigFacts(True, True, instances))
    chosen = place(vm("passthrough"), [passthrough_host()], []).shares[0]
    for layout in (PassthroughLayout(), None):
        capacity = host("gpu1", live) if layout is None else declared(host("gpu1", live), layout)
        refused = explain(vm("passthrough"), [capacity], [])
        assert isinstance(refused, list) and refused[0].code == "mig-on"
        assert "2 MIG instances" in (check_share(chosen, capacity.facts, capacity.rules) or "")


def test_equal_cards_of_other_layouts_are_not_taken_for_each_other() -> None:
    fleet = Fleet([declared(a40_host("gpu1"), OffLayout()), a40_host("gpu2")])
    first = fleet.place(vm("A40-48Q"))
    assert first is not None and first.host == "gpu2"
    fleet.take("gpu2", leases_of(first))
    assert fleet.place(vm("A40-48Q")) is None


def test_a_card_that_the_host_shows_its_console_on_is_given_away_only_when_declared() -> None:
    card = replace(whole_card(), displays=("it is the host's primary display",))
    chosen = place(vm("passthrough"), [passthrough_host()], []).shares[0]
    refused = explain(vm("passthrough"), [host("gpu1", card)], [])
    assert isinstance(refused, list) and refused[0].code == "host-display"
    assert "primary display" in (check_share(chosen, host("gpu1", card).facts) or "")
    allowed = declared(host("gpu1", card), PassthroughLayout())
    assert place(vm("passthrough"), [allowed], []).shares[0].function == card.address
    assert check_share(chosen, allowed.facts, allowed.rules) is None


def test_a_companion_in_use_or_in_a_group_with_others_keeps_the_card() -> None:
    card, qemu = whole_card(), Holder(4711, "qemu-system-x86")
    (audio,) = card.companions
    for changed, code in (
        (replace(card, companions=(replace(audio, holders=(qemu,)),)), "card-in-use"),
        (replace(card, companions=(replace(audio, users=(qemu,)),)), "card-in-use"),
        (replace(card, companions=(replace(audio, iommu_group=None),)), "no-iommu"),
        (replace(card, strangers=("0000:82:00.0",)), "group-not-isolated"),
    ):
        refused = explain(vm("passthrough"), [host("gpu1", changed)], [])
        assert isinstance(refused, list) and refused[0].code == code


def test_a_card_whose_vm_goes_is_free_again_though_it_was_read_in_use() -> None:
    held = replace(whole_card(), holders=(Holder(4711, "qemu", "uuid-of-web-0"),), sharing=(), strangers=())
    (lease,) = leases_of(place(vm("passthrough"), [passthrough_host()], []))
    facts = relieve(host("gpu1", held).facts, [lease.share], ["uuid-of-web-0"], ())
    assert place(vm("passthrough"), [replace(host("gpu1"), facts=facts)], []).shares[0].function == held.address


def test_a_vf_that_cannot_be_read_is_never_taken_and_never_given_back_unseen() -> None:
    card = a40_host().facts.gpus[0]
    unread = replace(card.vfs[0], problem="it could not be read", current_type=None)
    capacity = host("gpu1", replace(card, vfs=(unread, *card.vfs[1:]), unread=("it could not be read",)))
    chosen = place(vm("A40-8Q"), [a40_host()], []).shares[0]
    assert chosen.function == card.vfs[0].address
    assert place(vm("A40-8Q"), [capacity], []).shares[0].function == card.vfs[1].address
    assert "could not be read" in (check_share(chosen, capacity.facts) or "")
    assert plan_release(chosen, capacity.facts).steps == plan_release(chosen, None).steps != ()
    gone = replace(host_facts([]), unread_functions=(UnreadFunction(card.address, "EIO"),))
    assert plan_release(chosen, gone).steps == plan_release(chosen, None).steps
