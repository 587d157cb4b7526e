# SPDX-License-Identifier: Apache-2.0
"""Every command that prints JSON has a published schema of it."""

import json
from pathlib import Path

import click
import jsonschema

from vgpuctl.cli.main import command as command_line
from vgpuctl.cli.support.json_schema import output_schema

FOLDER = Path(__file__).parents[3] / "docs" / "schemas" / "output"
WITHOUT: dict[str, str] = dict.fromkeys(
    """
    adopt-host advise apply-hosts attach-disk attach-gpu attach-nic backup-store cancel-reservation capacity
    check-hosts check-vm console controller cordon-host create-certificate create-direct-connect
    create-external-network create-floating-ip create-gateway create-licence-pool create-load-balancer create-network
    create-node-pool create-peering create-pool create-port-forward create-security-group create-security-rule
    create-snapshot create-tenant create-vm delete-direct-connect delete-disk delete-external-network
    delete-floating-ip delete-gateway delete-image delete-licence-pool delete-load-balancer delete-network
    delete-node-pool delete-peering delete-pool delete-port-forward delete-security-group delete-security-rule
    delete-snapshot delete-vm detach-disk detach-gpu detach-nic drain-host eject-iso evacuate-host explain-vm
    export-dra export-kubevirt export-layout export-monitoring export-nova export-proxmox export-slurm fit-performance
    force-off forget-host gc grant-pool grant-store import-layout inspect-host leave-queue map move-vm offboard-tenant
    onboard plan-hosts plan-upgrade prune-events quarantine-gpu reconcile-store record-host register-image release-gpu
    rename-vm render-node render-vm repair report reserve reset-vm resize-disk resize-vm restart-vm restore-store
    restore-vm revert-snapshot scale-node-pool screenshot serve-autoscaler serve-extender set-console set-licence-pool
    set-load-balancer set-node-pool set-queue set-quota show-gpu show-inventory show-network show-vm slurm-fail
    slurm-resume slurm-suspend start-vm stop-vm support-bundle top uncordon-host use-context view
    """.split(),
    "its module declares no type yet",
)
"""Commands whose JSON has no schema, with the reason."""


def _printing_json() -> dict[str, click.Command]:
    context = click.Context(command_line)
    found = {name: command_line.get_command(context, name) for name in command_line.list_commands(context)}
    return {
        name: one
        for name, one in found.items()
        if one is not None and any(parameter.name in ("form", "as_json") for parameter in one.params)
    }


def test_every_command_that_prints_json_has_a_schema() -> None:
    without = {name for name, one in _printing_json().items() if output_schema(one) is None}
    assert without == WITHOUT.keys()


def test_every_published_schema_is_that_of_its_command() -> None:
    made = {name: output_schema(one) for name, one in _printing_json().items()}
    published = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FOLDER.glob("*.json")}
    assert published == {name: one for name, one in made.items() if one is not None}


def test_every_published_schema_is_a_schema() -> None:
    for file in FOLDER.glob("*.json"):
        jsonschema.Draft202012Validator.check_schema(json.loads(file.read_text(encoding="utf-8")))
