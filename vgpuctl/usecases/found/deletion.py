# SPDX-License-Identifier: Apache-2.0
"""How things of one kind that the store keeps are named, found and deleted: a row for each kind, by its use case."""

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from vgpuctl.errors import NotFound, UsageError, VgpuctlError
from vgpuctl.model.natural_order import natural
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.store.store import Session

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Deletion(Generic[Thing]):
    """The rules of one kind. tenant is "" for what belongs to no tenant, else one that is there.

    find: one by the name that the user gave; raises NotFound with what there is. names: of all, for globs.
    printed: its name in answers. describe: the line about it before the question. delete: gets the services, the thing
    and the command's own options; raises what its command documents. left: what stays once it is gone, for people.
    tells: True if `delete` says itself that it is done. is_joint: `delete` gets all things, and deletes all or none.
    """

    find: "Callable[[Session, str, str], Thing]"
    names: "Callable[[Session, str], Sequence[str]]"
    printed: Callable[[Thing], str]
    describe: Callable[[Thing], str]
    delete: Callable[..., object]
    left: Callable[[Thing], str] = lambda _thing: ""
    tells: bool = False
    is_joint: bool = False


def find_all(
    services: Services,
    rules: Deletion[Thing],
    tenant: str,
    written: Sequence[str],
    *,
    word: str,
    listed_by: str,
    if_exists: bool,
) -> list[Thing]:
    """Find things by their names or by globs, each once. word: one of them. listed_by: the command for hints.

    if_exists: a name or glob that fits nothing is a remark. Raises NotFound, and UsageError for a glob of tenants: one
    command deletes things of one tenant.
    """
    if is_glob(tenant):
        raise UsageError(
            f"{tenant}/{written[0]} stands for several tenants", hint="run the command once for each tenant"
        )
    found: dict[str, Thing] = {}
    with services.store.reading() as session:
        for one in written:
            try:
                if tenant:
                    session.tenant(tenant)
                found |= {rules.printed(thing): thing for thing in _fitting(session, rules, tenant, one, word)}
            except NotFound as error:
                if not if_exists:
                    near = error.hint is not None and error.hint.startswith(("did you mean", "there are"))
                    error.hint = error.hint if near else f"see `vgpuctl {listed_by}`"
                    raise
                services.say(f"{error.message}, nothing to delete")
    return list(found.values())


def _fitting(session: "Session", rules: Deletion[Thing], tenant: str, written: str, word: str) -> Iterator[Thing]:
    if not is_glob(written):
        yield rules.find(session, tenant, written)
        return
    names = sorted((one for one in rules.names(session, tenant) if fnmatch.fnmatchcase(one, written)), key=natural)
    if not names:
        raise NotFound(f"no {word}{f' of tenant {tenant}' if tenant else ''} fits {written}")
    for name in names:
        yield rules.find(session, tenant, name)


def delete_all(
    services: Services, rules: Deletion[Thing], things: Sequence[Thing], **how: object
) -> list[VgpuctlError | None]:
    """Delete one after the other. Returns the error of each; one that cannot be deleted keeps no other.

    Raises the error of things that are deleted together.
    """
    if rules.is_joint:
        if things:
            rules.delete(services, things, **how)
        return [None] * len(things)
    return [_error_of(services, rules, one, how) for one in things]


def _error_of(services: Services, rules: Deletion[Thing], thing: Thing, how: dict[str, object]) -> VgpuctlError | None:
    try:
        rules.delete(services, thing, **how)
    except VgpuctlError as error:
        return error
    return None


def is_glob(written: str) -> bool:
    """True if a name is a pattern. No name of a thing in the store has these characters."""
    return any(one in written for one in "*?[")
