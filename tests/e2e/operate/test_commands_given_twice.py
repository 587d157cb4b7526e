# SPDX-License-Identifier: Apache-2.0
"""Commands given twice: what is so already is 0, and what is gone is not found, with code 6."""

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import SIZE

FLEET = (2, "a40")
ACME = "--tenant acme"
TWICE = (
    "create-tenant acme",
    "set-quota acme vms=20",
    "create-host-pool fast --hosts sim-002",
    "grant-host-pool fast acme",
    f"register-image debian --path /img --format raw --checksum sha256:{'0' * 64}",
    f"create-node-pool gpu {ACME} --role k3s --max 3 --memory 96MiB --vcpus 1 --network none",
    f"set-node-pool gpu {ACME} --max 4",
    f"scale-node-pool gpu 0 {ACME}",
    f"create-network front {ACME} --cidr 10.0.0.0/24 --host sim-001",
    "cordon-host sim-002 --reason fans",
    "uncordon-host sim-002",
    "quarantine-gpu sim-002 0000:41:00.0 --reason hot",
    "unquarantine-gpu sim-002 0000:41:00.0 --reason cooled",
    "set-queue priority",
    f"create-vm web {ACME} --gpu A40-8Q --host sim-001 " + " ".join(SIZE),
    f"set-console web none {ACME}",
    f"start-vm web {ACME}",
    f"stop-vm web {ACME} --timeout 0",
    f"attach-disk web data,size=32MiB {ACME}",
    f"attach-nic web default {ACME}",
    f"stop-vm web --force {ACME}",
    f"create-snapshot web old {ACME}",
    f"label-vm web env=prod {ACME}",
    f"rename-vm web web {ACME}",
    f"resize-vm web {ACME} --vcpus 1",
    f"resize-disk db 64MiB {ACME}",
    f"stop-vm db {ACME} --timeout 0",
    f"detach-disk db spare {ACME}",
    f"eject-iso web {ACME}",
)
"""Commands that succeed a second time, and change nothing then."""
GONE = (
    "delete-host-pool fast --yes",
    "delete-image debian --yes",
    f"delete-node-pool gpu {ACME} --yes",
    f"delete-network front {ACME} --yes",
    f"delete-disk spare {ACME} --yes",
    f"delete-vm web {ACME} --yes --timeout 0",
)
"""Commands that delete, and find nothing a second time."""


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-gpus", "--refresh")
    fleet_operator.does("create-vm", "db", "--tenant", "acme", *SIZE, "--data-disk", "spare,size=32MiB,keep=true")
    return fleet_operator


def test_what_is_so_already_is_0_and_what_is_gone_is_6(operator: Operator) -> None:
    faults = []
    for line in TWICE:
        operator.does(*line.split())
        again = operator.run(*line.split())
        if again.code != 0 or "no change" not in again.err + again.out:
            faults.append(f"{line}: {again.code} {again.out} {again.err}")
    for line in GONE:
        operator.does(*line.split())
        again = operator.run(*line.split(), "--json")
        if again.code != 6 or '"not-found"' not in again.err:
            faults.append(f"{line}: {again.code} {again.out} {again.err}")
    assert faults == [], "\n".join(faults)
