# SPDX-License-Identifier: Apache-2.0
"""The identity of a host: marks by which its machine is known again, whatever address it answers at.

A mark is a text such as `machine-id:…`. None is trusted alone: images are cloned with their host keys and machine-id,
names are given twice, cards move. A mark that several hosts have tells nothing.
"""

from collections import Counter
from collections.abc import Mapping

Marks = frozenset[str]

_BOOT, _NAME = "boot", "name"


def boot_mark(boot_id: str) -> str:
    """The mark of one boot of one machine: the kernel draws it at each boot."""
    return f"{_BOOT}:{boot_id}"


def name_mark(hostname: str) -> str:
    """The mark of a machine's own name, without its domain."""
    return f"{_NAME}:{hostname.partition('.')[0].lower()}"


def find_other(host: str, seen: Marks, known: Mapping[str, Marks]) -> str | None:
    """Name the host whose machine answered in place of `host`; None when it is its own machine, or a new one.

    seen: what answered. known: the marks of every host, as they were last read. It is another's when no mark is the
    host's own, and some are another's alone. A host that was never read has no mark of its own: it may be a clone, or
    have got another's cards, so only the other's present boot tells.
    """
    count = Counter(mark for marks in known.values() for mark in marks)
    telling = frozenset(mark for mark in seen if count[mark] == 1)
    own = known.get(host, frozenset())
    if telling & own:
        return None
    if not own:
        telling = frozenset(mark for mark in telling if mark.startswith(f"{_BOOT}:"))
    found = {name: len(telling & marks) for name, marks in known.items() if name != host and telling & marks}
    return min(found, key=lambda name: (-found[name], name)) if found else None
