# SPDX-License-Identifier: Apache-2.0
"""Services and huge pages: done, done again, refused."""

from pathlib import Path

import pytest

from tests.agent.kernel import FakeKernel, add_program, make, problem, take
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.wire.facts import ServiceFacts
from vgpuctl.agent.wire.memory import HugepageFacts
from vgpuctl.agent.wire.steps import SetHugepages, SetServiceActive

POOL = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
PAGES = {POOL: "4\n", "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "3\n"}
# systemctl with one unit, whose state is a file in its folder; `stuck.service` never starts.
SYSTEMCTL = """
import pathlib, sys
words = [word for word in sys.argv[1:] if not word.startswith("-")]
state = pathlib.Path(__file__).with_name("dcgm.state")
active = state.exists()
if words[0] == "list-units":
    print("dcgm.service      loaded    " + ("active running" if active else "inactive dead") + " NVIDIA DCGM")
    print("\\u25cf stuck.service loaded    failed failed A service")
    print("gone.service      not-found inactive dead gone.service")
elif words[0] == "show":
    known = words[1] in ("dcgm.service", "stuck.service")
    print("LoadState=" + ("loaded" if known else "not-found"))
    print("ActiveState=" + ("active" if words[1] == "dcgm.service" and active else "inactive"))
elif words[1] == "stuck.service":
    sys.exit("Job for stuck.service failed.")
elif words[0] == "start":
    state.touch()
else:
    state.unlink()
"""


@pytest.fixture
def host(tmp_path: Path) -> FakeKernel:
    made = make(tmp_path, {"/run/systemd/system": None}, PAGES)
    add_program(made, "/usr/bin/systemctl", SYSTEMCTL)
    return made


def test_a_service_is_started_and_stopped_once(host: FakeKernel) -> None:
    for active in (True, False):
        step = SetServiceActive("dcgm.service", active)
        dry, first, second = take(host, step, dry_run=True), take(host, step), take(host, step)
        assert first.problem is None
        assert dry.changes == first.changes
        assert [reply.changes[0].changed for reply in (first, second)] == [True, False]
        assert second.writes == first.writes
        facts = read_facts(host)
        assert facts.services == (ServiceFacts("dcgm.service", active), ServiceFacts("stuck.service", False))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("gone.service", "no-such-service"),
        ("stuck.service", "service-did-not-start"),
        ("--force.service", "bad-service"),
        ("dcgm", "bad-service"),
    ],
)
def test_a_service_that_cannot_start_is_refused(name: str, code: str, host: FakeKernel) -> None:
    assert problem(take(host, SetServiceActive(name, True))).code == code


def test_a_service_that_is_not_there_need_not_stop(host: FakeKernel) -> None:
    assert not take(host, SetServiceActive("gone.service", False)).changes[0].changed


def test_without_systemd_services_are_not_read(tmp_path: Path) -> None:
    host = make(tmp_path)
    assert read_facts(host).services is None
    assert problem(take(host, SetServiceActive("dcgm.service", False))).code == "no-systemd"


def test_huge_pages_are_set_once_and_read(host: FakeKernel) -> None:
    assert read_facts(host).hugepages == (HugepageFacts(2048, 4, 3),)
    dry, first, second = (take(host, SetHugepages(2048, 8), dry_run=dry_run) for dry_run in (True, False, False))
    assert dry.changes == first.changes
    assert [reply.changes[0].changed for reply in (first, second)] == [True, False]
    assert host.read(POOL) == "8"


def test_a_kernel_that_gives_fewer_pages_is_a_problem(host: FakeKernel) -> None:
    original = host.write_text
    host.write_text = lambda path, text: original(path, str(min(int(text), 6)))  # type: ignore[method-assign]
    assert problem(take(host, SetHugepages(2048, 8))).code == "hugepages-short"
    assert host.read(POOL) == "4"
    host.write_text = lambda path, text: original(path, "7")  # type: ignore[method-assign]
    assert problem(take(host, SetHugepages(2048, 0))).code == "hugepages-in-use"


def test_pages_of_a_size_the_kernel_has_not_are_refused(host: FakeKernel) -> None:
    assert problem(take(host, SetHugepages(1, 8))).code == "not-found"
    assert problem(take(host, SetHugepages(2048, -1))).code == "bad-count"


def test_network_interfaces_are_read(tmp_path: Path) -> None:
    host = make(tmp_path, {"/sys/class/net/eno1/operstate": "up\n", "/sys/class/net/lo/operstate": "unknown\n"})
    assert read_facts(host).network_interfaces == ("eno1", "lo")
