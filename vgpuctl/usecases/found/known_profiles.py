# SPDX-License-Identifier: Apache-2.0
"""The gate of names: a vGPU type or model that neither a host's cached facts nor the catalogue knows is refused.

The scheduler is imported late: show-usage and the quotas need it for a name that the catalogue does not know alone.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import UsageError
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota.resources import SHARES, Resource

if TYPE_CHECKING:
    from vgpuctl.store.session import Session

_ASKED_BY_NAME = tuple(str(kind) for kind in Sharing if kind.is_asked_for_by_name())


def refuse_unknown_gpus(session: "Session", *requests: VmRequest) -> None:
    """Raise UsageError, with near names, for a type or model of VMs that nobody knows.

    For what is kept and placed later: what is placed now is refused by the same rule (scheduler/place.py).
    """
    for request in requests:
        if not all(_is_in_catalogue(gpu.profile, gpu.board) for gpu in request.gpus):
            from vgpuctl.scheduler.place import refuse_unknown

            refuse_unknown(request, _stored_facts(session))


def refuse_unknown_profiles(session: "Session", names: Iterable[str], *, what: str) -> None:
    """Raise UsageError, with near names, for the name of a profile that nobody knows. what: the option or field.

    names: in their normal form (catalog/profile_names.py). A plain VF's profile is `vf`, a whole card's `passthrough`.
    """
    for name in names:
        if name in _ASKED_BY_NAME or _is_in_catalogue(catalog.profile_name(name).name):
            continue
        from vgpuctl.scheduler.suggest import suggest_type

        suggestion = suggest_type(catalog.profile_name(name).name, _stored_facts(session))
        if suggestion is not None:
            raise UsageError(f"{what}: {suggestion.message}", hint=suggestion.hint)


def refuse_unknown_resources(session: "Session", resources: Iterable[str]) -> None:
    """Raise UsageError for quotas that would never count: of shares of a type that nobody knows, or of whole cards."""
    from vgpuctl.sharing.kinds import asks_for_card

    profiles = [name.removeprefix(SHARES) for name in resources if name.startswith(SHARES)]
    for name in profiles:
        if name in _ASKED_BY_NAME and asks_for_card(catalog.read_gpu_request(name)):
            raise UsageError(f"{SHARES}{name} counts nothing", hint=f"whole cards are {Resource.CARDS}")
    refuse_unknown_profiles(session, profiles, what="quota")


def _is_in_catalogue(profile: str | None, board: str | None = None) -> bool:
    if profile is not None:
        return bool(catalog.boards_with_type(profile))
    return board is None or bool(catalog.boards_named(board))


def _stored_facts(session: "Session") -> Sequence[HostFacts]:
    return [known.facts for known in session.all_facts().values()]
