# SPDX-License-Identifier: Apache-2.0
"""A dry run that goes on: the facts of a host as they would be read after changes that were left out."""

from dataclasses import replace

from tests.unit.fleet_factory import host_facts
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.rehearsal import Rehearsal


def _more(facts: HostFacts) -> HostFacts:
    return replace(facts, memory_available_mib=facts.memory_available_mib + 1)


def test_facts_are_read_as_after_every_change_that_was_left_out_on_that_host() -> None:
    rehearsal, facts = Rehearsal(goes_on=True), host_facts([])
    assert (rehearsal.facts("gpu1", facts), rehearsal.is_changed("gpu1")) == (facts, False)
    rehearsal.leave_out("gpu1", _more)
    rehearsal.leave_out("gpu1", _more)
    assert rehearsal.facts("gpu1", facts).memory_available_mib == facts.memory_available_mib + 2
    assert (rehearsal.facts("gpu2", facts), rehearsal.is_changed("gpu2")) == (facts, False)


def test_a_part_of_a_dry_run_is_forgotten_alone() -> None:
    rehearsal, facts = Rehearsal(goes_on=True), host_facts([])
    rehearsal.leave_out("gpu1", _more)
    with rehearsal.forgetting():
        rehearsal.leave_out("gpu1", _more)
        rehearsal.leave_out("gpu2", _more)
    assert rehearsal.facts("gpu1", facts).memory_available_mib == facts.memory_available_mib + 1
    assert not rehearsal.is_changed("gpu2")
