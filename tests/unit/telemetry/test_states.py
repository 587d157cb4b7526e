# SPDX-License-Identifier: Apache-2.0
"""The table of states has every state of every enum, and no name twice."""

from collections.abc import Collection

import pytest

from vgpuctl.agent.wire.measures import MEASURES
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.model.lease import LeaseState
from vgpuctl.model.network import NetworkState
from vgpuctl.model.node_pool import NodeState
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.restriction import RestrictionKind
from vgpuctl.model.states import STATE_KINDS, UNKNOWN, TruthMismatch, state_kind
from vgpuctl.model.vm import VmState
from vgpuctl.model.volume import VolumeState
from vgpuctl.telemetry.own_metrics import OWN_METRICS
from vgpuctl.usecases.observed import observation_record as record


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("lease_state", set(LeaseState)),
        ("vm_declared_state", set(VmState)),
        ("vm_observed_state", {*DomainState, record.ABSENT, UNKNOWN}),
        ("network_state", set(NetworkState)),
        (
            "host_state",
            {
                record.UP,
                record.UNREACHABLE,
                record.KEY_CHANGED,
                record.WRONG_HOST,
                record.UNUSABLE,
                record.NOT_REACHED,
                record.STALE,
                UNKNOWN,
            },
        ),
        ("gpu_state", {record.PRESENT, record.UNREADABLE, record.MISSING, UNKNOWN}),
        ("share_state", {record.HELD, record.FREE, record.TAKEN, record.LOST, UNKNOWN}),
    ],
)
def test_every_state_of_an_enum_is_in_the_table(name: str, states: Collection[str]) -> None:
    assert set(state_kind(name).states or ()) == {str(one) for one in states}


def test_every_kind_of_restriction_is_in_the_table() -> None:
    of_hosts, of_gpus = state_kind("host_restriction").states or {}, state_kind("gpu_restriction").states or {}
    assert {*of_hosts, *of_gpus} == {str(one) for one in RestrictionKind}


@pytest.mark.parametrize(
    ("name", "label", "values"),
    [
        ("queue_entries", "kind", set(QueueKind)),
        ("volumes", "state", set(VolumeState)),
        ("node_pool_nodes", "state", set(NodeState)),
        ("truth_mismatch", "kind", set(TruthMismatch)),
    ],
)
def test_every_value_of_a_closed_label_is_in_the_table(name: str, label: str, values: Collection[str]) -> None:
    assert set((state_kind(name).label_values or {})[label]) == {str(one) for one in values}


def test_no_metric_has_the_name_of_another() -> None:
    names = [
        *(one.metric for one in STATE_KINDS),
        *(one.metric for one in MEASURES),
        *(one.name for one in OWN_METRICS),
    ]
    assert len(names) == len(set(names))


def test_every_kind_of_state_says_what_it_is() -> None:
    for kind in STATE_KINDS:
        assert kind.heading and kind.text.endswith("."), kind.name
        assert all(text.endswith(".") for text in (kind.states or {}).values()), kind.name
        assert (kind.states is None) or "state" not in kind.labels, kind.name
