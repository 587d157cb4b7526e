# SPDX-License-Identifier: Apache-2.0
"""Objects of tenants are named TENANT/NAME, or by --tenant and NAME."""

import click
import pytest

from vgpuctl.cli.forms.conventions import CONNECTION, apply_conventions
from vgpuctl.cli.main import command as command_line
from vgpuctl.cli.options import options
from vgpuctl.cli.options.qualified_names import qualified
from vgpuctl.errors import UsageError

_GOT: list[tuple[object, object]] = []


@click.command()
@click.argument("name")
@options.tenant
def _one(name: str, tenant: str) -> None:
    _GOT.append((tenant, name))


@click.command()
@click.argument("names", nargs=-1)
@options.tenant
def _several(names: tuple[str, ...], tenant: str) -> None:
    _GOT.append((tenant, names))


apply_conventions(_one)
apply_conventions(_several)


def _run(command: click.Command, *arguments: str) -> tuple[object, object]:
    _GOT.clear()
    command.main(args=list(arguments), standalone_mode=False)
    return _GOT[0]


def test_both_forms_name_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ("acme", "web-1")
    assert _run(_one, "acme/web-1") == wanted
    assert _run(_one, "web-1", "--tenant", "acme") == wanted
    assert _run(_one, "-t", "acme", "acme/web-1") == wanted
    monkeypatch.setenv("VGPUCTL_TENANT", "acme")
    assert _run(_one, "web-1") == wanted


def test_a_written_tenant_goes_before_the_environment_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUCTL_TENANT", "umbrella")
    assert _run(_one, "acme/web-1") == ("acme", "web-1")
    assert _run(_several, "acme/web-1", "acme/web-2") == ("acme", ("web-1", "web-2"))
    with pytest.raises(UsageError, match="several tenants: acme, umbrella"):
        _run(_several, "acme/web-1", "web-2")


def test_one_command_has_one_tenant() -> None:
    with pytest.raises(UsageError, match="several tenants: acme, umbrella"):
        _run(_several, "acme/web-1", "umbrella/web-2")
    with pytest.raises(UsageError, match="acme/web-1 is of another tenant than --tenant umbrella"):
        _run(_one, "acme/web-1", "--tenant", "umbrella")


@pytest.mark.parametrize("names", [["web-2"], ["acme/web-1", "web-2"], ["web-2", "acme/web-1"]])
def test_a_missing_tenant_is_asked_for(names: list[str]) -> None:
    with pytest.raises(UsageError, match=r"the tenant of .* is not given"):
        _run(_several, *names)


def test_the_protocol_of_a_port_forward_and_the_address_of_a_route_are_no_tenant() -> None:
    for written, wanted in (
        ("tcp/80", ("acme", "tcp/80")),
        ("acme/tcp/80", ("acme", "tcp/80")),
        ("acme/80", ("acme", "80")),
        ("80", ("acme", "80")),
        ("10.66.0.0/16", ("acme", "10.66.0.0/16")),
        ("acme/fd00:66::/48", ("acme", "fd00:66::/48")),
    ):
        names, tenant = qualified([written], "acme", is_written=True, has_slash=True)
        assert (tenant, names[0]) == wanted


def test_names_without_a_tenant_stay() -> None:
    assert qualified(["web-1", "web-2"], None, is_written=False) == (["web-1", "web-2"], None)


def test_every_command_hides_the_options_of_the_connection_and_shows_them_when_asked() -> None:
    context, meanings = click.Context(command_line), dict[str, set[str]]()
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert all(one.hidden for one in options if one.name in CONNECTION), name
        assert any("--help-all" in one.opts for one in options), name
        for one in options:
            if one.name in CONNECTION:
                meanings.setdefault(one.name, set()).add(one.help or "")
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}, "an option of a command's own"
