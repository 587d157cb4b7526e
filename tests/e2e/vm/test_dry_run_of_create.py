# SPDX-License-Identifier: Apache-2.0
"""create-vm --dry-run on simulated hosts: where a VM would go, why, and what is written; the question for a GPU."""

import os
import pty
import subprocess

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import SIZE, operator

__all__ = ["operator"]
WEB = ("create-vm", "acme/web", *SIZE, "--gpu", "A40-8Q", "--hostname", "h")


def test_five_lines_say_what_where_why_and_what_is_written(operator: Operator) -> None:
    lines = operator.does(*WEB, "--dry-run").out.splitlines()
    assert [line[:10].strip() for line in lines] == ["VM", "host", "why", "preempts", "writes"]
    vm, host, why, preempts, writes = (line[10:] for line in lines)
    assert vm == "acme/web: A40-8Q, 1 vCPU, 96 MiB"
    assert host.startswith("sim-0") and ": A40-8Q on 0000:" in host
    assert why.startswith("policy ") and " with room" in why
    assert preempts == "no VM"
    assert writes.startswith("volume default/") and "(64 MiB)" in writes and writes.endswith("domain acme.web")
    assert operator.json("list-vms") == []

    (planned,) = operator.json(*WEB, "--dry-run")
    assert planned["why"]["takers"] >= 1 and planned["why"]["hosts"] >= 1
    answers = operator.json("explain-vm", *WEB[1:])[0]["answers"]
    assert planned["why"]["takers"] == sum(one["code"] is None for one in answers)
    assert [one["kind"] for one in planned["writes"]] == ["volume", "volume", "domain"]
    assert planned["writes"][-1] == {"kind": "domain", "name": "acme.web", "detail": ""}


def test_steps_and_xml_are_printed_on_demand(operator: Operator) -> None:
    assert "<domain" not in operator.does(*WEB, "--dry-run").out
    with_steps = operator.does(*WEB, "--dry-run", "--steps").out
    assert "\nstep      " in with_steps and "\nundo      " in with_steps and "<domain" not in with_steps
    assert "<name>acme.web</name>" in operator.does(*WEB, "--dry-run", "--xml").out
    for option in ("--steps", "--xml"):
        assert operator.is_refused(*WEB, option)["exit_code"] == 2


def test_reasons_without_a_choice(operator: Operator) -> None:
    plain = operator.does("create-vm", "acme/plain", *SIZE, "--network", "default", "--host", "sim-001", "--dry-run")
    assert "VM        acme/plain: no GPU, 1 vCPU, 96 MiB\nhost      sim-001\n" in plain.out
    assert ", --host sim-001, of 1 host with room" in plain.out and "interface default" in plain.out
    assert "acme/plain: it has no GPU; --gpu gives it one" in plain.err
    assert "has no GPU" not in operator.does("create-vm", "acme/plain", *SIZE, "--gpu", "none", "--dry-run").err


@pytest.mark.parametrize(("answer", "said"), [("A40-8Q\n", "acme/asked: A40-8Q, "), ("\n", "acme/asked: no GPU, ")])
def test_a_terminal_asks_for_the_gpu(operator: Operator, answer: str, said: str) -> None:
    asked = _on_terminal(operator, answer, "create-vm", "acme/asked", *SIZE, "--dry-run")
    assert "GPU shares that fit: " in asked and "A40-8Q" in asked and "GPU of the VM [none]: " in asked
    assert said in asked
    assert "GPU of the VM" not in _on_terminal(operator, "", "create-vm", "acme/a", *SIZE, "--gpu", "none", "--dry-run")


def _on_terminal(operator: Operator, typed: str, *arguments: str) -> str:
    """Run a command on a terminal with this input. Returns all that the terminal shows."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*operator.command, *arguments], stdin=slave, stdout=slave, stderr=slave, env=operator.environment
    ) as process:
        os.close(slave)
        os.write(master, typed.encode())
        shown = b""
        while True:
            try:
                read = os.read(master, 4096)
            except OSError:  # Linux answers EIO once the other end is closed
                break
            shown += read
        assert process.wait() == 0, shown
    os.close(master)
    return shown.decode()
