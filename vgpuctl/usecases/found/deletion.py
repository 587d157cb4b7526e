# SPDX-License-Identifier: Apache-2.0
"""How things of one kind that the store keeps are named, found and deleted: a row for each kind, by its use case."""

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from vgpuctl.errors import NotFound, UsageError, VgpuctlError
from vgpuctl.model.natural_order import natural
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.store.store import Session

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Deletion(Generic[Thing]):
    """The rules of one kind. Each function gets the services first; tenant is "" for what belongs to no tenant.

    find: one by the name that the user gave; raises NotFound with what there is. names: of all, for globs.
    printed: its name in answers. describe: the line about it before the question. delete: takes the command's own
    options too, and raises what its command documents. left: what stays once it is gone, for people.
    tells: True if `delete` says itself that it is done.
    """

    find: Callable[[Services, str, str], Thing]
    names: Callable[[Services, str], Sequence[str]]
    printed: Callable[[Thing], str]
    describe: Callable[[Thing], str]
    delete: Callable[..., object]
    left: Callable[[Thing], str] = lambda _thing: ""
    tells: bool = False


class HasName(Protocol):
    """A thing that belongs to no tenant, and has one name."""

    @property
    def name(self) -> str:
        """Its name, which no other one of its kind has."""


NamedThing = TypeVar("NamedThing", bound=HasName)


def rules_of_named(
    find: "Callable[[Session, str], NamedThing]",
    every: "Callable[[Session], Sequence[NamedThing]]",
    *,
    describe: Callable[[NamedThing], str],
    delete: Callable[[Services, NamedThing], object],
    left: Callable[[NamedThing], str] = lambda _thing: "",
) -> Deletion[NamedThing]:
    """The rules of a kind that the store has by its name alone. find: raises NotFound. every: all of the kind."""

    def find_one(services: Services, _tenant: str, name: str) -> NamedThing:
        with services.store.reading() as session:
            return find(session, name)

    def names(services: Services, _tenant: str) -> Sequence[str]:
        with services.store.reading() as session:
            return [one.name for one in every(session)]

    return Deletion(find_one, names, lambda one: one.name, describe, delete, left)


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
    for one in written:
        try:
            found |= {rules.printed(thing): thing for thing in _fitting(services, rules, tenant, one, word)}
        except NotFound as error:
            if not if_exists:
                near = error.hint is not None and error.hint.startswith(("did you mean", "there are"))
                error.hint = error.hint if near else f"see `vgpuctl {listed_by}`"
                raise
            services.say(f"{error.message}, nothing to delete")
    return list(found.values())


def _fitting(services: Services, rules: Deletion[Thing], tenant: str, written: str, word: str) -> Iterator[Thing]:
    if not is_glob(written):
        yield rules.find(services, tenant, written)
        return
    names = sorted((one for one in rules.names(services, tenant) if fnmatch.fnmatchcase(one, written)), key=natural)
    if not names:
        raise NotFound(f"no {word}{f' of tenant {tenant}' if tenant else ''} fits {written}")
    for name in names:
        yield rules.find(services, tenant, name)


def delete_all(
    services: Services, rules: Deletion[Thing], things: Sequence[Thing], **how: object
) -> list[VgpuctlError | None]:
    """Delete one after the other. Returns the error of each; one that cannot be deleted keeps no other."""
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
