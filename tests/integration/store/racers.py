# SPDX-License-Identifier: Apache-2.0
"""The work of the processes of the concurrency tests; each imports it, so it stays small."""

import os
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Barrier

from tests.integration.store.samples import lease, mdev_share, reserve, some_uuid, vf_share, vm
from vgpuctl.errors import ConcurrentChange, QuotaExceeded
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota import charge
from vgpuctl.store.store import open_store
from vgpuctl.usecases.placement.preemption import may_ask_everyone
from vgpuctl.usecases.placement.quota import refuse_over_quota

START_LIMIT_S = 60
ADDRESSES_EACH = 12


def add_same_device(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Lease one device without looking at the generation."""
    held = lease(vf_share())
    with open_store(url) as store:
        barrier.wait(START_LIMIT_S)
        try:
            with store.transaction() as session:
                reserve(session, held)
        except ConcurrentChange:
            tell(None)
        else:
            tell(held.id)


def reserve_as_seen(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Reserve a device of one's own, all with the same old sight of the host."""
    held = lease(mdev_share(some_uuid()))
    with open_store(url) as store:
        with store.reading() as session:
            seen = session.generation("gpu1")
        barrier.wait(START_LIMIT_S)
        try:
            with store.transaction() as session:
                session.reserve("gpu1", seen, [held])
        except ConcurrentChange:
            tell(None)
        else:
            tell(held.id)


def take_free_devices(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Look, choose, reserve, and again on ConcurrentChange, until no device is free: what create-vm does."""
    devices = [f"0000:41:{number // 8:02x}.{number % 8}" for number in range(4, 24)]
    taken: list[str] = []
    with open_store(url) as store:
        barrier.wait(START_LIMIT_S)
        while True:
            with store.reading() as session:
                seen = session.generation("gpu1")
                held = {each.share.device for each in session.leases(host="gpu1")}
            free = [device for device in devices if device not in held]
            if not free:
                break
            try:
                with store.transaction() as session:
                    session.reserve("gpu1", seen, [lease(vf_share(free[0]))])
            except ConcurrentChange:
                continue
            taken.append(free[0])
    tell(taken)


def take_addresses(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Take addresses of one network, one VM after the other."""
    taken = []
    with open_store(url) as store:
        with store.reading() as session:
            (network,) = session.networks()
        barrier.wait(START_LIMIT_S)
        for _ in range(ADDRESSES_EACH):
            with store.transaction() as session:
                port = session.add_port(network, some_uuid())
            taken.append((port.address, port.mac_address))
    tell(taken)


def open_new_store(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Open a store that does not exist, all at once, and write into it."""
    barrier.wait(START_LIMIT_S)
    with open_store(url) as store, store.transaction() as session:
        session.add_tenant(f"tenant-{os.getpid()}")
    tell(os.getpid())


def die_in_transaction(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Change a lot, then be killed before the end, with an operation left in the journal."""
    with open_store(url) as store, store.operation("create-vm", "acme/dies"), store.transaction() as session:
        session.add_vm(vm("dies"))
        session.reserve("gpu1", 0, [lease(vf_share(f"0000:41:00.{number}")) for number in range(2, 8)])
        for number in range(2000):
            session.add_event(EventKind.HOST_ADOPTED, "gpu1", f"{number} " * 50)
        tell("in transaction")
        barrier.wait(START_LIMIT_S)
        os.kill(os.getpid(), signal.SIGKILL)


def take_within_quota(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Take VMs with a share each until the quota refuses, as create-vm does: check and take in one transaction."""
    taken = 0
    with open_store(url) as store:
        barrier.wait(START_LIMIT_S)
        for number in range(40):
            created = vm(f"vm-{os.getpid()}-{number}")
            held = lease(mdev_share(some_uuid()), vm_uuid=created.uuid)
            try:
                with store.transaction() as session:
                    refuse_over_quota(session, created.request, [held])
                    session.reserve("gpu1", session.generation("gpu1"), [held])
                    session.add_vm(created)
            except QuotaExceeded:
                break
            taken += 1
    tell(taken)


def serve_queue(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Serve every entry that nobody else serves, in the manner of a controller."""
    served: list[str] = []
    with open_store(url) as store:
        barrier.wait(START_LIMIT_S)
        while True:
            with store.reading() as session:
                entries = session.queue()
            if not entries:
                break
            for entry in entries:
                with store.claim(entry) as claim:
                    if claim is not None:
                        served.append(entry.name)
                        claim.done()
    tell(served)


def die_while_serving(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Claim the first entry, say that it is done, and be killed before that becomes true."""
    with open_store(url) as store:
        with store.reading() as session:
            entry = session.queue()[0]
        with store.claim(entry) as claim:
            assert claim is not None
            claim.note("being served", "no-capacity")
            tell("serving")
            barrier.wait(START_LIMIT_S)
            os.kill(os.getpid(), signal.SIGKILL)


def reclaim_guarantee(url: str, barrier: Barrier, tell: Callable[[object], object]) -> None:
    """Check the guarantee and claim of it in one transaction, as a preemption does; then wait for the others."""
    name = f"vm-{os.getpid()}"
    held = vf_share()
    with open_store(url) as store:
        barrier.wait(START_LIMIT_S)
        with store.transaction() as session:
            may = may_ask_everyone(session, [VmRequest(name, "acme")], [held])
            if may:
                session.claim_quota(f"reclaim:acme.{name}", "acme", {name: charge.of_shares([held])})
        barrier.wait(START_LIMIT_S)
    tell(may)
