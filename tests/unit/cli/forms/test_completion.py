# SPDX-License-Identifier: Apache-2.0
"""Each parameter that takes a name completes to the names in the store; the rest is listed here."""

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from tests.stored_fleet import AT, open_stored
from tests.unit.fleet_factory import emulated_a40, host_facts
from vgpuctl.cli.forms.completion import BY_PARAMETER, OF_NAME, source_of
from vgpuctl.cli.main import command as command_line

_FREE = """
prefix weights accept advertise ageing alertmanager allowed_hosts begin chassis checksum cidr cloud_init_hostname
cloud_init_network_config cloud_init_ssh_authorized_keys cloud_init_user_data cluster config cpu_limit data_disks
database database_role disk_pool disk_size dns drain_timeout driver duration every exporter forwarded gateway group
guaranteed guest_driver guest_driver_version guest_drivers guest_metrics guest_mps hold_for hostlist hugepages
inventories join_ca_cert_hash join_kubeconfig join_munge_key join_server join_timeout join_token join_token_expires
keep kernel kernel_command_line labels lease limit limits listen mac management max_downtime memory month named
new_name nics node note objects older_than os_name params partition path pattern physical_network pool prefer_labels
print_config programs prometheus prometheus_page reason replay require_labels required resume_file rights role rules
runbooks serial server since size snapshot taints timeout until user vgpu_params volume way window workload zone
bandwidth cidr6 cpu_weight disk_iops disk_mbps gateway6 gone pool6 routed6
add_addresses addresses remove_addresses traffic
add_prefixes bgp_as bgp_neighbours bgp_password bgp_speakers endpoint peer_key prefixes preshared_key remove_prefixes
certificate check key pools routes
"""
FREE = frozenset(_FREE.split())
"""Texts of a form of their own, and names of what the store does not have."""

NEW = ("create-", "register-")
"""Commands whose NAME does not exist yet."""


WITHOUT_NAMES = ("explain-vm", "render-vm", "reserve", "delete-port-forward", "delete-route")
"""Commands whose NAME may be new, or is a port or a prefix."""


def test_every_parameter_that_takes_a_name_completes_to_names() -> None:
    context, missing, used = click.Context(command_line), [], set()
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            continue
        for one in command.params:
            is_name = isinstance(one, click.Argument) and one.name in ("name", "names")
            if type(one.type) is not click.types.StringParamType or (is_name and name.startswith(NEW)):
                used |= {one.name} if source_of(name, one) else set()
                continue
            if (
                one.name in FREE
                or (is_name and name in WITHOUT_NAMES)
                or (name, one.name) == ("serve autoscaler", "names")
            ):
                continue
            missing.append(f"{name} {one.name}")
    assert missing == []
    assert BY_PARAMETER.keys() - used == set(), "nothing has these parameters any more"


def test_every_command_of_the_table_exists() -> None:
    assert OF_NAME.keys() - set(command_line.list_commands(click.Context(command_line))) == set()


def test_a_wrong_word_behind_a_family_prints_nothing_on_the_users_line(capsys: pytest.CaptureFixture[str]) -> None:
    complete = ShellComplete(command_line, {}, "vgpuctl", "_VGPUCTL_COMPLETE")
    assert "nova" in {one.value for one in complete.get_completions(["export", "bogus"], "")}
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("given", "begun", "offered"),
    [
        ([], "ex", ["explain-network", "explain-vm", "export"]),
        (["export"], "k", ["kubevirt"]),
        (["serve"], "", ["autoscaler", "exporter", "extender", "web"]),
        (["list-vms"], "", []),
    ],
)
def test_help_completes_one_word_at_a_time(given: list[str], begun: str, offered: list[str]) -> None:
    complete = ShellComplete(command_line, {}, "vgpuctl", "_VGPUCTL_COMPLETE")
    assert [one.value for one in complete.get_completions(["help", *given], begun)] == offered


@pytest.mark.parametrize(
    ("option", "begun", "offered"),
    [
        ("--columns", "st", "state"),
        ("--columns", "name,st", "name,state"),
        ("--sort-by", "name,-st", "name,-state"),
        ("--filter", "st", "state="),
    ],
)
def test_the_columns_of_a_list_are_completed(option: str, begun: str, offered: str) -> None:
    complete = ShellComplete(command_line, {}, "vgpuctl", "_VGPUCTL_COMPLETE")
    assert offered in [one.value for one in complete.get_completions(["list-vms", option], begun)]


def test_behind_a_host_and_a_slash_its_gpus_are_completed(tmp_path: Path) -> None:
    with open_stored(tmp_path, ("gpu1", "gpu2")) as services, services.store.transaction() as session:
        session.save_facts("gpu1", host_facts([emulated_a40("0000:41:00.0").facts()]), at=AT)
    line = f"vgpuctl quarantine-gpu --database sqlite:///{tmp_path}/store.db"
    asked = ShellComplete(command_line, {}, "vgpuctl", "")

    def found(incomplete: str, command: str = "quarantine-gpu") -> list[str]:
        arguments = line.replace("quarantine-gpu", command).split()[1:]
        return [one.value for one in asked.get_completions(arguments, incomplete)]

    assert found("gpu1/") == ["gpu1/0000:41:00.0"] and found("gpu2/") == []
    assert found("gpu1/", "drain-host") == []
    assert "gpu1" in found("gp")
