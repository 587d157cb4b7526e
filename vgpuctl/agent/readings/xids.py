# SPDX-License-Identifier: Apache-2.0
"""Xids counted by code, from the kernel's log. The counts are kept on the host, because the log forgets.

The log is a ring: what is not read in time is overwritten. Several agents read it, each from its start. So the counts
of this boot lie in /run with the number of the last message that was counted; whoever reads takes the lock, and counts
only later messages.
"""

import fcntl
import json
import os
import time
from contextlib import contextmanager, suppress
from typing import Dict, Iterator, Optional, Sequence, Tuple

from vgpuctl.agent import host_lock
from vgpuctl.agent.file_problems import errno_name
from vgpuctl.agent.host import Host
from vgpuctl.agent.kernel_lines import read_xid
from vgpuctl.agent.kernel_log import KernelRecord
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass
from vgpuctl.agent.wire.xid_classes import CONTACT_SUPPORT, xid_class

NAME = "xids.json"
_LOADED = "NVRM: loading NVIDIA"
_WANTED = "NVRM: "
_LOCK_S, _TRY_S = 2.0, 0.02
_CODES_AT_MOST, _GPUS_AT_MOST = 256, 64
# Codes beyond that are counted together.
OTHER = "other"
_LARGEST = 1 << 53


@dataclass(frozen=True)
class XidCounts:
    """The Xids of this boot.

    counts: by bus id without function, then by (code, class). driver_loaded_at_s: since the boot, None if the log does
    not tell it. lost: messages that were overwritten before this reading; they may have been Xids.
    """

    counts: Dict[str, Dict[Tuple[str, str], int]]
    driver_loaded_at_s: Optional[float] = None
    lost: int = 0

    def of(self, address: str) -> Dict[Tuple[str, str], int]:
        """Return the counts of a GPU by (code, class)."""
        return self.counts.get(address.rpartition(".")[0], {})


def count(host: Host, boot_id: str) -> XidCounts:
    """Count the Xids that came since the last count of any agent. Raises Problem where nobody can count.

    A host that keeps no notes is counted from the oldest message that the log still has.
    """
    if not host.keeps_notes:
        return _count_on(host, XidCounts({}), -1)[0]
    with _locked(host) as place:
        before, last, loaded_at_s = _read(place, boot_id)
        found, reached = _count_on(host, XidCounts(before, loaded_at_s), last)
        if reached > last:
            _write(place, boot_id, found, reached)
        return found


def _count_on(host: Host, before: XidCounts, last: int) -> Tuple[XidCounts, int]:
    """Count on from the message of a number. Also the number of the last message there is. Raises Problem."""
    log = host.numbered_log(after=last)
    if not log.is_open:
        raise Problem(ProblemCode.UNREADABLE, "the kernel's log /dev/kmsg cannot be read", path="/dev/kmsg")
    records, first = log.numbered(wanted=_WANTED)
    lost = first - last - 1 if first is not None and last >= 0 and first > last + 1 else 0
    fresh = [one for one in records if one.number > last and one.is_kernels]
    loaded_at_s = before.driver_loaded_at_s
    for one in fresh:
        if one.text.startswith(_LOADED):
            loaded_at_s = one.at_s
    return XidCounts(_add(before.counts, fresh), loaded_at_s, lost), log.last


def _add(
    before: Dict[str, Dict[Tuple[str, str], int]], records: Sequence[KernelRecord]
) -> Dict[str, Dict[Tuple[str, str], int]]:
    counts = {bus: dict(codes) for bus, codes in before.items()}
    for record in records:
        xid = read_xid(record.text)
        if xid is None or (xid.bus not in counts and len(counts) >= _GPUS_AT_MOST):
            continue
        codes = counts.setdefault(xid.bus, {})
        key = (str(xid.code), xid_class(xid.code, xid.text))
        if key not in codes and len(codes) >= _CODES_AT_MOST:
            key = (OTHER, CONTACT_SUPPORT)
        codes[key] = codes.get(key, 0) + 1
    return counts


@contextmanager
def _locked(host: Host) -> Iterator[str]:
    """Hold the counts' own lock. Yields the path of their file. Raises Problem."""
    folder = host.path(host_lock.FOLDER)
    try:
        descriptor = host_lock.open_in(folder, "xids.lock")
    except OSError as error:
        raise Problem(
            ProblemCode.LOCK_REFUSED,
            f"the counts of Xids in {host_lock.FOLDER} cannot be kept: {error.strerror}",
            path=host_lock.FOLDER,
            errno=errno_name(error),
            hint=None if host.is_root() else "let the agent run as root: ansible_become=true",
        ) from error
    try:
        end = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    message = f"another agent has been counting Xids for {_LOCK_S:g} s"
                    raise Problem(ProblemCode.HOST_LOCKED, message, path=host_lock.FOLDER) from None
            time.sleep(_TRY_S)
        yield f"{folder}/{NAME}"
    finally:
        os.close(descriptor)


def _read(place: str, boot_id: str) -> Tuple[Dict[str, Dict[Tuple[str, str], int]], int, Optional[float]]:
    """Return the counts of this boot, the last message counted, -1 for none, and when the driver was loaded."""
    try:
        with open(place, "rb") as file:
            found = json.loads(file.read())
        if found["boot_id"] != boot_id:
            return {}, -1, None
        counts = {
            str(bus): {(str(code), str(name)): min(int(number), _LARGEST) for code, name, number in codes}
            for bus, codes in found["counts"].items()
        }
        loaded_at_s = found["driver_loaded_at_s"]
        return counts, int(found["last"]), None if loaded_at_s is None else float(loaded_at_s)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        # The file is missing, cut off or nonsense: count all messages that the log still has.
        return {}, -1, None


def _write(place: str, boot_id: str, found: XidCounts, last: int) -> None:
    """Replace the file, while the lock is held. Raises Problem."""
    counts = {
        bus: [[code, name, number] for (code, name), number in codes.items()] for bus, codes in found.counts.items()
    }
    text = json.dumps(
        {"boot_id": boot_id, "last": last, "driver_loaded_at_s": found.driver_loaded_at_s, "counts": counts}
    )
    temporary = f"{place}.new"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with open(descriptor, "w") as file:
            file.write(text)
        os.replace(temporary, place)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        raise Problem(
            ProblemCode.WRITE_REFUSED,
            f"the counts of Xids cannot be kept in {host_lock.FOLDER}: {error.strerror}",
            path=f"{host_lock.FOLDER}/{NAME}",
            errno=errno_name(error),
        ) from error
