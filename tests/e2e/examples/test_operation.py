# SPDX-License-Identifier: Apache-2.0
"""The examples of commands for operation, the store and monitoring."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.examples.scene import Run, Scene, Stage, commands_of, file, play, scene
from tests.e2e.examples.stage import SMALL, named_fleet, stage
from tests.e2e.neighbours import record_neighbours
from tests.postgres_fixture import LocalPostgres

__all__ = ["named_fleet", "stage"]

WEB_1 = f"create-vm acme/web-1 {SMALL} --host gpu1 --gpu A40-8Q"
DESK_1 = f"create-vm acme/desk-1 {SMALL} --host gpu1 --gpu A40-8Q"
CONTEXTS = "contexts:\n  lab: {tenant: acme}\n  prod: {tenant: umbrella}\n"
MEASURED = "workload,profile,throughput,neighbours\n" + "training,A40-8Q,1.0,\n" * 3 + "training,A40-8Q,0.5,vdi\n" * 5
TIMES = "size,A40\n" + "".join(f"{size},{(size / 1000) ** 3}\n" for size in (1024, 2048, 4096, 8192))
SEALED = (
    f"create-node-pool acme/gpu --role k3s --max 1 --gpu A40-8Q {SMALL}"
    " --join-server https://10.0.0.2:6443 --join-token token"
)
ROLES = ("reader", "ops")
BACKUP = "backup-store store.backup"


def keep_history(stage: Stage) -> None:
    """The readings of web-1 alone, and beside desk-1."""
    path = stage.folder / "store.db.history"
    record_neighbours(path, "acme", ("gpu1", "0000:41:00.0"), "A40-8Q", ("web-1", "desk-1"))


SCENES: dict[str, Scene] = {
    "controller": scene(
        Run("watching the hosts", is_stopped=True), Run(""), Run("watching the hosts", is_stopped=True)
    ),
    "list-controllers": scene(Run(""), Run("[")),
    "support-bundle": scene(Run("bundle.tar.gz"), Run("anonymous.tar.gz")),
    "repair": scene(Run(""), Run("")),
    "show-config": scene(Run("database"), Run("inventory")),
    "list-contexts": scene(Run("lab"), Run("prod")),
    "use-context": scene(Run("lab", then={"list-contexts": "lab"}), Run("prod", then={"list-contexts": "prod"})),
    "allow-config": scene(
        Run("used from now on", more="--yes"), Run("not used any more"), first=(file("vgpuctl.yaml", "forks: 3\n"),)
    ),
    "help": scene(Run("create-network"), Run("create-vm")),
    "completion": scene(Run("complete"), Run("complete")),
    "show-schema": scene(Run("$schema"), Run("$schema")),
    "list-events": scene(Run("vm-created"), Run("vm-created", is_stopped=True), first=(WEB_1,)),
    "prune-events": scene(Run("0 events"), Run("0 events")),
    "grant-store": scene(Run("GRANT"), Run("ops"), first=("create-tenant acme",)),
    "backup-store": scene(Run("store.backup"), Run("full.backup", first=(SEALED,)), first=(file("token", "secret"),)),
    "restore-store": scene(
        Run("would be restored from store.backup", then={"list-tenants -o name": "globex"}),
        Run("store.db.before-restore-", then={"list-tenants -o name": "!globex"}),
        first=(BACKUP, "create-tenant globex"),
    ),
    "reconcile-store": scene(
        Run("store and hosts agree"),
        Run("", then={"create-tenant globex": "globex"}),
        first=(BACKUP, "restore-store store.backup --replace --yes"),
    ),
    "serve exporter": scene(Run("serving", more="--listen 127.0.0.1:0", is_stopped=True), Run("vgpuctl_")),
    "list-targets": scene(Run("gpu1"), Run("[")),
    "export monitoring": scene(Run("monitoring"), Run("monitoring")),
    "top": scene(Run("web-1", keys=b"q"), Run("web-1"), first=(WEB_1,)),
    "map": scene(Run("gpu1"), Run("gpu2"), first=(WEB_1,)),
    "rebalance": scene(
        Run("no move is worth it"), Run("no move is worth it", more="--yes"), first=(WEB_1, DESK_1, keep_history)
    ),
    "advise": scene(Run("1 of 1 lease measured"), Run("["), first=(WEB_1, keep_history)),
    "fit-performance": scene(
        Run("COST"), Run("COST"), first=(WEB_1, DESK_1, keep_history, file("measured.csv", MEASURED))
    ),
    "predict": scene(
        Run("nvidia-a40"),
        Run("seconds"),
        first=(WEB_1, file("times.csv", TIMES), "fit-performance --times times.csv --workload matmul"),
    ),
    "serve web": scene(Run("http://127.0.0.1:", more="--listen 127.0.0.1:0", is_stopped=True), Run("<html")),
}


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """A configuration with two contexts."""
    (tmp_path / "config.yaml").write_text(CONTEXTS)
    return {"VGPUCTL_CONFIG": "{folder}/config.yaml", "XDG_CONFIG_HOME": "{folder}", "XDG_STATE_HOME": "{folder}"}


@pytest.fixture
def roles(postgres: LocalPostgres) -> Iterator[str]:
    """A database whose server has the roles `reader` and `ops`; its address."""
    with postgres.create_database() as url:
        for role in ROLES:
            postgres.execute(f"CREATE ROLE {role}")
        yield url
        for role in ROLES:
            postgres.execute(f"DROP OWNED BY {role}", database=url.rpartition("/")[2])
            postgres.execute(f"DROP ROLE {role}")


_SHORTER = pytest.mark.long(
    "tests/unit/cli/test_examples.py::test_a_command_has_two_examples_that_it_takes",
    "tests/e2e/operate/test_controller.py::test_the_controller_runs_until_it_is_told_to_end",
    "tests/e2e/store/test_reconcile_store.py::test_the_rehearsal_ends_with_a_true_store_and_nothing_lost",
    "tests/e2e/telemetry/test_advise.py::test_advice_is_a_diff_with_commands_gain_proof_and_hours",
    "tests/e2e/telemetry/test_exporter.py::test_once_prints_the_page_without_server_and_history",
    "tests/e2e/telemetry/test_fit_performance.py::test_costs_come_from_what_vgpus_used_alone_and_beside_each_other",
    "tests/e2e/telemetry/test_map.py::test_the_map_shows_shares_what_is_left_and_what_is_closed",
    "tests/e2e/telemetry/test_top.py::test_once_prints_shares_gpus_and_tenants_in_80_columns",
    "tests/e2e/telemetry/test_web.py::test_one_page_is_printed_without_a_server",
)
_SLOW = ("controller", "fit-performance", "map", "rebalance", "reconcile-store", "serve exporter", "serve web", "top")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=_SHORTER if name in _SLOW else ())
        for name in commands_of("operate", "store", "telemetry")
        if name != "grant-store"
    ],
)
def test_the_examples_of_a_command_do_what_they_say(stage: Stage, name: str) -> None:
    play(stage, name, SCENES[name])


def test_the_examples_of_grant_store_do_what_they_say(stage: Stage, roles: str) -> None:
    play(replace(stage, operator=replace(stage.operator, database=roles)), "grant-store", SCENES["grant-store"])
