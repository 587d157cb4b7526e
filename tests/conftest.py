# SPDX-License-Identifier: Apache-2.0
"""Options and servers of the whole test suite."""

import os
import signal
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from tests.changed.seconds import recorded
from tests.lab_fixtures import rest_kernel_host, wake_kernel_host
from tests.postgres_fixture import LocalPostgres, find_programs

# Else gRPC starts its threads again in a child that libvirt forks, and they write into the child's stderr.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Begun in a shell's background, where interrupts are ignored; what the tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes says more of the machine's load than of the code.
hypothesis.settings.register_profile("vgpuctl", deadline=None)
hypothesis.settings.load_profile("vgpuctl")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--regenerate`: rewrite the golden files instead of comparing with them; read the diff afterwards.

    And `--long`: run the tests that are marked as long, and no others; without it they are left out.
    """
    parser.addoption("--regenerate", action="store_true", help="rewrite golden files from what the code gives now")
    parser.addoption("--long", action="store_true", help="run the long tests, which are left out without this")


_LONGEST_IN_NAME = 80


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a test by the start and the size of a long text or long bytes, not by 64 MiB of it.

    pytest escapes the name at each start, and every worker of pytest-xdist sends all names to the others.
    """
    if isinstance(val, str | bytes) and len(val) > _LONGEST_IN_NAME:
        return f"{ascii(val[:_LONGEST_IN_NAME])[:_LONGEST_IN_NAME]}... of {len(val)}"
    return None


_CHECKOUT = Path(__file__).parent.parent
_KERNEL_HOST_LIMIT_S = 1500
_KERNEL_HOST = "kernel host"


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests run alone or not at all.

    Tests of the emulated host form one group of pytest-xdist, begun first: a second host would cost another boot. All
    other tests go by file, except where several files share what is slow to set up. Of the files those that take
    longest come first, as seconds_of_tests.json has them, so that at the end no worker waits for another one's file.
    """
    is_wanted = bool(config.getoption("--long"))
    of_kind: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        of_kind[item.get_closest_marker("long") is not None].append(item)
    items[:] = of_kind[is_wanted]
    config.hook.pytest_deselected(items=of_kind[not is_wanted])
    seconds = recorded(_CHECKOUT)
    ranks: dict[str, tuple[bool, float]] = {}
    for item in items:
        is_on_host = _is_on_host(item)
        file = item.nodeid.partition("::")[0]
        # One fleet under monitoring serves all of them, and the syntax trees of one process those that read sources.
        is_monitored = file.startswith("tests/integration/prometheus/")
        of_file = "monitoring" if is_monitored else "sources" if _reads_sources(item.path) else file
        group = _KERNEL_HOST if is_on_host else of_file
        item.add_marker(pytest.mark.xdist_group(group))
        known_s = seconds[file].others if file in seconds and not is_on_host else 0
        ranks[item.nodeid] = not is_on_host, -known_s
        if is_on_host:
            item.add_marker(pytest.mark.kernel_lab)
            # The first of them boots the host; on a busy machine that alone takes minutes.
            item.add_marker(pytest.mark.timeout(_KERNEL_HOST_LIMIT_S))
    items.sort(key=lambda item: ranks[item.nodeid])


@cache
def _reads_sources(file: Path) -> bool:
    """True for tests of the package's code, whose trees tests/unit/uses_of_names.py keeps: 12 s in each process."""
    return b"\nfrom tests.unit.uses_of_names import" in file.read_bytes()


def _is_on_host(item: pytest.Item) -> bool:
    return not {"kernel_host", "lab_folder"}.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """An emulated host that rests is switched on for another test."""
    if _is_on_host(item):
        wake_kernel_host()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A worker's emulated host rests after its last test: the other tests need the processors.

    Not while a test of the same file comes next, which keeps the file's fixtures, and these use the host at their end.
    """
    yield
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if is_worker and (nextitem is None or not (_is_on_host(nextitem) or nextitem.path == item.path)):
        rest_kernel_host()


@pytest.fixture
def regenerate(request: pytest.FixtureRequest) -> bool:
    """True if golden files are rewritten."""
    return bool(request.config.getoption("--regenerate"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """One server for all tests. VGPUCTL_TESTS_MUST_RUN=1 (CI) makes its absence a failure."""
    programs = find_programs()
    if programs is None:
        reason = "no PostgreSQL server is installed: apt-get install postgresql"
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(reason)
        pytest.skip(reason)
    with LocalPostgres(programs) as server:
        yield server
