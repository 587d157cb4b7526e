# SPDX-License-Identifier: Apache-2.0
"""A northbound database that sends without end, or nothing: an error with its bound, soon, and nothing held."""

import itertools
import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ovn_fixture import LocalOvn
from vgpuctl.byte_budget import ByteBudget
from vgpuctl.errors import OvnRefused, OvnUnreachable, UsageError
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress, check_address
from vgpuctl.ovn.rows import Row

MOST_GROWTH_KIB = 120 * 1024


@contextmanager
def database(folder: Path, serve: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """A server on a socket; serve: handles the connection of this number."""
    path = folder / "nb.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def run() -> None:
            for number in itertools.count():
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    try:
                        serve(client, number)
                    except OSError:
                        continue

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"unix:{path}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert not thread.is_alive()


def _flood(client: socket.socket, _number: int) -> None:
    client.sendall(b'{"id":0,"error":null,"result":"')
    while True:
        client.sendall(b"x" * 65536)


def _wait(client: socket.socket, _number: int) -> None:
    while client.recv(65536):
        continue


def _hang_up(client: socket.socket, _number: int) -> None:
    client.recv(65536)


def _others(client: socket.socket, _number: int) -> None:
    while True:
        client.sendall(b'{"id":"x","error":null,"result":{}}' * 1000)


def _no_schema(client: socket.socket, _number: int) -> None:
    request = json.loads(client.recv(65536))
    client.sendall(json.dumps({"id": request["id"], "error": "no such database", "result": None}).encode())
    _wait(client, 0)


HOSTILE = {
    "a text without end": (_flood, "no answer in time"),
    "answers without end to other questions": (_others, "it sent more than 4 MiB"),
    "no answer": (_wait, "no answer in time"),
    "the end": (_hang_up, "it hung up"),
    "an error": (_no_schema, "it has no schema OVN_Northbound"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_database_that_is_none_ends_the_attempt(what: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    serve, said = HOSTILE[what]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        database(tmp_path_factory.mktemp("nb"), serve) as remote,
        pytest.raises(OvnUnreachable, match=said) as refused,
        Northbound(NorthboundAddress(remote), timeout_s=1.5 if said == "no answer in time" else 60),
    ):
        raise AssertionError("it connected")
    assert remote in refused.value.message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_GROWTH_KIB


def test_a_database_that_sends_too_much_is_left(central: LocalOvn) -> None:
    address = NorthboundAddress(central.northbound)
    with (
        pytest.raises(OvnUnreachable, match="it sent more than 1 KiB in one session; its connection was closed"),
        Northbound(address, budget=ByteBudget("it", 1024)),
    ):
        raise AssertionError("it connected")


def test_a_change_names_the_bound_that_was_passed(central: LocalOvn) -> None:
    budget = ByteBudget("it", 2**20)
    switch = Row("Logical_Switch", "one", {"name": "one"})
    with Northbound(NorthboundAddress(central.northbound), timeout_s=3, budget=budget) as northbound:
        with pytest.raises(OSError, match="1 MiB"):
            budget.take(2**20)
        with pytest.raises(OvnRefused, match="it sent more than 1 MiB in one session"):
            northbound.apply({"acme": [switch]})


def test_every_server_of_a_cluster_is_checked() -> None:
    with pytest.raises(UsageError, match=r"tcp:10\.0\.0\.1:6641 is refused: plain TCP"):
        check_address(NorthboundAddress("unix:/run/ovn/ovnnb_db.sock,tcp:10.0.0.1:6641"))
