# SPDX-License-Identifier: Apache-2.0
"""list-vpc-objects; create-, delete- and set-KIND of objects in tenants' VPCs, from vgpuctl/specs/vpc_objects.py."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.services import services, take_service_options
from vgpuctl.cli.forms.stored_kind import StoredKind
from vgpuctl.cli.lists.listing import Column, Listing
from vgpuctl.cli.options import options
from vgpuctl.cli.options.field_options import field_option
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say
from vgpuctl.errors import UsageError
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.specs.field import Field
from vgpuctl.specs.flags import read_flags
from vgpuctl.specs.http_balancing import read_named
from vgpuctl.specs.vpc_objects import KIND_OF, KINDS, LISTED, ObjectKind, describe

if TYPE_CHECKING:
    from vgpuctl.usecases.found.deletion import Deletion
    from vgpuctl.usecases.network.vpc_objects import CreatedObject, ShownObject
    from vgpuctl.usecases.running.services import Services

Run = Callable[..., None]
Decorator = Callable[[Run], Run]


class JsonObjectChange(TypedDict):
    """An object of a tenant's VPC. changed: false if nothing had to change. remarks: what to know of it."""

    changed: bool
    object: "ShownObject"
    remarks: Sequence[str]


_CHANGE: "JsonOutput[JsonObjectChange]" = JsonOutput(("create-", "set-", "delete-security-rule"))
_LISTING: "Listing[ShownObject, ShownObject]" = Listing(
    columns=(
        Column("TENANT", lambda one: one.tenant),
        Column("KIND", lambda one: one.kind),
        Column("NAME", lambda one: one.name),
        Column("SPECIFICATION", lambda one: describe(one.spec), drops=1),
        Column("REMARKS", lambda one: "; ".join((*map(str, one.members), *one.remarks)), drops=2),
    ),
    name=lambda one: f"{one.tenant}/{one.kind}/{one.name}",
    json=lambda one: one,
    empty="no objects: create one, for example with `vgpuctl create-gateway`, or run `vgpuctl onboard`",
)
_TENANT = options.tenant_of("Tenant whose networks it belongs to.")


@StoredKind[Any]("VPC object", "list-vpc-objects", tenant=_TENANT).lists(_LISTING)
@click.option("--kind", type=click.Choice([str(kind) for kind in LISTED]), help="Only objects of this kind.")
@click.option("--members", is_flag=True, help="Ask HTTP load balancers for the state of the VMs behind them.")
@options.inventory
@options.ssh
def list_vpc_objects(
    opened: "Services", tenant: str | None, kind: str | None, *, members: bool
) -> "Sequence[ShownObject]":
    """List gateways, floating IPs, security groups and other VPC objects. They are in the networks of tenants."""
    from vgpuctl.usecases.network.vpc_objects import list_vpc_objects

    return list_vpc_objects(opened, tenant=tenant, kind=VpcKind(kind) if kind else None, asks_members=members)


def make(name: str, text: str) -> click.Command:
    """Make one command of the table. text: the first line of its help."""
    verb, _, noun = name.partition("-")
    if verb == "list":
        return list_vpc_objects
    for kind in KINDS:
        if kind.item_name == noun:
            return _change_items(name, text, kind, is_added=verb == "create")
    makers = {"create": _create, "delete": _delete, "set": _set}
    return makers[verb](name, text, KIND_OF[VpcKind(noun)])


def _create(name: str, text: str, kind: ObjectKind) -> click.Command:
    def run(tenant: str, as_json: bool, **given: Any) -> None:
        from vgpuctl.usecases.network.vpc_objects import create_object

        where = take_service_options(given)
        wanted = kind.read(given)
        _change(lambda opened: create_object(opened, tenant, wanted), where, as_json)

    flags = [
        field_option(one, default=kind.table.written_default(one), is_required=one.is_required)
        for one in kind.fields
        if one.flag
    ]
    return _command(name, (text, kind.create_help, kind.item_help), run, [_argument(kind.named_by), *flags], kind)


def _set(name: str, text: str, kind: ObjectKind) -> click.Command:
    assert kind.changed_list is not None
    items = kind.table.field(kind.changed_list)
    added, removed = _items("add", items), _items("remove", items)
    changed = [kind.table.field(key) for key in kind.changed]
    ended = {
        path: replace(kind.table.field(path), key=key, attribute=key, flag=flag, help=text)
        for path, (key, flag, text) in kind.ended.items()
    }

    def run(tenant: str, as_json: bool, **given: Any) -> None:
        from vgpuctl.usecases.network.vpc_objects import ObjectChange, change_object

        where = take_service_options(given)
        key = kind.name_in(given.pop(kind.named_by.parameter))
        fields = (added, removed, *changed, *ended.values())
        values = kind.with_files(read_flags(fields, given), read_named)
        if not values:
            raise UsageError("nothing to set", hint=f"see `vgpuctl {name} --help`")
        gone = {path: values.pop(one.path, ()) for path, one in ended.items()}
        change = ObjectChange(values.pop(added.path, ()), values.pop(removed.path, ()), values, gone)
        _change(
            lambda opened: change_object(opened, tenant, kind, key, change),
            *(where, as_json),
            verb="changed",
        )

    flags = [field_option(one, default=None) for one in (added, removed, *changed, *ended.values())]
    return _command(
        name,
        (text, "Options that you leave out change nothing.", _restored(kind)),
        run,
        [_argument(kind.named_by), *flags],
        kind,
    )


def _change_items(name: str, text: str, kind: ObjectKind, *, is_added: bool) -> click.Command:
    """Make the command that adds items to an object's list, or removes them."""
    assert kind.changed_list is not None
    items = kind.table.field(kind.changed_list)

    def run(tenant: str, as_json: bool, *, yes: bool = True, **given: Any) -> None:
        from vgpuctl.usecases.network.vpc_objects import ObjectChange, change_object, require_object

        where = take_service_options(given)
        key = kind.name_in(given.pop(kind.named_by.parameter))
        values = read_flags((items,), given)[items.path]
        change = ObjectChange(add=values) if is_added else ObjectChange(remove=values)

        def do(opened: "Services") -> "CreatedObject":
            require_object(opened, tenant, kind, key)
            if not yes:
                confirm(f"Delete {len(values)} of {kind.kind} {key} of tenant {tenant}?")
            return change_object(opened, tenant, kind, key, change)

        _change(do, where, as_json, verb="changed")

    arguments: list[Decorator] = [
        _argument(replace(kind.named_by, metavar=kind.name.rpartition(" ")[2].upper())),
        click.argument(items.parameter, nargs=-1, required=True, metavar=f"{items.metavar}..."),
        *([] if is_added else [options.yes]),
    ]
    known = "" if is_added else "Rules that the group does not have are ignored."
    return _command(name, (text, kind.item_help, known, _restored(kind)), run, arguments, kind)


def _delete(name: str, text: str, kind: ObjectKind) -> click.Command:
    def load() -> "Deletion[ShownObject]":
        from vgpuctl.usecases.network.vpc_objects import deletion_of

        return deletion_of(kind)

    load.__name__, load.__doc__ = name, f"{text}\n\n{kind.delete_help}"
    metavar = kind.named_by.metavar or kind.named_by.parameter.upper()
    return StoredKind[Any](kind.name, "list-vpc-objects", tenant=_TENANT, completes=False).deletes(
        whose=" of tenant {tenant}",
        metavar=f"{metavar}...",
        only=str(kind.kind) if kind.is_single else "",
        where=_where(kind),
    )(load)


def _where(kind: ObjectKind) -> Decorator:
    """The options of the services: hosts too, where objects of the kind may run on some."""
    return options.one_host if kind.runs_on_hosts else options.database


def _command(
    name: str, help_texts: tuple[str, ...], run: Run, own: Sequence[Decorator], kind: ObjectKind
) -> click.Command:
    """Make a command with its own arguments and options, then those that all of the table have."""
    every: list[Decorator] = [*own, _TENANT, _where(kind), options.as_json]
    run.is_change = True  # type: ignore[attr-defined]  # mypy knows no attributes of functions
    for add in reversed(every):
        run = add(run)
    first, *rest = help_texts
    return click.command(name, help=f"{first}\n\n{' '.join(filter(None, rest))}")(run)


def _restored(kind: ObjectKind) -> str:
    return f"If the tenant's file has the {kind.name}, the next `vgpuctl onboard` restores the file's values."


def _argument(one: Field) -> Decorator:
    return click.argument(one.parameter, metavar=one.metavar)


def _items(verb: str, items: Field) -> Field:
    """The flag that adds items to a list, or removes them: `--add-vm`."""
    assert items.flag is not None
    return replace(
        items,
        key=f"{verb}_{items.key}",
        attribute="",
        flag=f"--{verb}-{items.flag.removeprefix('--')}",
        help=f"{verb.capitalize()} a {items.help}",
    )


def _change(
    do: "Callable[[Services], CreatedObject]",
    where: dict[str, Any],
    as_json: bool,
    *,
    verb: str = "created",
) -> None:
    """Create or change one object and print the outcome."""
    with services(**where) as opened:
        created = do(opened)
    shown = created.object
    label = f"{KIND_OF[shown.kind].name} {shown.tenant}/{shown.name}"
    if as_json:
        _CHANGE.print({"changed": created.changed, "object": shown, "remarks": created.remarks})
        return
    outcome = verb if created.changed else "no change"
    address = getattr(shown.spec, "address", "")
    say(f"{label}: {outcome}{f', {address}' * bool(address)}")
    for remark in created.remarks:
        say(f"{label}: {remark}")
