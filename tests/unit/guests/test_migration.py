# SPDX-License-Identifier: Apache-2.0
"""A migration is overseen: its limit is raised while it stalls, and one that never ends is given up."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import libvirt
import pytest

from vgpuctl.errors import DomainRejected, LibvirtMissing
from vgpuctl.guests.libvirtd import migration
from vgpuctl.guests.libvirtd.migration import Migration, MigrationOrder, MigrationProgress

ORDER = MigrationOrder("acme.web", "u", "<running/>", "<definition/>", "10.0.0.2", max_downtime_s=2)


class Domain:
    """A domain whose migration ends when `needs_ms` of downtime are allowed, or when it is aborted."""

    def __init__(self, *, needs_ms: float, remaining: int = 64 << 20) -> None:
        self._needs_ms = needs_ms
        self._remaining = remaining
        self._over = threading.Event()
        self._refused = ""
        self.limits: list[int] = []
        self.given: dict[str, Any] = {}
        self.flags = 0
        self.is_resumed = False
        self.is_halted = False

    def migrate3(self, _target: object, parameters: dict[str, Any], flags: int) -> "Domain":
        self.given, self.flags = parameters, flags
        self._over.wait()
        if self._refused:
            raise libvirt.libvirtError(self._refused)
        return self

    def migrateSetMaxDowntime(self, limit_ms: int) -> None:  # noqa: N802 (libvirt's name)
        self.limits.append(limit_ms)
        if limit_ms >= self._needs_ms:
            self._over.set()

    def state(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_PAUSED if self.is_halted else libvirt.VIR_DOMAIN_RUNNING, 0]

    def jobStats(self, flags: int = 0) -> dict[str, int]:  # noqa: N802 (libvirt's name)
        if flags:
            return {"downtime": 250, "data_processed": 99}
        return {"data_total": 128 << 20, "data_remaining": self._remaining, "memory_bps": 8 << 20}

    def resume(self) -> None:
        self.is_resumed = True

    def abortJob(self) -> None:  # noqa: N802 (libvirt's name)
        self._refused = "operation aborted: migration out job: canceled by client"
        self._over.set()


class Libvirt:
    """A connection to the one domain, as Hypervisor has it."""

    def __init__(self, host: str, domain: Domain) -> None:
        self.host = host
        self._domain = domain
        self.version = 11_003_000

    @property
    def connection(self) -> "Libvirt":
        return self

    def getLibVersion(self) -> int:  # noqa: N802 (libvirt's name)
        return self.version

    def lookupByUUIDString(self, _uuid: str) -> Domain:  # noqa: N802 (libvirt's name)
        return self._domain


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(migration, "_POLL_S", 0.01)
    monkeypatch.setattr(migration, "_HALT_POLL_S", 0.01)
    monkeypatch.setattr(migration, "_STALLED_S", 0.02)
    yield


def _move(
    domain: Domain, order: MigrationOrder = ORDER, version: int = 11_003_000
) -> tuple[migration.Migrated, list[MigrationProgress]]:
    seen: list[MigrationProgress] = []
    source: Any = Libvirt("gpu1", domain)
    source.version = version
    target: Any = Libvirt("gpu2", domain)
    return Migration(source, target, source, order, cut=lambda: None).run(seen.append), seen


def test_the_limit_is_raised_until_the_rest_fits() -> None:
    domain = Domain(needs_ms=1000)
    done, seen = _move(domain)
    assert domain.limits == sorted(domain.limits)
    assert domain.limits[0] == 300
    assert 1000 <= domain.limits[-1] <= 2000
    assert (done.downtime_s, done.bytes_sent) == (0.25, 99)
    assert domain.flags & libvirt.VIR_MIGRATE_PAUSED and domain.is_resumed
    assert str(seen[0]).endswith("s, 64 MiB of 128 MiB left")


def test_a_halt_that_gets_too_long_ends_the_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU believed that the rest would fit into the limit, and halted the guest."""
    domain = Domain(needs_ms=60_000)
    domain.is_halted = True
    monkeypatch.setattr(migration, "_STALLED_S", 60)
    with pytest.raises(DomainRejected, match=r"its guest was halted for .*, may be halted for ") as refused:
        _move(domain, replace(ORDER, max_downtime_s=0.5))
    assert refused.value.hint is not None and "slower than declared" in refused.value.hint
    assert not domain.is_resumed


def test_a_limit_below_the_first_one_is_never_passed() -> None:
    domain = Domain(needs_ms=0)
    _move(domain, MigrationOrder("acme.web", "u", "", "", "10.0.0.2", max_downtime_s=0.1))
    assert domain.limits == [100]


def test_a_rest_that_does_not_fit_ends_the_move() -> None:
    domain = Domain(needs_ms=60_000)
    with pytest.raises(DomainRejected) as refused:
        _move(domain)
    assert "64 MiB are left and do not get less, and the guest may be halted for 2s only" in refused.value.message
    assert refused.value.hint is not None
    assert "the rest takes 8s: allow a longer --max-downtime" in refused.value.hint
    assert domain.limits[-1] == 2000


def test_a_state_of_gpus_that_does_not_fit_is_named_although_qemu_does_not_count_it() -> None:
    domain, seen = Domain(needs_ms=60_000, remaining=0), list[MigrationProgress]()
    source: Any = Libvirt("gpu1", domain)
    with pytest.raises(DomainRejected) as refused:
        Migration(source, source, source, ORDER, cut=lambda: None).run(seen.append)
    assert "the state of its GPUs does not get less, and the guest may be halted for 2s" in refused.value.message
    assert "the rest takes longer: allow" in str(refused.value.hint)
    assert str(seen[0]).endswith("s, its memory is copied, the state of its devices is left")


class Transfer(Domain):
    """A transfer on a played clock. what: jobStats by the seconds since it began. call_s: how long one call lasts."""

    def __init__(self, what: Callable[[float], dict[str, int]], *, call_s: float = 0.0) -> None:
        super().__init__(needs_ms=10**9)
        self.now = 1000.0
        self._what, self.call_s = what, call_s

    def jobStats(self, flags: int = 0) -> dict[str, int]:  # noqa: N802 (libvirt's name)
        assert not flags
        self.now += self.call_s
        return {"data_total": 1 << 30, **self._what(self.now - 1000)}

    def oversee(self, for_s: float, order: MigrationOrder = ORDER) -> None:
        """Look as often as a move does."""
        overseer = migration._Overseer(self, order, lambda _progress: None, lambda: self.now)
        while self.now < 1000 + for_s:
            self.now += 0.5
            overseer.look()


UNLIMITED = replace(ORDER, max_downtime_s=None)


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits of a real move: its clock is played."""
    monkeypatch.setattr(migration, "_POLL_S", 0.5)
    monkeypatch.setattr(migration, "_STALLED_S", 4.0)


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize("order", [ORDER, UNLIMITED], ids=["limited", "unlimited"])
@pytest.mark.parametrize("call_s", [0.0, 2.0], ids=["quick answers", "slow answers"])
@pytest.mark.parametrize(
    "stats",
    [
        {"data_remaining": 64 << 20, "memory_iteration": 1},
        {"data_remaining": 64 << 20, "memory_bps": 99, "time_elapsed": 5},
        {"data_remaining": 0, "vfio_data_transferred": 8},
    ],
    ids=["memory", "rates", "state of devices"],
)
def test_a_transfer_over_a_dead_link_is_ended_soon(stats: dict[str, int], call_s: float, order: MigrationOrder) -> None:
    """It began well: the link died after 10 s."""
    transfer = Transfer(lambda at: {**stats, "data_processed": min(int(at), 10)}, call_s=call_s)
    with pytest.raises(DomainRejected, match=r"nothing was transferred for 2\ds, and .* are left") as refused:
        transfer.oversee(600, order)
    assert 30 <= transfer.now - 1000 <= 40
    hint = "the link between the hosts may be dead: its old host must reach 10.0.0.2 at the ports of moves"
    assert refused.value.hint == f"{hint} (docs/moves.md)"


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize(
    "what",
    [
        lambda at: {"data_remaining": (1 << 30) - int(at / 15), "data_processed": int(at / 15)},
        lambda at: {"data_remaining": 64 << 20, "data_processed": int(at / 15)},
        lambda at: {"data_remaining": 64 << 20, "data_processed": 7, "memory_iteration": int(at / 15)},
        lambda at: {"data_remaining": 0, "data_processed": 7, "vfio_data_transferred": int(at / 15)},
        lambda _at: {"data_remaining": 0, "data_processed": 7},
    ],
    ids=[
        "a byte in 15 s",
        "memory that is written again",
        "iterations",
        "state of devices",
        "state that nobody counts",
    ],
)
def test_a_transfer_that_moves_anything_is_not_taken_for_dead(what: Callable[[float], dict[str, int]]) -> None:
    """Where nothing gets less it is given up as before, after the limit was raised to 600 s."""
    transfer = Transfer(what)
    transfer.oversee(80, UNLIMITED)
    assert (transfer.now, transfer.limits[-1] > 300_000) == (1080, True)


@pytest.mark.usefixtures("usual")
def test_one_reading_that_takes_long_says_nothing_of_the_link() -> None:
    """QEMU hears nothing while it writes the state of devices."""
    transfer = Transfer(lambda _at: {"data_remaining": 64 << 20, "data_processed": 7}, call_s=60)
    overseer = migration._Overseer(transfer, UNLIMITED, lambda _progress: None, lambda: transfer.now)
    for reading in range(8):
        transfer.now += 0.5
        overseer.look()
        transfer.call_s = 60 if reading < 1 else 0
    transfer.now += 0.5
    with pytest.raises(DomainRejected, match="nothing was transferred"):
        overseer.look()


@pytest.mark.usefixtures("usual")
def test_a_halted_guest_has_a_limit_of_its_own() -> None:
    """The new host may be loading what it has got, and nothing is sent meanwhile."""
    transfer = Transfer(lambda _at: {"data_remaining": 64 << 20, "data_processed": 7})
    transfer.is_halted = True
    transfer.oversee(80, UNLIMITED)
    assert transfer.now == 1080


def test_what_libvirt_answers_is_told_with_both_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain(needs_ms=0)
    monkeypatch.setattr(domain, "migrate3", _refuse)
    with pytest.raises(DomainRejected, match=r"cannot move domain acme\.web from gpu1 to gpu2: "):
        _move(domain)


def _refuse(*_given: object) -> None:
    raise libvirt.libvirtError("cannot migrate a domain with <hostdev mode='subsystem' type='pci'>")


def test_an_interrupt_ends_the_move_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain(needs_ms=60_000)

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(domain, "jobStats", lambda *_flags: interrupt())
    with pytest.raises(KeyboardInterrupt):
        _move(domain)


@pytest.mark.parametrize(
    ("order", "uri", "is_encrypted", "copies", "mib_s"),
    [
        (ORDER, "tcp://10.0.0.2", False, None, None),
        (
            MigrationOrder("n", "u", "r", "d", "fd00::7", ("vda",), bandwidth_mbps=8000, is_encrypted=True),
            "tcp://[fd00::7]",
            True,
            ["vda"],
            953,
        ),
    ],
)
def test_libvirt_is_told_where_to_and_how(
    order: MigrationOrder, uri: str, is_encrypted: bool, copies: list[str] | None, mib_s: int | None
) -> None:
    domain = Domain(needs_ms=0)
    _move(domain, order)
    assert domain.given[libvirt.VIR_MIGRATE_PARAM_URI] == uri
    assert domain.given[libvirt.VIR_MIGRATE_PARAM_DEST_XML] == order.running
    assert domain.given[libvirt.VIR_MIGRATE_PARAM_PERSIST_XML] == order.definition
    assert domain.given.get(libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS) == copies
    assert domain.given.get(libvirt.VIR_MIGRATE_PARAM_BANDWIDTH) == mib_s
    assert bool(domain.flags & libvirt.VIR_MIGRATE_TLS) is is_encrypted
    assert bool(domain.flags & libvirt.VIR_MIGRATE_NON_SHARED_INC) is (copies is not None)
    assert domain.flags & libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    assert not domain.flags & libvirt.VIR_MIGRATE_UNSAFE
    assert not domain.flags & libvirt.VIR_MIGRATE_PEER2PEER


def test_storage_that_was_proven_to_be_shared_needs_no_proof_of_libvirt() -> None:
    domain = Domain(needs_ms=0)
    _move(domain, MigrationOrder("n", "u", "r", "d", "10.0.0.2", has_shared_disks=True))
    assert domain.flags & libvirt.VIR_MIGRATE_UNSAFE
    assert not domain.flags & libvirt.VIR_MIGRATE_NON_SHARED_INC


@pytest.mark.parametrize(
    ("version", "ceiling_s", "told"), [(11_003_000, None, 953), (11_000_000, None, None), (11_003_000, 5.0, None)]
)
def test_the_bandwidth_counts_at_the_end_where_both_libvirts_know_that(
    version: int, ceiling_s: float | None, told: int | None
) -> None:
    """Not with a ceiling: the link may be slower than declared, and then QEMU's own estimate alone keeps it."""
    domain = Domain(needs_ms=0)
    order = MigrationOrder("n", "u", "r", "d", "10.0.0.2", bandwidth_mbps=8000, max_downtime_s=ceiling_s)
    _move(domain, order, version)
    assert domain.given.get("bandwidth.avail.switchover") == told


def test_a_source_that_is_silent_while_it_sends_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that it works on has no limit of its own."""
    domain = Domain(needs_ms=60_000)
    silent = libvirt.libvirtError("call 212 has no answer")
    silent.err = (libvirt.VIR_ERR_RPC, libvirt.VIR_FROM_RPC, "no answer", 2, None, None, None, 0, 0)

    def refuse(*_given: object) -> Any:
        raise silent

    monkeypatch.setattr(domain, "state", refuse)
    monkeypatch.setattr(domain, "abortJob", refuse)
    cut: list[str] = []

    def end() -> None:
        cut.append("cut")
        Domain.abortJob(domain)

    host: Any = Libvirt("gpu1", domain)
    with pytest.raises(LibvirtMissing, match=r"cannot oversee the move of domain acme\.web"):
        Migration(host, host, host, ORDER, end).run(lambda _progress: None)
    assert cut == ["cut"]
