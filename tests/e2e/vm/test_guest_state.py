# SPDX-License-Identifier: Apache-2.0
"""A guest's TPM and UEFI variables stay with it and end with it; hosts that cannot give them take no such VM."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.kills import KILLED_RUN, kill_after
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import machine, simulated_fleet

ACME = ("--tenant", "acme")
WINDOWS = (*ACME, "--os", "win11", "--memory", "4GiB", "--network", "none", "--gpu", "A40-8Q")
HOSTS = ("sim-001", "sim-002")
OFF = ("--timeout", "0")
STATE = ("var/lib/libvirt/swtpm", "var/lib/libvirt/qemu/nvram")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    """Two equal hosts with one A40 each."""
    with simulated_fleet(tmp_path_factory.mktemp("state"), 2, "a40") as made:
        yield made


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    return fleet_operator


def _root(fleet: lab.LabFolder, host: str) -> Path:
    return machine(fleet, host).root


def _state(fleet: lab.LabFolder, host: str) -> dict[str, bytes]:
    """The files of guests' state on a host, below its folders."""
    root = _root(fleet, host)
    files = (one for folder in STATE for one in (root / folder).rglob("*") if one.is_file())
    return {str(one.relative_to(root)): one.read_bytes() for one in files}


@pytest.fixture
def desktop(operator: Operator, fleet: lab.LabFolder) -> Iterator[tuple[str, str]]:
    """A Windows 11 VM: its UUID and its host."""
    (made,) = operator.json("create-vm", "desk", *WINDOWS)
    yield made["vm"]["uuid"], made["vm"]["host"]
    operator.does("delete-vm", "desk", *ACME, "--yes", *OFF)
    assert [_state(fleet, host) for host in HOSTS] == [{}, {}]


@contextmanager
def _silent(fleet: lab.LabFolder, host: str) -> Iterator[None]:
    lab.faults.begin(host, "sshd", folder=fleet)
    try:
        yield
    finally:
        lab.faults.clear(host, folder=fleet)


def test_stopping_and_starting_keeps_tpm_and_variables(
    operator: Operator, fleet: lab.LabFolder, desktop: tuple[str, str]
) -> None:
    uuid, host = desktop
    before = _state(fleet, host)
    assert set(before) == {
        f"var/lib/libvirt/swtpm/{uuid}/tpm2/tpm2-00.permall",
        f"var/lib/libvirt/qemu/nvram/{uuid}_VARS.fd",
    }
    operator.does("stop-vm", "desk", *ACME, "--hold", "release", *OFF)
    started = operator.does("start-vm", "desk", *ACME)
    assert "BitLocker" not in started.err
    assert _state(fleet, host) == before


def test_moving_carries_tpm_and_variables_and_leaves_none_behind(
    operator: Operator, fleet: lab.LabFolder, desktop: tuple[str, str]
) -> None:
    _, host = desktop
    (other,) = set(HOSTS) - {host}
    before = _state(fleet, host)
    operator.does("move-vm", "desk", *ACME, "--to", other, "--shutdown-timeout", "0")
    assert _state(fleet, host) == {}
    assert _state(fleet, other) == before
    tpm = next(_root(fleet, other).joinpath(STATE[0]).glob("*/tpm2"))
    assert tpm.stat().st_mode & 0o777 == 0o700
    assert all((_root(fleet, other) / name).stat().st_mode & 0o777 == 0o600 for name in before)


def test_a_start_without_swtpm_is_refused_and_one_without_the_tpm_says_what_is_lost(
    operator: Operator, fleet: lab.LabFolder, desktop: tuple[str, str]
) -> None:
    uuid, host = desktop
    operator.does("stop-vm", "desk", *ACME, *OFF)
    hidden = _root(fleet, host) / "run/lab-hidden-programs/swtpm"
    hidden.parent.mkdir(parents=True, exist_ok=True)
    hidden.touch()
    refused = operator.is_refused("start-vm", "desk", *ACME)
    hidden.unlink()
    assert (refused["reference"], "the host has no swtpm" in refused["message"]) == ("state", True), refused
    shutil.rmtree(_root(fleet, host) / STATE[0] / uuid)
    (_root(fleet, host) / STATE[1] / f"{uuid}_VARS.fd").unlink()
    started = operator.does("start-vm", "desk", *ACME)
    assert "its UEFI variables are not on" in started.err
    assert f"its TPM is not on {host} any more" in started.err
    assert "BitLocker recovery key" in started.err


def test_a_dead_hosts_vm_with_a_tpm_stays_where_its_tpm_is(
    operator: Operator, fleet: lab.LabFolder, desktop: tuple[str, str]
) -> None:
    _, host = desktop
    with _silent(fleet, host):
        (planned,) = operator.ends(10, "evacuate-host", host, "--reason", "no power", "--fenced", "--plan")["vms"]
    assert planned["verdict"] == "stay"
    assert f"its TPM is on {host} itself" in planned["reason"]


def test_gc_finds_what_a_killed_move_left(operator: Operator, fleet: lab.LabFolder, desktop: tuple[str, str]) -> None:
    _, host = desktop
    (other,) = set(HOSTS) - {host}
    for name, content in _state(fleet, host).items():
        place = _root(fleet, other) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    foreign = _root(fleet, other) / STATE[0] / "0b7c7d2e-1111-4222-8333-444444444444/tpm2/tpm2-00.permall"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("of another domain")
    found = operator.json("gc", "--dry-run")
    assert {(one["kind"], one["host"], one["left"]) for one in found} == {("guest-state", other, None)}
    operator.does("gc", "--yes")
    assert list(_state(fleet, other).values()) == [b"of another domain"]
    assert len(_state(fleet, host)) == 2
    shutil.rmtree(foreign.parents[1])


_MOVED = pytest.mark.long("tests/e2e/vm/test_guest_state.py::test_a_killed_move_leaves_no_copy_once_it_is_repaired")


@pytest.mark.parametrize(
    ("which", "is_moved"), [("guest_state/3", False), pytest.param("guest_state/4", True, marks=_MOVED)]
)
def test_a_killed_move_leaves_no_copy_once_it_is_repaired(
    operator: Operator, fleet: lab.LabFolder, desktop: tuple[str, str], which: str, *, is_moved: bool
) -> None:
    _, host = desktop
    (other,) = set(HOSTS) - {host}
    before = _state(fleet, host)
    move = ("move-vm", "desk", *ACME, "--to", other, "--shutdown-timeout", "0")
    kill_after(operator, which, *move)
    assert _state(fleet, host) == _state(fleet, other) == before, "both have it now"
    operator.does("repair")
    now, former = (other, host) if is_moved else (host, other)
    assert (_state(fleet, now), _state(fleet, former)) == (before, {})
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["host"], listed["observed"], listed["vm"]["problem"]) == (now, "running", None)


@pytest.mark.long("tests/e2e/vm/test_guest_state.py::test_a_killed_move_leaves_no_copy_once_it_is_repaired")
def test_a_stopped_vm_whose_move_is_killed_leaves_no_copy_either(
    operator: Operator, fleet: lab.LabFolder, desktop: tuple[str, str]
) -> None:
    _, host = desktop
    (other,) = set(HOSTS) - {host}
    before = _state(fleet, host)
    operator.does("stop-vm", "desk", *ACME, *OFF)
    for target, which in ((other, "guest_state/3"), (other, "guest_state/4"), (host, "int:guest_state/3")):
        operator.run(which, "move-vm", "desk", *ACME, "--to", target, program=KILLED_RUN)
        operator.does("repair")
        (listed,) = operator.json("list-vms")
        now = listed["vm"]["host"]
        (former,) = set(HOSTS) - {now}
        assert (_state(fleet, now), _state(fleet, former), listed["vm"]["problem"]) == (before, {}, None), which
    assert now == other, "an interrupted move goes back"


@pytest.fixture
def shared(fleet: lab.LabFolder) -> Iterator[None]:
    """Both hosts have one network file system for guests' state."""
    first, second = (machine(fleet, host) for host in HOSTS)
    for one in (first, second):
        with one.change() as state:
            state.files["/proc/mounts"] = "nas:/ / nfs4 rw 0 0\n"
    for folder in STATE:
        (first.root / folder).mkdir(parents=True, exist_ok=True)
        shutil.rmtree(second.root / folder, ignore_errors=True)
        (second.root / folder).symlink_to(first.root / folder)
    yield
    for folder in STATE:
        (second.root / folder).unlink()
    for one in (first, second):
        with one.change() as state:
            del state.files["/proc/mounts"]


@pytest.mark.usefixtures("shared")
def test_state_on_storage_that_hosts_share_is_never_removed_from_under_its_vm(
    operator: Operator, fleet: lab.LabFolder, desktop: tuple[str, str]
) -> None:
    _, host = desktop
    (other,) = set(HOSTS) - {host}
    before = _state(fleet, HOSTS[0])
    moved = operator.does("move-vm", "desk", *ACME, "--to", other, "--shutdown-timeout", "0")
    assert "on storage that both hosts have" in moved.err
    assert _state(fleet, HOSTS[0]) == before
    found = operator.json("gc", "--dry-run")
    assert {(one["kind"], one["host"], "network file system" in one["left"]) for one in found} == {
        ("guest-state", host, True)
    }
    operator.does("gc", "--yes")
    assert _state(fleet, HOSTS[0]) == before
    with _silent(fleet, other):
        (planned,) = operator.json("evacuate-host", other, "--reason", "no power", "--fenced", "--plan")["vms"]
    assert (planned["verdict"], planned["to"]) == ("move", host)


@pytest.fixture
def without(fleet: lab.LabFolder, request: pytest.FixtureRequest) -> Iterator[str]:
    """Both hosts without a file or with one: the parameter names it. Gives the path on the machine."""
    path = str(request.param)
    places = [_root(fleet, host) / path for host in HOSTS]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    yield path
    for place in places:
        place.unlink()


_FIRMWARE = pytest.mark.long(
    "tests/e2e/vm/test_guest_state.py::test_hosts_without_a_part_take_no_such_vm_and_say_why",
    "tests/unit/scheduler/test_guest_systems.py::test_a_host_without_a_part_is_no_candidate",
)


@pytest.mark.parametrize(
    ("without", "code", "words"),
    [
        ("run/lab-hidden-programs/swtpm_setup", "host-tpm", "the host has no swtpm_setup"),
        # An empty file of this name disables the build (QEMU, docs/interop/firmware.json).
        pytest.param(
            "etc/qemu/firmware/40-edk2-x86_64-secure-enrolled.json",
            "host-firmware",
            "no UEFI build with Secure Boot and enrolled keys",
            marks=_FIRMWARE,
        ),
    ],
    indirect=["without"],
)
def test_hosts_without_a_part_take_no_such_vm_and_say_why(
    operator: Operator, without: str, code: str, words: str
) -> None:
    refused = operator.is_refused("create-vm", "desk", *WINDOWS, "--refresh")
    assert refused["reference"] == "no-capacity"
    assert all(words in line for line in refused["context"])
    explained = operator.run("explain-vm", "desk", *WINDOWS, "--refresh", "--json")
    assert f'"{code}"' in explained.out
    checked = operator.run("check-hosts", "--json")
    assert {"host-tpm": '"guest-tpm"', "host-firmware": '"guest-secure-boot"'}[code] in checked.out
    assert operator.json("list-vms") == []


def test_a_small_windows_is_warned_of_and_its_installation_refused(operator: Operator) -> None:
    small = ("create-vm", "desk", *ACME, "--os", "win11", "--memory", "1GiB", "--network", "none")
    assert "warning: desk: win11 asks for 4 GiB of memory, the VM has 1 GiB" in operator.does(*small, "--dry-run").err
    refused = operator.is_refused(*small, "--iso", "windows", "--disk", "64GiB", "--dry-run")
    assert (refused["reference"], refused["exit_code"]) == ("usage", 2)
