# SPDX-License-Identifier: Apache-2.0
"""The type that a vGPU step means: by its name, since ids are the driver's and may change with it (reference 3.5)."""

from typing import Callable, Mapping, Optional

from vgpuctl.agent.facts import sharing
from vgpuctl.agent.facts.vgpu_types import is_named, short_name
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import MakeVgpu
from vgpuctl.agent.wire.values import replace

Names = Mapping[str, str]
"""{type id: name as the driver prints it}."""


def require_named(function: str, type_id: str, profile: Optional[str], names: Names) -> None:
    """Raise Problem `type-differs` when the driver gives the id to another type than the one that is meant.

    profile: None for a step that has no name. An id without a name is left to the driver.
    """
    found = names.get(type_id)
    if profile is None or found is None or is_named(found, profile):
        return
    now = _id_of(profile, names)
    raise Problem(
        ProblemCode.TYPE_DIFFERS,
        f"type {type_id} of {function} is {short_name(found)} now, not {profile}, "
        + (f"which is type {now}" if now is not None else "which the driver does not offer there"),
        hint="the driver was updated; vgpuctl goes by the name once it has read the host again",
    )


def as_numbered_now(host: Host, step: MakeVgpu, names_in_use: Callable[[], Names]) -> MakeVgpu:
    """Return the step with the id that the driver gives its type now, and as it is where nothing tells.

    names_in_use: of all types of the card; asked only for a VF that carries a vGPU, which itself names nothing.
    Raises Problem `type-differs` where the driver has no such type, and its id is another's.
    """
    if step.profile is None or step.made is None:
        return step
    function, recorded = step.made
    names: Names = sharing.read_type_names(host, function)
    carried = sharing.read_type_of_function(host, function)
    if carried is not None:
        names = {**names_in_use(), **names}
    now = _id_of(step.profile, names)
    if now is None:
        require_named(function, recorded, step.profile, names)
        return step
    return step if now == recorded else replace(step, type_id=now)


def _id_of(profile: str, names: Names) -> Optional[str]:
    return next((type_id for type_id, name in names.items() if is_named(name, profile)), None)
