# SPDX-License-Identifier: Apache-2.0
"""create-vm --dry-run on simulated hosts: where a VM would go, why, and what is written; the question for a GPU."""

import os
import pty
import subprocess
from dataclasses import replace

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


def test_each_vm_finds_taken_what_those_before_it_took(operator: Operator) -> None:
    five = ("create-vm", "acme/five", *SIZE, "--gpu", "A40-8Q", "--count", "5")
    planned = [one["leases"][0] for one in operator.json(*five, "--dry-run")]
    functions = [(one["host"], one["share"]["function"]) for one in planned]
    assert len(set(functions)) == 5
    made = [one["leases"][0] for one in operator.json(*five)]
    assert [(one["host"], one["share"]["function"]) for one in made] == functions
    operator.delete_all_vms()


@pytest.mark.parametrize("more", [(), ("--gang",)])
def test_what_the_run_refuses_is_refused_in_the_same_words(operator: Operator, more: tuple[str, ...]) -> None:
    cards = ("create-vm", "acme/card", *SIZE, "--gpu", "passthrough:nvidia-geforce-rtx-3090", "--count", "2", *more)
    tried = operator.is_refused(*cards, "--dry-run")
    assert operator.json("list-vms") == []
    done = operator.is_refused(*cards)
    assert (tried["reference"], tried["exit_code"]) == ("no-capacity", 5)
    assert [tried[key] for key in ("message", "context", "hint")] == [
        done[key] for key in ("message", "context", "hint")
    ]
    operator.delete_all_vms()


@pytest.mark.long(
    "tests/e2e/vm/test_dry_run_of_create.py::test_each_vm_finds_taken_what_those_before_it_took",
    "tests/e2e/operate/test_proofs.py::test_a_few_dry_runs_end_as_their_runs",
)
def test_a_start_finds_taken_what_the_start_before_it_would_take(operator: Operator) -> None:
    card = ("--gpu", "passthrough:nvidia-geforce-rtx-3090")
    for name in ("one", "two"):
        operator.does("create-vm", f"acme/{name}", *SIZE, *card)
        operator.does("stop-vm", f"acme/{name}", "--hold", "release", "--timeout", "0")
    tried, done = (operator.run("start-vm", "acme/one", "acme/two", *more, "--json") for more in (("--dry-run",), ()))
    assert (tried.code, done.code) == (10, 10)
    assert "acme/two cannot start" in tried.err and "acme/two cannot start" in done.err
    operator.delete_all_vms()


def test_a_store_that_can_only_be_read_renders_and_refuses_the_dry_run_as_the_run(operator: Operator) -> None:
    reader = replace(operator, database=f"{operator.database}?mode=ro")
    assert "<name>acme.web</name>" in reader.does("render-vm", *WEB[1:]).out
    for more in ((), ("--dry-run",)):
        assert "cannot be written" in reader.is_refused(*WEB, *more)["message"]


_NO_ANSWER = pytest.mark.long("tests/e2e/vm/test_dry_run_of_create.py::test_a_terminal_asks_for_the_gpu")


@pytest.mark.parametrize(
    ("answer", "said"),
    [("A40-8Q\n", "acme/asked: A40-8Q, "), pytest.param("\n", "acme/asked: no GPU, ", marks=_NO_ANSWER)],
)
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
