# SPDX-License-Identifier: Apache-2.0
"""The installed files, and what came of the restore at this boot."""

import json
import re
from typing import Dict, List, Optional, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire import textfile
from vgpuctl.agent.wire.boot import BootFacts, Installed, InstalledPart, KeptLimit, ManifestStep, name_of
from vgpuctl.agent.wire.decode import WireError, from_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import TYPED_STEPS
from vgpuctl.agent.wire.values import replace

_FILES = (wire.AGENT, wire.MANIFEST, wire.SHARES, wire.UNIT)
_STARTS = re.compile(rf"^ExecStart=(\S+) .*{re.escape(wire.AGENT)}\b", re.MULTILINE)


def read(host: Host) -> Optional[BootFacts]:
    """Read it, None where nothing is installed."""
    text = host.read_optional(wire.MANIFEST)
    if text is None:
        return None
    is_enabled = all(host.disk_link(path) == wire.UNIT for path in wire.UNIT_LINKS)
    result = host.read_optional(wire.RESULT)
    facts = BootFacts(digest(text), is_enabled, missing_python=_missing_python(host), unnamed=_unnamed(host))
    try:
        facts = replace(facts, kept_limits=tuple(read_kept_limits(host)))
    except Problem as problem:
        facts = replace(facts, problems=(problem.message,))
    if result is None:
        return facts
    try:
        told = from_json(BootFacts, {"manifest": facts.manifest, "is_enabled": is_enabled, **json.loads(result)})
    except (WireError, ValueError) as error:
        return replace(facts, problems=(*facts.problems, f"{wire.RESULT} cannot be read: {error}"))
    problems = (*told.problems, *(one for one in facts.problems if one not in told.problems))
    return replace(
        told,
        missing_python=facts.missing_python,
        unnamed=facts.unnamed,
        kept_limits=facts.kept_limits,
        problems=problems,
    )


def read_installed(host: Host) -> Installed:
    """Read what is installed, without judging it. Raises Problem `unreadable`."""
    found = {path: host.digest(path) for path in (*_FILES, *textfile.FILES)}
    found.update({path: host.disk_link(path) for path in (*wire.UNIT_LINKS, *dict(textfile.LINKS))})
    try:
        shares = read_shares(host)
    except Problem:
        shares = None
    return Installed(
        tuple(InstalledPart(path, content) for path, content in sorted(found.items()) if content is not None),
        None if shares is None else tuple(map(wire.listed_share, shares)),
    )


def read_shares(host: Host) -> Optional[List[ManifestStep]]:
    """The shares to be made at boot, None where nothing is installed. Raises Problem `unreadable`."""
    text = host.read_optional(wire.SHARES)
    if text is None:
        return None
    try:
        content = json.loads(text)
        profiles = content.get("profiles", {})
        return [_with_profile(from_json(ManifestStep, one), profiles) for one in content["steps"]]
    except (WireError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(ProblemCode.UNREADABLE, f"{wire.SHARES} cannot be read: {error}", path=wire.SHARES) from error


def read_kept_limits(host: Host) -> List[KeptLimit]:
    """Read the power limits that a controller keeps over a boot, none without their file. Raises Problem."""
    text = host.read_optional(wire.KEPT_LIMITS)
    if text is None:
        return []
    try:
        return [from_json(KeptLimit, one) for one in json.loads(text)["limits"]]
    except (WireError, ValueError, KeyError, TypeError) as error:
        raise Problem(
            ProblemCode.UNREADABLE,
            f"{wire.KEPT_LIMITS} cannot be read: {error}",
            path=wire.KEPT_LIMITS,
            hint="remove the file: the limits that controllers keep from then on are written again",
        ) from error


def _with_profile(share: ManifestStep, profiles: Dict[str, str]) -> ManifestStep:
    profile = profiles.get(name_of(share.step))
    if profile is None or not isinstance(share.step, TYPED_STEPS):
        return share
    if not isinstance(profile, str):
        raise TypeError(f"the type of {name_of(share.step)} is {profile!r}")
    return replace(share, step=replace(share.step, profile=profile))


def _unnamed(host: Host) -> Tuple[str, ...]:
    """Return the devices of shares whose type has no name; none if the file cannot be read."""
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
    return wire.sha256(text.rstrip("\n").encode())
