# SPDX-License-Identifier: Apache-2.0
"""Refusals as a person reads them: grouped, near names, without reading the fleet again, with their own exit codes."""

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.small_vms import operator

__all__ = ["operator"]

VM = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (("--gpu", "A40-8Q", "--host", "sim-01"), "did you mean sim-001"),
        (("--gpu", "passthrough:H100"), "no host has a GPU H100"),
        (("--gpu", "passthrough:H1000"), "catalogue has none"),
        (("--gpu", "A40-8Q", "--require-label", "rack=r1"), "gpu-labels"),
        (("--gpu", "A40-8Q", "--memory", "4096GiB"), "host-too-small"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--gang",)])
def test_a_refusal_that_follows_from_the_request_reads_no_host(
    wanted: tuple[str, ...], said: str, more: tuple[str, ...], operator: Operator
) -> None:
    done = operator.run("create-vm", "web", *VM, *wanted, *more, "-v")
    assert done.code in (2, 5)
    assert "event=ssh-login" not in done.err
    if not more:
        assert said in done.err


def test_refusals_are_grouped_unless_all_are_asked_for(operator: Operator) -> None:
    create = ("create-vm", "web", "--gpu", "passthrough:H100", *VM)
    lines = operator.run(*create).err.splitlines()
    assert any("GPUs of 4 hosts: " in line for line in lines), lines
    assert any("--all-refusals shows each of the" in line for line in lines)
    every = operator.run(*create, "--all-refusals").err.splitlines()
    assert len(every) > len(lines)
    grouped = operator.run("explain-vm", "web", "--gpu", "passthrough:H100", *VM)
    assert "GPUs of 4 hosts" in grouped.out
    assert "--all-refusals shows" in grouped.err
    assert "sim-003" in operator.run("explain-vm", "web", "--gpu", "passthrough:H100", *VM, "--all-refusals").out
    assert "GPUs of 4 hosts" in operator.does("capacity", "--gpu", "passthrough:H100").err


def test_when_all_hosts_failed_the_exit_code_is_theirs_and_names_stand_once(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    names = lab.simulated.names(folder=fleet)[:2]
    for name in names:
        lab.faults.begin(name, "sshd", folder=fleet)
    try:
        done = operator.run("list-gpus", "--refresh", "--limit", ",".join(names))
    finally:
        for name in names:
            lab.faults.clear(name, folder=fleet)
    assert done.code == 4
    assert "2 of 2 hosts did not answer" in done.err
    assert f"{names[0]}: {names[0]}" not in done.err


def test_a_question_that_nobody_can_answer_is_a_usage_error(operator: Operator) -> None:
    operator.does("create-host-pool", "fast", "--hosts", "sim-001")
    done = operator.run("delete-host-pool", "fast")
    assert (done.code, "--yes" in done.err) == (2, True), done.err
    operator.does("delete-host-pool", "fast", "--yes")
