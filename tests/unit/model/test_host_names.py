# SPDX-License-Identifier: Apache-2.0
"""Names on hosts belong to one object each."""

import uuid

from hypothesis import assume, example, given
from hypothesis import strategies as st

from vgpuctl.model.network import Network, NetworkRequest, NetworkState
from vgpuctl.model.vm import Vm, VmRequest, VmState, check_name, host_name_of
from vgpuctl.model.volume import VolumeKind, vm_uuid_of, volume_name

_EDGE = st.sampled_from("ab1")
_MIDDLE = st.text("ab1.._-", max_size=6)
_NAMES = st.one_of(_EDGE, st.builds("{}{}{}".format, _EDGE, _MIDDLE, _EDGE))


@given(_NAMES, _NAMES, _NAMES, _NAMES)
@example("a", "b.c", "a.b", "c")
@example("a", "b..c", "a.b", "c")
@example("a..b", "c", "a.b", "c")
@example("a.b", "b", "a", "b.b")
def test_no_two_vms_share_a_name_on_a_host(tenant: str, name: str, other_tenant: str, other_name: str) -> None:
    for one in (tenant, name, other_tenant, other_name):
        check_name(one, what="name")
    assume((tenant, name) != (other_tenant, other_name))
    assert host_name_of(tenant, name) != host_name_of(other_tenant, other_name)


def test_a_tenant_without_dots_has_the_names_it_always_had() -> None:
    assert host_name_of("acme", "web-1.example") == "acme.web-1.example"
    assert host_name_of("acme.eu", "web-1") == "acme..eu.web-1"


def test_vms_and_networks_keep_a_recorded_name() -> None:
    made = Vm("u", VmRequest("c", "a.b"), "gpu1", VmState.RUNNING, domain="a.b.c")
    assert made.domain_name == "a.b.c"
    network = Network("n", NetworkRequest("c", "a.b", "10.0.0.0/24"), NetworkState.CREATED)
    assert (network.host_name, network.printed_name) == ("a..b.c", "a.b/c")
    assert Network("n", network.request, network.state, known_as="a.b.c").host_name == "a.b.c"


@given(st.uuids())
def test_volumes_are_named_by_the_uuid_and_recognised_by_it(number: uuid.UUID) -> None:
    for kind in VolumeKind:
        name = volume_name(str(number), kind)
        assert vm_uuid_of(name) == str(number)
        for other in (f"x{name}", name.upper(), f"{name}.bak", f"acme.{name}", kind.ending()):
            assert vm_uuid_of(other) is None
