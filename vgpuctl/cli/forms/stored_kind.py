# SPDX-License-Identifier: Apache-2.0
"""The commands about one kind of thing that the store keeps: a row says what is alike, a function what is not.

The function calls the use case. It has the name, the help and the own options of the command, and gets the services.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, get_args

import click

from vgpuctl.cli.forms.completion import named
from vgpuctl.cli.forms.services import report_hosts, services, take_service_options
from vgpuctl.cli.frame.command_line import running
from vgpuctl.cli.frame.rehearsal import REHEARSED
from vgpuctl.cli.lists.listing import Listing, ListOutput
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.usecases.found.deletion import Deletion

Thing = TypeVar("Thing")
Row = TypeVar("Row")
Shown = TypeVar("Shown")
Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
_JSON: JsonOutput[object] = JsonOutput()


class JsonDeletions(TypedDict):
    """deleted: names. would_delete: names, of a dry run; then `deleted` is empty."""

    deleted: Sequence[str]
    would_delete: Sequence[str]
    dry_run: bool


def deletions_json(names: Sequence[str], *, dry_run: bool) -> JsonDeletions:
    """The answer of a command that deletes, or would delete, these."""
    return {"deleted": [] if dry_run else names, "would_delete": names if dry_run else [], "dry_run": dry_run}


if_exists = click.option("--if-exists", is_flag=True, help="Ignore names that do not exist.")


@dataclass(frozen=True)
class StoredKind(Generic[Thing]):
    """One kind of thing that the store keeps; its type is that of one in the JSON of a change.

    word: one of them: `host pool`. listed_by: the command that lists them. key: one of them in JSON. tenant: the option
    for the tenant that one belongs to. completes: False if a shell cannot list their names.
    """

    word: str
    listed_by: str
    key: str = ""
    tenant: Decorator | None = None
    completes: bool = True

    def lists(
        self,
        listing: Listing[Row, Any],
        beneath: Callable[[Sequence[Row], ListOutput], None] | None = None,
        *,
        tenant: Decorator = options.tenant_filter,
    ) -> Callable[[Callable[..., Sequence[Row]]], click.Command]:
        """Make a list of a function that returns its rows. beneath: prints more of rows that the user names."""

        def make(read: Callable[..., Sequence[Row]]) -> click.Command:
            def run(output: ListOutput, **given: Any) -> None:
                with services(**take_service_options(given)) as opened:
                    rows = listing.show(output, lambda: read(opened, **given))
                if beneath is not None and given.get("names") and output.is_for_people():
                    beneath(rows, output)

            return _command(read, run, [] if self.tenant is None else [tenant], [options.database, listing.options])

        return make

    def shows(
        self, tell: Callable[[Shown], None], *, where: Decorator = options.database
    ) -> Callable[[Callable[..., Shown]], click.Command]:
        """Make a command that shows what a function returns of the thing with a name. tell: prints it for people."""

        def make(read: Callable[..., Shown]) -> click.Command:
            def run(as_json: bool, **given: Any) -> None:
                with services(**take_service_options(given)) as opened:
                    shown = read(opened, **given)
                if as_json:
                    _JSON.print(shown)
                else:
                    tell(shown)

            first = [self.argument("name"), *self._of_tenant()]
            return _command(read, run, first, [where, options.as_json], lambda returned: returned)

        return make

    def changes(
        self,
        outcome: Callable[[Thing], str],
        *,
        where: Decorator = options.database,
        is_new: bool = False,
        metavar: str | None = None,
    ) -> Callable[[Callable[..., tuple[Thing, bool]]], click.Command]:
        """Make a command of a function that creates or changes one thing: it returns it, and whether it changed.

        outcome: what was done, for people. where: the options of the services. is_new: no shell can know the name.
        metavar: of the name.
        """

        def make(change: Callable[..., tuple[Thing, bool]]) -> click.Command:
            def run(as_json: bool, **given: Any) -> None:
                label = "/".join(filter(None, (given.get("tenant"), given["name"])))
                with services(**take_service_options(given)) as opened:
                    thing, is_changed = change(opened, **given)
                if as_json:
                    _JSON.print({"changed": is_changed, self.key: thing})
                else:
                    say(f"{self.word} {label}: {outcome(thing) if is_changed else 'no change'}")

            name = click.argument("name", metavar=metavar) if is_new else self.argument("name", metavar=metavar)
            run.is_change = True  # type: ignore[attr-defined]  # mypy knows no attributes of functions
            return _command(change, run, [name, *self._of_tenant()], [where, options.as_json], self._json_of_change)

        return make

    def deletes(
        self,
        *,
        whose: str = "",
        verb: str = "Delete",
        outcome: str = "deleted",
        where: Decorator = options.database,
        metavar: str = "NAME...",
        only: str = "",
    ) -> "Callable[[Callable[[], Deletion[Any]]], click.Command]":
        """Make a command of a function that loads the rules. Its own options go to the rule `delete`.

        whose: the end of the question, {tenant} for the tenant. verb, outcome: what the command does, in the question
        and in its answer. only: the name of the one thing that there can be, which the user does not write.
        """

        def make(load: "Callable[[], Deletion[Any]]") -> click.Command:
            def run(
                yes: bool,
                if_exists: bool,
                as_json: bool,
                names: tuple[str, ...] = (only,),
                dry_run: bool = False,
                tenant: str = "",
                **given: Any,
            ) -> None:
                from vgpuctl.usecases.found.deletion import delete_all, find_all

                rules = load()
                about = {"word": self.word, "listed_by": self.listed_by}
                with services(rehearses=dry_run, **take_service_options(given)) as opened:
                    found = find_all(opened, rules, tenant, names, **about, if_exists=if_exists)
                    for one in found:
                        say(rules.describe(one))
                    is_trial = dry_run or running().rehearsal is not None
                    if found and not (yes or is_trial):
                        confirm(f"{verb} {counted(len(found), self.word)}{whose.format(tenant=tenant)}?")
                    errors = delete_all(opened, rules, found, **given)
                gone = [one for one, error in zip(found, errors, strict=True) if error is None]
                for one in () if rules.tells else gone:
                    left = rules.left(one)
                    would = "would be " * is_trial
                    say(f"{self.word} {rules.printed(one)}: {would}{outcome}{left and f'; {left}'}")
                if as_json:
                    _JSON.print(deletions_json([rules.printed(one) for one in gone], dry_run=is_trial))
                failures = [
                    (rules.printed(one), error) for one, error in zip(found, errors, strict=True) if error is not None
                ]
                report_hosts(failures, fine=len(gone), what=f"were not {outcome}", noun=self.word)

            dry_run = [] if load.__name__.replace("_", "-") in REHEARSED else [options.dry_run]
            names = [] if only else [self.argument("names", nargs=-1, required=True, metavar=metavar)]
            first = [*names, *self._of_tenant(), options.yes, if_exists]
            return _command(load, run, first, [*dry_run, where, options.as_json], lambda _rules: JsonDeletions)

        return make

    def argument(self, name: str, **how: Any) -> Decorator:
        """The argument that names one or several of them. how: as for `click.argument`."""
        return click.argument(name, type=named(self.word) if self.completes else None, **how)

    def _of_tenant(self) -> Sequence[Decorator]:
        return [] if self.tenant is None else [self.tenant]

    def _json_of_change(self, returned: Any) -> type:
        text = "changed: false if nothing had to change."
        fields = [("changed", bool), (self.key, get_args(returned)[0])]
        return dataclasses.make_dataclass("Change", fields, namespace={"__doc__": text})


def _command(
    function: Function,
    run: Any,
    first: Sequence[Decorator],
    last: Sequence[Decorator],
    prints: Callable[[Any], Any] | None = None,
) -> click.Command:
    """Make the command of a function, whose own options stand between those of all.

    prints: from the type that the function returns to the type of the command's JSON, for its schema.
    """
    made: Any = functools.wraps(function, updated=())(run)
    made.prints = prints
    for add in reversed(last):
        made = add(made)
    made.__click_params__.extend(getattr(function, "__click_params__", ()))
    for add in reversed(first):
        made = add(made)
    return click.command(function.__name__.replace("_", "-"))(made)
