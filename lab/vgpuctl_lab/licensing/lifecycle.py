# SPDX-License-Identifier: Apache-2.0
"""The life of the lab's licence servers: up, down, status, and the tokens of one."""

import dataclasses
import json
import os
import random
import re
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import LabError, UsageError
from vgpuctl_lab.folder import LabFolder, default_folder, write_private
from vgpuctl_lab.licence_token import LIFETIME_S
from vgpuctl_lab.licensing.seats import Lease, Seats
from vgpuctl_lab.licensing.tokens import Identity
from vgpuctl_lab.process import RecordedProcess, record

ADDRESS = "127.0.0.1"
LEASE_S = 86_400.0
TIMERS = (20 * 60.0, 24 * 3600.0)
"""After how long without a licence NVIDIA's driver throttles, and throttles most: defaults that it does not publish."""
MOST_SEATS = 1_000_000
_START_LIMIT_S = 60.0
_END_LIMIT_S = 10.0
_PORTS = range(20_000, 32_768)
"""Below Linux's ip_local_port_range."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_EDITION = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class LicenceServer:
    """One server. state: `up`, or `dead` without a process. seats: by edition. leases: those that have not expired."""

    name: str
    state: str
    address: str
    port: int
    lease_s: float
    seats: Mapping[str, int]
    leases: tuple[Lease, ...]


def up(
    name: str,
    seats: Mapping[str, int] | None = None,
    *,
    lease_s: float | None = None,
    address: str | None = None,
    timers: tuple[float, float] | None = None,
    folder: LabFolder | None = None,
) -> LicenceServer:
    """Start a server, or change one that is up. None keeps a value, or is the default for a new server.

    timers: the steps of a driver without a licence, which new tokens tell the lab's guests.
    Raises UsageError, LabError.
    """
    lab = folder or default_folder()
    lab.claim()
    place = _place(lab, name)
    with lab.locked():
        is_new = name not in names(folder=lab)
        if not is_new:
            before = _described(lab, name)
            seats = before.seats if seats is None else seats
            lease_s = before.lease_s if lease_s is None else lease_s
            address = before.address if address is None else address
            timers = _timers(place) if timers is None else timers
            if before.state == "up" and address != before.address:
                raise LabError(f"{name} listens on {before.address}", hint=f"`vgpuctl lab licence-server stop {name}`")
        lease_s, timers = LEASE_S if lease_s is None else lease_s, timers or TIMERS
        _check(name, seats or {}, lease_s, timers)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        Identity.kept_in(place, name)
        Seats(place / "seats.db").set_up(seats or {}, lease_s)
        write_private(place / "address", address or ADDRESS)
        write_private(place / "timers", json.dumps(timers))
        if not _is_running(place):
            try:
                _start(place, address or ADDRESS)
            except LabError:
                if is_new:
                    shutil.rmtree(place)
                raise
    return _described(lab, name)


def stop(name: str, *, folder: LabFolder | None = None) -> bool:
    """End a server's process, as an outage does: leases run on, and `up` starts it again. False if it was not up.

    Raises LabError.
    """
    lab = folder or default_folder()
    was_up = _described(lab, name).state == "up"
    process = _process(_place(lab, name))
    if process is not None:
        process.end(grace_s=_END_LIMIT_S)
    return was_up


def down(wanted: Sequence[str] = (), *, folder: LabFolder | None = None) -> list[str]:
    """End servers (all without names) and remove their files. Returns their names."""
    lab = folder or default_folder()
    there = names(folder=lab)
    for name in wanted:
        if name not in there:
            raise _unknown(lab, name)
    ended = [name for name in there if not wanted or name in wanted]
    for name in ended:
        process = _process(_place(lab, name))
        if process is not None:
            process.end(grace_s=_END_LIMIT_S)
        shutil.rmtree(_place(lab, name))
    with suppress(OSError):
        lab.licensing.rmdir()
    return ended


def status(*, folder: LabFolder | None = None) -> list[LicenceServer]:
    """Every server, by name."""
    lab = folder or default_folder()
    return [_described(lab, name) for name in names(folder=lab)]


def names(*, folder: LabFolder | None = None) -> list[str]:
    """The names of the servers that have a folder."""
    there = (folder or default_folder()).licensing
    return sorted(one.parent.name for one in there.glob("*/timers")) if there.is_dir() else []


def token(
    name: str, *, addresses: Sequence[str] = (), lifetime_s: float = LIFETIME_S, folder: LabFolder | None = None
) -> str:
    """A client configuration token of a server. addresses: by which clients reach it; its own without them.

    Raises LabError.
    """
    lab = folder or default_folder()
    server, place = _described(lab, name), _place(lab, name)
    made, token_id = Identity.kept_in(place, name).token(
        addresses or (server.address,), server.port, lifetime_s=lifetime_s, timers=_timers(place)
    )
    Seats(place / "seats.db").note_token(token_id, time.time())
    return made


def revoke_tokens(name: str, *, folder: LabFolder | None = None) -> int:
    """Revoke every token of a server that was given out so far. Returns how many were valid before. Raises LabError."""
    lab = folder or default_folder()
    if name not in names(folder=lab):
        raise _unknown(lab, name)
    return Seats(_place(lab, name) / "seats.db").revoke_tokens(time.time())


def _check(name: str, seats: Mapping[str, int], lease_s: float, timers: tuple[float, float]) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a licence server", hint="write a to z, 0 to 9 and -")
    for edition, count in seats.items():
        if not _EDITION.fullmatch(edition) or not 0 <= count <= MOST_SEATS:
            raise UsageError(f"{edition}={count} are no seats", hint=f"write for example vws=2, at most {MOST_SEATS}")
    if not seats:
        raise UsageError("a licence server without seats", hint="--seats vws=2")
    if not 1 <= lease_s <= LIFETIME_S:
        raise UsageError(f"a lease of {lease_s:g} s", hint="from 1s on")
    if not 0 <= timers[0] <= timers[1] <= LIFETIME_S:
        raise UsageError("a driver that is restricted later than stopped", hint="--restrict-after 20m --stop-after 24h")


def _start(place: Path, address: str) -> None:
    """Start the process, on the port that it had before: its tokens name that one."""
    before = _port(place) or _free_port(address)
    (place / "port").unlink(missing_ok=True)
    process = _spawn(place, address, before)
    write_private(place / "process.json", json.dumps(dataclasses.asdict(process)))
    limit = time.monotonic() + _START_LIMIT_S
    while process.is_running() and time.monotonic() < limit:
        if _port(place):
            return
        time.sleep(0.02)
    process.end(grace_s=0)
    write_private(place / "port", f"{before}\n")
    raise LabError(
        f"the licence server {place.name} does not start on {address}:{before}",
        context=(place / "service.log").read_text(errors="replace").splitlines()[-3:],
        hint="its tokens name this port; `vgpuctl lab licence-server down` removes the server" if before else None,
    )


def _free_port(address: str) -> int:
    """A free port that the kernel gives to no outgoing connection, so it stays free while the server is stopped."""
    for port in random.sample(_PORTS, 50):
        with suppress(OSError), socket.socket() as tried:
            tried.bind((address, port))
            return port
    return 0  # the server says what is wrong with the address


def _spawn(place: Path, address: str, port: int) -> RecordedProcess:
    """Start the process, which outlives this one."""
    log = str(place / "service.log")
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "vgpuctl_lab.licensing.service", str(place), address, str(port)],
        # Without the caller's PYTHONWARNINGS: cheroot leaves a socket that it could not bind.
        {**os.environ, "PYTHONPATH": str(_PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return record(pid)


def _described(lab: LabFolder, name: str) -> LicenceServer:
    if name not in names(folder=lab):
        raise _unknown(lab, name)
    place = _place(lab, name)
    seats = Seats(place / "seats.db")
    return LicenceServer(
        name,
        "up" if _is_running(place) else "dead",
        (place / "address").read_text(),
        _port(place),
        seats.lease_s(),
        seats.counts(),
        tuple(seats.leases(time.time())),
    )


def _timers(place: Path) -> tuple[float, float]:
    restricted, stopped = json.loads((place / "timers").read_text())
    return restricted, stopped


def _place(lab: LabFolder, name: str) -> Path:
    return lab.licensing / name


def _port(place: Path) -> int:
    try:
        return int((place / "port").read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _process(place: Path) -> RecordedProcess | None:
    try:
        return RecordedProcess(**json.loads((place / "process.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _is_running(place: Path) -> bool:
    process = _process(place)
    return process is not None and process.is_running()


def _unknown(lab: LabFolder, name: str) -> LabError:
    there = ", ".join(names(folder=lab)) or "none"
    return LabError(f"there is no licence server {name!r} in {lab.path}", hint=f"servers there: {there}")
