# SPDX-License-Identifier: Apache-2.0
"""The libvirt of a simulated host answers every call, or ends the connection."""

import os
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.lab.simulated_fixtures import Client, need_simulated
from vgpuctl_lab.simulated.layout import SimulatedFolder, simulated_folder
from vgpuctl_lab.simulated.libvirt_wire import Procedure, Status, text

HOST = "sim-001"
DOMAIN = "<domain type='kvm'><name>one</name><memory>65536</memory><os><type>hvm</type></os></domain>"
LIFECYCLE = struct.pack(">II", 0, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SimulatedFolder]:
    need_simulated()
    parent = lab.LabFolder(tmp_path / "lab")
    lab.simulated.up(1, mix="a40", folder=parent)
    try:
        yield simulated_folder(parent)
    finally:
        lab.simulated.down(folder=parent)


def wait_for_event(client: Client) -> Procedure:
    """The event that comes next: libvirtd sends it some time after the answer to who caused it."""
    deadline = time.monotonic() + 30
    while len(seen := client.call(Procedure.AUTH_LIST)) == 1:
        assert time.monotonic() < deadline, "no event came"
        time.sleep(0.01)
    (event,) = seen[:-1]
    return Procedure(event.procedure)


def test_events_end_with_the_registration(folder: SimulatedFolder) -> None:
    """libvirt's client hangs for ever in its close when an event comes after the registration has ended."""
    with (
        closing(Client(folder, HOST)) as client,
        closing(Client(folder, HOST)) as other,
        closing(Client(folder, HOST)) as third,
    ):
        for one in (client, third):
            one.call(Procedure.CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY, LIFECYCLE)
        other.call(Procedure.DOMAIN_DEFINE_XML, text(DOMAIN))
        for one in (client, third):
            assert wait_for_event(one) == Procedure.DOMAIN_EVENT_CALLBACK_LIFECYCLE
        client.call(Procedure.CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY, struct.pack(">I", 0))
        other.call(Procedure.DOMAIN_DEFINE_XML, text(DOMAIN.replace("one", "two")))
        assert wait_for_event(third) == Procedure.DOMAIN_EVENT_CALLBACK_LIFECYCLE
        assert len(client.call(Procedure.AUTH_LIST)) == 1


def test_a_call_ends_when_the_labs_libvirtd_has_ended(folder: SimulatedFolder) -> None:
    processes = folder.read_processes()
    assert processes is not None
    with closing(Client(folder, HOST)) as client:
        os.kill(processes[1].pid, signal.SIGKILL)
        with pytest.raises(ConnectionError):
            for _ in range(2):
                client.call(Procedure.DOMAIN_DEFINE_XML, text(DOMAIN))


def test_a_call_that_the_lab_cannot_carry_out_is_refused(folder: SimulatedFolder) -> None:
    definitions = folder.host(HOST) / "libvirt"
    definitions.rmdir()
    with closing(Client(folder, HOST)) as client:
        (answer,) = client.call(Procedure.DOMAIN_DEFINE_XML, text(DOMAIN))
    assert answer.status == Status.ERROR
    assert b"No such file or directory" in answer.body


def test_every_cpu_of_the_node_is_told(folder: SimulatedFolder) -> None:
    """With the eight that the test driver tells of, clients pin a VM to none of the others."""
    with closing(Client(folder, HOST)) as client:
        (counted,) = client.call(Procedure.NODE_GET_CPU_MAP, struct.pack(">iiI", 0, 0, 0))
        (mapped,) = client.call(Procedure.NODE_GET_CPU_MAP, struct.pack(">iiI", 1, 1, 0))
    assert counted.body == struct.pack(">IIi", 0, 64, 64)
    assert mapped.body == struct.pack(">I", 8) + b"\xff" * 8 + struct.pack(">Ii", 64, 64)
