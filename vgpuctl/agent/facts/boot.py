# SPDX-License-Identifier: Apache-2.0
"""The files that restore the layout at boot, and the result of this boot."""

import hashlib
import json
import re
from typing import Optional, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire.boot import BootFacts
from vgpuctl.agent.wire.decode import WireError, from_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.values import replace

_STARTS = re.compile(rf"^ExecStart=(\S+) .*{re.escape(wire.AGENT)}\b", re.MULTILINE)


def read(host: Host) -> Optional[BootFacts]:
    """Read it, None where nothing is installed."""
    text = host.read_optional(wire.MANIFEST)
    if text is None:
        return None
    is_enabled = all(host.disk_link(path) is not None for path in wire.UNIT_LINKS)
    result = host.read_optional(wire.RESULT)
    facts = BootFacts(digest(text), is_enabled, missing_python=_missing_python(host), unnamed=_unnamed(host))
    if result is None:
        return facts
    try:
        told = from_json(BootFacts, {"manifest": facts.manifest, "is_enabled": is_enabled, **json.loads(result)})
    except (WireError, ValueError) as error:
        return replace(facts, problems=(f"{wire.RESULT} cannot be read: {error}",))
    return replace(told, missing_python=facts.missing_python, unnamed=facts.unnamed)


def _unnamed(host: Host) -> Tuple[str, ...]:
    """Return the devices of shares whose type has no name. Of a file that cannot be read the result says so."""
    try:
        content = json.loads(host.read_optional(wire.SHARES) or "{}")
        devices = {step.get("uuid") or step["address"] for step in (one["step"] for one in content.get("steps", ()))}
        return tuple(sorted(devices - set(content.get("profiles", ()))))
    except (Problem, ValueError, KeyError, TypeError, AttributeError):
        return ()


def _missing_python(host: Host) -> Optional[str]:
    """Return the unit's interpreter if the host no longer has it, else None. An upgrade may remove it."""
    named = _STARTS.search(host.read_optional(wire.UNIT) or "")
    return named[1] if named and host.find_program(named[1]) is None else None


def digest(text: str) -> str:
    """The sha256 of a file's text in hex, without a newline at its end."""
    return hashlib.sha256(text.rstrip("\n").encode()).hexdigest()
