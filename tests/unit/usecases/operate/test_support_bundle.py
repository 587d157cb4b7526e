# SPDX-License-Identifier: Apache-2.0
"""A support bundle has the failures and no secret, also without a store or an inventory; texts only when accepted."""

import base64
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.store.samples import full_request, some_uuid, vm
from tests.unit.fleet_factory import emulated_a40, host_facts
from vgpuctl.errors import UsageError
from vgpuctl.model.configuration import Configuration
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.licence import Edition, LicencePool
from vgpuctl.model.node_pool import ClusterJoin, NodePool, NodeRole
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit, Vm, VmState
from vgpuctl.usecases.operate.show_config import show_config
from vgpuctl.usecases.operate.support_bundle import SupportBundle, support_bundle
from vgpuctl.usecases.running.services import Services
from vgpuctl.wiring import Settings, open_services

HOST, ADDRESS, USER, TENANT, NAME = "rack7-gpu3", "10.77.3.9", "mbolton", "initrode", "tps-reports"
INVENTORY = f"""
all:
  hosts:
    {HOST}:
      ansible_host: {ADDRESS}
      ansible_port: 1
      ansible_user: {USER}
      ansible_password: seed-login-pw
      ansible_become_password: seed-sudo-pw
      ansible_ssh_common_args: -o ProxyCommand='sshpass -p seed-proxy-pw ssh jump'
      ansible_python_interpreter: /opt/seed-python-path/bin/python3
      api_token: seed-inventory-token
      rack_note: seed-plain-variable
  children:
    seed_group:
      hosts:
        {HOST}:
"""
ENVIRONMENT = {
    "VGPUCTL_DATABASE_URL": "postgresql://vgpu:seed-database-pw@db.example/vgpuctl?sslpassword=seed-ssl-pw",
    "VGPUCTL_PROMETHEUS": "https://reader:seed-prometheus-pw@metrics.example",
    "VGPUCTL_REMOTE_TOKEN": "seed-environment-token",
    "VGPUCTL_INVENTORY": "/srv/seed-path-of-inventory/hosts.yml",
    "VGPUCTL_HISTORY": "postgresql://vgpu:head-of-it@tail-of-password@db.example/history",
    "VGPUCTL_TENANT": "seed-tenant-of-settings",
}
LOG = f"""2026-11-26T00:00:00Z INFO ssh-connect host={HOST}
2026-11-26T00:00:01Z ERROR store-call error="postgresql://vgpu:seed-log-pw@db/x refused" password=seed-log-pw2
2026-11-26T00:00:02Z DEBUG said text="the shell printed seed-login-pw" Authorization: Bearer seed-bearer-token-1
-----BEGIN PRIVATE KEY-----
seed-private-key
-----END PRIVATE KEY-----
2026-11-26T00:00:03Z DEBUG said text="the door code is seed-door-code"
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with _services(tmp_path) as opened:
        yield opened


def _services(folder: Path, database: str | None = None) -> Services:
    (folder / "inventory.yml").write_text(INVENTORY)
    url = database or f"sqlite:///{folder}/store.db"
    settings = Settings((str(folder / "inventory.yml"),), url, key_file=_key(folder), connect_timeout_s=0.5)
    return open_services(settings, lambda _text: None)


def _key(folder: Path) -> Path:
    path = folder / "seed.key"
    path.write_text("c2VlZC1rZXktZmlsZS1jb250ZW50LTAxMjM0NTY3ODk=\n")
    path.chmod(0o600)
    return path


def _fill(services: Services) -> None:
    """Put a secret into every place of the store that can hold one."""
    documents = CloudInit(
        (f"ssh-ed25519 AAAAC3NzaC1seedpublickey {USER}@laptop",),
        user_data=SecretText.of("#cloud-config\npassword: seed-user-data\n"),
        network_config=SecretText.of("wifi: seed-network-config\n"),
        licence_token=SecretText.of(base64.b64encode(b"seed-licence-token").decode()),
    )
    request = replace(full_request(), tenant=TENANT, name=NAME, cloud_init=documents, labels=(("owner", "seed-label"),))
    join = ClusterJoin("https://10.0.0.2:6443", token=SecretText.of("K10abc::node:seed-join-token"))
    join = replace(join, kubeconfig=SecretText.of("users: [{token: seed-kubeconfig}]"))
    with services.open_store().transaction() as session:
        session.add_tenant(TENANT)
        session.add_vm(Vm(some_uuid(), request, HOST, VmState.BROKEN, problem="libvirt said password=seed-problem-pw"))
        session.restrict(HOST, WHOLE_HOST, RestrictionKind.CORDON, "root is seed-cordon-reason now")
        session.add_vm(replace(vm(), request=replace(full_request(), tenant=TENANT, name="plain"), host=HOST))
        session.join_queue(QueueKind.CREATE, replace(request, name="queued"))
        session.put_node_pool(NodePool("gpu", TENANT, NodeRole.K3S, replace(request, name="gpu"), 2, join=join))
        session.put_licence_pool(LicencePool("dls", Edition.VWS, 4))
        session.set_licence_token("dls", SecretText.of("seed-pool-licence-token"))
        session.add_event(
            EventKind.LAYOUT_STEP_FAILED,
            HOST,
            "ssh://root:seed-event-url-pw@10.77.3.9 did not answer, token=seed-event-token",
            host=HOST,
            before={"note": "seed-before-value"},
            after={"words": ["seed-after-value"], "seed-key-of-event": 1},
            evidence={"api_key": "seed-evidence-key", "said": "Basic c2VlZC1ldmlkZW5jZS1iYXNpYw=="},
        )
        session.add_event(EventKind.VM_LABELLED, "seed-subject with words", "it was seed-plain-detail")
        facts = host_facts([emulated_a40("0000:41:00.0").facts()], hostname=f"{HOST}.corp.example")
        line = "root=x rd.iscsi.password=seed-boot-pw seed-plain-parameter"
        gpus = tuple(replace(one, problems=("kernel: seed-kernel-line",), name="seed-gpu-name") for one in facts.gpus)
        session.save_facts(HOST, replace(facts, kernel_command_line=line, gpus=gpus, nvml_problem="seed-nvml"), at=1.0)


def _bundle(services: Services, folder: Path, **asked: Any) -> tuple[SupportBundle, Mapping[str, str]]:
    log = folder / "seed-file-name.log"
    log.write_text(LOG)
    configuration = Configuration({}, {})
    made = support_bundle(
        services,
        folder / "bundle.tar.gz",
        settings=lambda: show_config(configuration, ENVIRONMENT),
        logs=[log],
        **asked,
    )
    with tarfile.open(fileobj=io.BytesIO(Path(made.file).read_bytes())) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            found[entry.name.removeprefix("support-bundle/")] = file.read().decode()
    return made, found


@pytest.mark.parametrize("is_anonymous", [False, True])
def test_no_secret_of_the_store_the_settings_the_inventory_or_a_log_is_in_it(
    services: Services, tmp_path: Path, is_anonymous: bool
) -> None:
    _fill(services)
    made, found = _bundle(services, tmp_path, is_anonymous=is_anonymous)
    assert (made.problems, made.has_texts) == ((), False)
    text = "".join([*found, *found.values()])
    seeded = INVENTORY + str(ENVIRONMENT) + LOG + Path(__file__).read_text()
    assert len(set(re.findall("seed-[a-z0-9-]+", seeded))) >= 40
    assert [line for line in text.splitlines() if "seed" in line or "-of-" in line] == []
    for encoded in ("AAAAC3NzaC1seedpublickey", "c2VlZC1ldmlkZW5jZS1iYXNpYw", "c2VlZC1rZXktZmlsZS", "c2VlZC1saWNlbmNl"):
        assert encoded not in text
    assert Path(made.file).stat().st_mode & 0o777 == 0o600


def test_texts_are_shown_before_they_go_in_without_the_secrets_that_are_known(
    services: Services, tmp_path: Path
) -> None:
    _fill(services)
    shown: list[str] = []

    def accept(texts: str) -> bool:
        shown.append(texts)
        return True

    made, found = _bundle(services, tmp_path, accept_texts=accept)
    assert made.has_texts
    text = "".join(found.values())
    for known in ("seed-login-pw", "seed-proxy-pw", "seed-database-pw", "seed-environment-token", "seed-log-pw"):
        assert known not in text + "".join(shown)
    for free in ("seed-plain-detail", "seed-cordon-reason", "seed-kernel-line", "seed-door-code"):
        assert free in text
        assert free in shown[0]
    assert "texts/logs/1.log" in found


def test_everything_that_a_report_needs_is_in_it(services: Services, tmp_path: Path) -> None:
    _fill(services)
    _, found = _bundle(services, tmp_path)
    assert json.loads(found["versions.json"])["libraries"]["SQLAlchemy"]
    assert HOST in found["events.json"]
    failures = json.loads(found["failures.json"])
    assert [one["name"] for one in failures["broken_vms"]] == [NAME]
    assert [one["vms"] for one in failures["waiting"]] == [1]
    assert [one["kind"] for one in failures["events"]] == ["layout-step-failed"]
    facts = json.loads(found[f"hosts/{HOST}/facts.json"])
    assert facts["gpus"][0]["address"] == "0000:41:00.0"
    assert "not in it" in found["README.txt"]
    settings = {one["setting"]: one for one in json.loads(found["settings.json"])}
    assert settings["database"]["origin"] == "environment VGPUCTL_DATABASE_URL"
    assert {"states.json", "leases.json", "controllers.json", "restrictions.json", "README.txt"} <= set(found)


def test_names_are_replaced_when_that_is_asked(services: Services, tmp_path: Path) -> None:
    _fill(services)
    made, found = _bundle(services, tmp_path, is_anonymous=True)
    text = "".join([*found, *found.values()])
    assert [one for one in (HOST, ADDRESS, USER, TENANT, NAME, "corp.example", "db.example") if one in text] == []
    assert "hosts/host-" in "".join(found)
    assert {"host", "tenant", "user", "vm"} <= {one.kind for one in made.replaced}
    assert json.loads(found["failures.json"])["broken_vms"][0]["tenant"].startswith("tenant-")


def test_a_store_that_does_not_open_is_said_inside(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database at all" * 100)
    with _services(tmp_path, f"sqlite:///{tmp_path}/broken.db") as services:
        made, found = _bundle(services, tmp_path)
    assert any(one.startswith("store.json:") for one in made.problems)
    assert "store.json:" in found["README.txt"]
    assert {"versions.json", "settings.json", "inventory.json"} <= set(found)


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with _services(tmp_path) as services:
        made, _ = _bundle(services, tmp_path)
    assert any("there is no store" in one for one in made.problems)
    assert not (tmp_path / "store.db").exists()


def test_a_silent_host_is_said_inside_and_its_cached_facts_stay(services: Services, tmp_path: Path) -> None:
    _fill(services)
    (tmp_path / "inventory.yml").write_text(INVENTORY.replace(ADDRESS, "127.0.0.1"))
    made, found = _bundle(services, tmp_path, refresh=True, with_checks=True)
    assert [HOST in one for one in made.problems] == [True]
    assert f"hosts/{HOST}/facts.json" in found
    assert "seed-" not in "".join(made.problems)


def test_an_inventory_that_cannot_be_read_is_said_inside(tmp_path: Path) -> None:
    with _services(tmp_path) as services:
        (tmp_path / "inventory.yml").write_text("all: [")
        made, found = _bundle(services, tmp_path)
    assert any(one.startswith("inventory.json:") for one in made.problems)
    assert "settings.json" in found


def test_a_file_that_is_there_is_kept_without_force(services: Services, tmp_path: Path) -> None:
    (tmp_path / "bundle.tar.gz").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        _bundle(services, tmp_path)
    assert (tmp_path / "bundle.tar.gz").read_text() == "mine"
    _bundle(services, tmp_path, force=True)
    assert (tmp_path / "bundle.tar.gz").stat().st_mode & 0o777 == 0o600
