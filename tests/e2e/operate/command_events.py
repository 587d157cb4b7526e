# SPDX-License-Identifier: Apache-2.0
"""Every command of vgpuctl: how to run it, and the event that it leaves, or that it leaves none.

A new command needs a line in READING or a step in SCENARIO; tests/unit/test_gates.py fails without.
`{home}` and `{soon}` in arguments are a folder of the test and times of tomorrow.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vgpuctl.model.disk import InstallRequest
from vgpuctl.model.event_kind import EventKind
from vgpuctl.store.store import open_store

if TYPE_CHECKING:
    from tests.e2e.operate.test_events_of_commands import Scene

SIZE = "--tenant acme --memory 96MiB --vcpus 1"
ACME = "--tenant acme"
SUM = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Step:
    """One changing command of the scenario.

    kind, subject: of the event that it must leave. first: what else has to be done before. where: `main`, the store of
    the scenario; `owner`, the same as the owner of the database; `other` and `forgetful`, new stores that know the
    tenants only; `restored`, the copy that restore-store makes; or `postgresql`. is_refused: True if libvirt's test
    driver refuses it, so that the event is that of its beginning.
    """

    arguments: str
    kind: EventKind
    subject: str
    first: "Callable[[Scene], None] | None" = None
    where: str = "main"
    is_refused: bool = False

    @property
    def command(self) -> str:
        """The command's name."""
        return self.arguments.split()[0]


def _create_desk(scene: "Scene") -> None:
    scene.does(f"create-vm desk {SIZE} --network none --display vnc --host sim-002")


def _create_pools_of_clusters(scene: "Scene") -> None:
    scene.does(f"create-node-pool hpc {SIZE} --role slurm --max 2 --gpu A40-8Q --network none")
    scene.does(f"create-node-pool pods {SIZE} --role k3s --cluster k8s --max 2 --gpu A40-8Q --network none")


def _queue_two(scene: "Scene") -> None:
    """Fill the GPU of sim-001; two VMs wait for it."""
    scene.does(f"create-vm big {SIZE} --network none --gpu A40-48Q --host sim-001")
    for name in ("waits", "leaves"):
        scene.does(f"create-vm {name} {SIZE} --network none --gpu A40-48Q --host sim-001 --queue")


def _make_room(scene: "Scene") -> None:
    scene.does(f"delete-vm big {ACME} --yes --timeout 0")


def _stop_web(scene: "Scene") -> None:
    scene.does(f"stop-vm web {ACME} --timeout 0")


def _keep_disk(scene: "Scene") -> None:
    scene.does(f"create-vm kept {SIZE} --network none --disk 64MiB --host sim-002")
    scene.does(f"delete-vm kept {ACME} --yes --timeout 0 --keep-disk")


def _spread_two(scene: "Scene") -> None:
    """Take half of each GPU."""
    for name in ("left", "right"):
        scene.does(f"create-vm {name} {SIZE} --network none --gpu A40-24Q --policy spread")


def _delete_two(scene: "Scene") -> None:
    for name in ("left", "right"):
        scene.does(f"delete-vm {name} {ACME} --yes --timeout 0")


def _insert_medium(scene: "Scene") -> None:
    """Let a VM have a medium, whose image no simulated host has."""
    with open_store(scene.operators["owner"].database) as store, store.transaction() as session:
        vm = session.vm("acme", "web")
        assert vm is not None
        session.set_vm_request(vm.uuid, replace(vm.request, install=InstallRequest("setup")))


def _power_off(scene: "Scene") -> None:
    scene.power_off("sim-001", "acme.waits")


def _cut_off(scene: "Scene") -> None:
    scene.cut_off("sim-002")


def _connect_again(scene: "Scene") -> None:
    scene.connect_again("sim-002")


SCENARIO = (
    Step("check-hosts --snapshot --limit sim-002", EventKind.SNAPSHOT_TAKEN, "sim-002"),
    Step("apply-hosts", EventKind.LAYOUT_STEP_DONE, "sim-001"),
    # Tenants and pools
    Step("create-tenant acme", EventKind.TENANT_CREATED, "acme"),
    Step("onboard {home}/globex.yml", EventKind.QUOTA_SET, "globex"),
    Step("set-quota acme vms=20", EventKind.QUOTA_SET, "acme"),
    Step("create-host-pool fast --hosts sim-002", EventKind.HOST_POOL_SET, "fast"),
    Step("grant-host-pool fast acme", EventKind.HOST_POOL_GRANTED, "fast"),
    Step("delete-host-pool fast --yes", EventKind.HOST_POOL_DELETED, "fast"),
    # Licences
    Step("create-licence-pool spare --edition vapps --seats 1", EventKind.LICENCE_POOL_CREATED, "spare"),
    Step("set-licence-pool spare --seats 2", EventKind.LICENCE_POOL_CHANGED, "spare"),
    Step("delete-licence-pool spare --yes", EventKind.LICENCE_POOL_DELETED, "spare"),
    # Node pools; the nodes wait, since no controller runs
    Step(
        f"create-node-pool gpu {ACME} --role k3s --max 3 --gpu A40-8Q --memory 96MiB --vcpus 1 --network none",
        EventKind.NODE_POOL_CREATED,
        "acme/gpu",
    ),
    Step(f"set-node-pool gpu {ACME} --max 4", EventKind.NODE_POOL_CHANGED, "acme/gpu"),
    Step(f"scale-node-pool gpu 2 {ACME}", EventKind.NODE_WANTED, "acme/gpu-002"),
    Step(f"delete-node-pool gpu {ACME} --yes", EventKind.NODE_POOL_DELETED, "acme/gpu"),
    # Slurm's programs
    Step(
        f"slurm-resume hpc-[001-002] {ACME}",
        EventKind.NODE_WANTED,
        "acme/hpc-002",
        first=_create_pools_of_clusters,
    ),
    Step(f"slurm-suspend hpc-001 {ACME}", EventKind.NODE_LET_GO, "acme/hpc-001"),
    Step(f"slurm-fail hpc-002 {ACME}", EventKind.NODE_LET_GO, "acme/hpc-002"),
    # Images, networks and OVN
    Step(f"register-image debian --path /img --format raw --checksum {SUM}", EventKind.IMAGE_REGISTERED, "debian"),
    Step("delete-image debian --yes", EventKind.IMAGE_DELETED, "debian"),
    Step("create-certificate central --folder {home}/authority", EventKind.CERTIFICATE_CREATED, "central"),
    Step(
        "create-external-network internet --cidr 203.0.113.0/24 --gateway 203.0.113.1 "
        "--pool 203.0.113.10-203.0.113.99 --physical-network provider",
        EventKind.EXTERNAL_NETWORK_CREATED,
        "internet",
    ),
    Step(f"create-network front {ACME} --cidr 10.0.0.0/24", EventKind.NETWORK_CREATED, "acme/front"),
    Step(f"create-address-group partners {ACME}", EventKind.ADDRESS_GROUP_CREATED, "acme/partners"),
    Step(
        f"set-address-group partners --add-address 192.0.2.0/24 {ACME}",
        EventKind.ADDRESS_GROUP_CHANGED,
        "acme/partners",
    ),
    Step(f"delete-address-group partners {ACME} --yes", EventKind.ADDRESS_GROUP_DELETED, "acme/partners"),
    Step(f"create-egress-policy deny {ACME}", EventKind.EGRESS_POLICY_CREATED, "acme/egress-policy"),
    Step(f"delete-egress-policy {ACME} --yes", EventKind.EGRESS_POLICY_DELETED, "acme/egress-policy"),
    Step(f"create-security-group web {ACME}", EventKind.SECURITY_GROUP_CREATED, "acme/web"),
    Step(f"create-security-rule web tcp:80 {ACME}", EventKind.SECURITY_GROUP_CHANGED, "acme/web"),
    Step(f"delete-security-rule web tcp:80 {ACME} --yes", EventKind.SECURITY_GROUP_CHANGED, "acme/web"),
    Step(f"delete-security-group web {ACME} --yes", EventKind.SECURITY_GROUP_DELETED, "acme/web"),
    Step(f"create-gateway internet {ACME}", EventKind.GATEWAY_CREATED, "acme/gateway"),
    Step(f"create-floating-ip web {ACME}", EventKind.FLOATING_IP_CREATED, "acme/web"),
    Step(f"delete-floating-ip web {ACME} --yes", EventKind.FLOATING_IP_DELETED, "acme/web"),
    Step(f"create-port-forward tcp/80 --vm web {ACME}", EventKind.PORT_FORWARD_CREATED, "acme/tcp/80"),
    Step(f"delete-port-forward tcp/80 {ACME} --yes", EventKind.PORT_FORWARD_DELETED, "acme/tcp/80"),
    Step(
        f"create-vpn-connection office --network front --peer-prefix 192.168.10.0/24 {ACME}",
        EventKind.VPN_CONNECTION_CREATED,
        "acme/office",
    ),
    Step(f"set-vpn-connection office --keepalive 25 {ACME}", EventKind.VPN_CONNECTION_CHANGED, "acme/office"),
    Step(f"rotate-vpn-keys office {ACME}", EventKind.VPN_KEYS_ROTATED, "acme/office"),
    Step(f"delete-vpn-connection office {ACME} --yes", EventKind.VPN_CONNECTION_DELETED, "acme/office"),
    Step(f"delete-gateway {ACME} --yes", EventKind.GATEWAY_DELETED, "acme/gateway"),
    Step(
        f"create-load-balancer shop --network front --port 80 --vm web {ACME}",
        EventKind.LOAD_BALANCER_CREATED,
        "acme/shop",
    ),
    Step(f"set-load-balancer shop --interval 9 {ACME}", EventKind.LOAD_BALANCER_CHANGED, "acme/shop"),
    Step(f"delete-load-balancer shop {ACME} --yes", EventKind.LOAD_BALANCER_DELETED, "acme/shop"),
    Step(f"create-route 10.66.0.0/16 --via web {ACME}", EventKind.ROUTE_CREATED, "acme/10.66.0.0/16"),
    Step(f"set-route 10.66.0.0/16 --add-via db {ACME}", EventKind.ROUTE_CHANGED, "acme/10.66.0.0/16"),
    Step(f"delete-route 10.66.0.0/16 {ACME} --yes", EventKind.ROUTE_DELETED, "acme/10.66.0.0/16"),
    Step(f"create-peering globex {ACME}", EventKind.PEERING_CREATED, "acme/globex"),
    Step(f"delete-peering globex {ACME} --yes", EventKind.PEERING_DELETED, "acme/globex"),
    Step(
        f"create-direct-connect front --physical-network provider --vlan 42 {ACME}",
        EventKind.DIRECT_CONNECT_CREATED,
        "acme/front",
    ),
    Step(f"delete-direct-connect front {ACME} --yes", EventKind.DIRECT_CONNECT_DELETED, "acme/front"),
    Step(f"delete-network front {ACME} --yes", EventKind.NETWORK_DELETED, "acme/front"),
    Step("delete-external-network internet --yes", EventKind.EXTERNAL_NETWORK_DELETED, "internet"),
    # GPUs
    Step(
        "defrag --for A40-48Q --apply --yes --allow-cold --shutdown-timeout 0",
        EventKind.MOVES_ENDED,
        "defrag",
        _spread_two,
    ),
    Step("cordon-host sim-002 --reason fans", EventKind.HOST_CORDONED, "sim-002", _delete_two),
    Step("drain-host sim-002 --reason fans --yes", EventKind.HOST_DRAINED, "sim-002"),
    Step("uncordon-host sim-002", EventKind.HOST_UNCORDONED, "sim-002"),
    Step("quarantine-gpu sim-002 0000:41:00.0 --reason hot", EventKind.GPU_QUARANTINED, "sim-002 0000:41:00.0"),
    Step("unquarantine-gpu sim-002 0000:41:00.0 --reason cooled", EventKind.GPU_RELEASED, "sim-002 0000:41:00.0"),
    Step("evacuate-host sim-002 --fenced --reason power --yes", EventKind.HOST_FENCED, "sim-002", _cut_off),
    Step("forget-host sim-002 --fenced --reason power --yes", EventKind.HOST_FORGOTTEN, "sim-002"),
    Step("uncordon-host sim-002 --force", EventKind.HOST_TRUSTED, "sim-002", _connect_again),
    Step(
        f"reserve night {ACME} --gpu A40-8Q --from {{soon}}T01:00 --until {{soon}}T02:00",
        EventKind.RESERVATION_CREATED,
        "acme/night",
    ),
    Step(f"cancel-reservation night {ACME} --yes", EventKind.RESERVATION_CANCELLED, "acme/night"),
    # VMs and the queue
    Step(f"create-vm web {SIZE} --network none --gpu A40-8Q", EventKind.VM_CREATED, "acme/web"),
    Step(f"stop-vm web {ACME} --timeout 0", EventKind.VM_STOPPED, "acme/web"),
    Step(f"attach-disk web data,size=32MiB {ACME}", EventKind.DISK_ATTACHED, "acme/web"),
    Step(f"create-snapshot web old {ACME}", EventKind.DISKS_SNAPSHOT, "acme/web"),
    Step(f"start-vm web {ACME}", EventKind.VM_STARTED, "acme/web"),
    Step(f"delete-snapshot web old {ACME} --yes", EventKind.DISKS_MERGING, "acme/web", is_refused=True),
    Step(f"revert-snapshot web old {ACME} --yes", EventKind.DISKS_REVERTED, "acme/web", _stop_web),
    Step(f"resize-disk web 48MiB --disk data {ACME}", EventKind.DISK_RESIZED, "acme/web", is_refused=True),
    Step(f"detach-disk web data {ACME}", EventKind.DISK_DETACHED, "acme/web"),
    Step(f"delete-disk data {ACME} --yes", EventKind.VOLUME_FORGOTTEN, "acme/web"),
    Step(f"eject-iso web {ACME}", EventKind.MEDIA_EJECTED, "acme/web", _insert_medium),
    Step(f"start-vm web {ACME}", EventKind.VM_STARTED, "acme/web"),
    Step(f"suspend-vm web {ACME}", EventKind.VM_SUSPENDED, "acme/web"),
    Step(f"resume-vm web {ACME}", EventKind.VM_STARTED, "acme/web"),
    Step(f"restart-vm web --reset {ACME}", EventKind.VM_RESET, "acme/web"),
    Step(f"attach-nic web default {ACME}", EventKind.NIC_ATTACHED, "acme/web"),
    Step(f"detach-nic web default {ACME} --last --timeout 0", EventKind.NIC_DETACHING, "acme/web"),
    Step(f"stop-vm web --force {ACME}", EventKind.VM_STOPPED, "acme/web"),
    Step(f"label-vm web {ACME} app=web", EventKind.VM_LABELLED, "acme/web"),
    Step(f"rename-vm web shop {ACME}", EventKind.VM_RENAMED, "acme/shop"),
    Step(f"rename-vm shop web {ACME}", EventKind.VM_RENAMED, "acme/web"),
    Step(f"restart-vm web {ACME} --timeout 0", EventKind.VM_STARTED, "acme/web"),
    Step(f"check-vm web {ACME}", EventKind.PROMISE_CHECKED, "acme/web"),
    Step(f"move-vm web {ACME} --shutdown-timeout 0", EventKind.VM_MOVED, "acme/web"),
    Step(f"resize-vm web {ACME} --vcpus 2 --restart --shutdown-timeout 0", EventKind.VM_RESIZED, "acme/web"),
    Step(f"attach-gpu web A40-8Q {ACME}", EventKind.GPU_ATTACHED, "acme/web"),
    Step(f"detach-gpu web 1 {ACME}", EventKind.GPU_DETACHED, "acme/web"),
    Step(f"restore-vm kept {ACME} --no-start", EventKind.VM_RESTORED, "acme/kept", first=_keep_disk),
    Step(f"delete-vm web {ACME} --yes --timeout 0", EventKind.VM_DELETED, "acme/web"),
    Step(f"view desk {ACME} --web --timeout 1", EventKind.VM_VIEWED, "acme/desk", _create_desk),
    Step(f"screenshot desk {{home}}/desk.png {ACME}", EventKind.VM_VIEWED, "acme/desk"),
    Step(f"set-console desk none {ACME}", EventKind.VM_CONSOLE_SET, "acme/desk"),
    Step("set-queue priority", EventKind.QUEUE_SET, "queue"),
    Step(f"leave-queue leaves {ACME} --yes", EventKind.VM_LEFT_QUEUE, "acme/leaves", _queue_two),
    Step("controller --once --shutdown-timeout 0", EventKind.VM_CREATED, "acme/waits", _make_room),
    Step("adopt-host sim-001 --vm acme.waits=acme/waits", EventKind.VM_ADOPTED, "acme/waits", where="other"),
    Step("repair", EventKind.VM_REPAIRED, "acme/waits", _power_off),
    # The store
    Step("backup-store {home}/backup", EventKind.STORE_BACKED_UP, "store", where="owner"),
    Step("restore-store {home}/backup --yes", EventKind.STORE_RESTORED, "store", where="restored"),
    Step("reconcile-store --done", EventKind.STORE_RECONCILED, "store", where="restored"),
    Step("grant-store --role walker --as operator", EventKind.ROLE_GRANTED, "walker", where="postgresql"),
    # Domains of one store are garbage for another.
    Step("gc --yes --kind domain", EventKind.GARBAGE_DELETED, "acme.waits", where="forgetful"),
    Step("offboard-tenant acme --yes --timeout 0", EventKind.TENANT_OFFBOARDED, "acme"),
    Step("prune-events --older-than 0.001s --yes", EventKind.EVENTS_PRUNED, "events", where="owner"),
)

READING = {
    "show-inventory": "",
    "list-hosts": "",
    "inspect-host": "sim-001",
    "support-bundle": "sim-001 --with-texts --to {home}/bundle.tar.gz",
    "record-host": "sim-001 --to {home}/sim-001.capture.json.gz",
    "list-gpus": "",
    "list-profiles": "",
    "list-partitions": "",
    "show-gpu": "sim-001 0000:41:00.0",
    "check-hosts": "",
    "plan-hosts": "",
    "plan-upgrade": "--driver 595.45.04",
    "import-layout": "--from-mig-parted {home}/mig.yml",
    "export layout": "sim-001 --for mdevctl",
    "export nova": "",
    "export proxmox": "",
    "export kubevirt": "",
    "list-vms": "",
    "show-vm": f"waits {ACME}",
    "wait": f"waits {ACME} --for placed",
    "console": f"waits {ACME} --log",
    "render-vm": f"new {SIZE} --network none",
    "list-images": "",
    "list-disks": "",
    "list-snapshots": f"waits {ACME}",
    "capacity": "--gpu A40-8Q",
    "fit-performance": "--dry-run",
    "advise": "",
    "rebalance": "",
    "predict": "matmul",
    "explain-vm": f"new {SIZE} --network none --gpu A40-8Q",
    "explain-network": f"waits outside tcp/443 {ACME}",
    "serve exporter": "--once",
    "serve extender": "--print-config https://extender.example:9638/v1",
    "list-targets": "",
    "export monitoring": "{home}/monitoring",
    "serve web": "--print /",
    "list-queue": "",
    "completion": "bash",
    "help": "networks",
    "list-contexts": "",
    "list-controllers": "",
    "show-config": "",
    "use-context": "lab",
    "allow-config": "--forget {home}",
    "list-reservations": "",
    "list-tenants": "",
    "show-tenant": "acme",
    "show-host-pool": "closed",
    "show-reservation": f"none {ACME}",
    "show-usage": "",
    "report": "",
    "list-host-pools": "",
    "list-licence-pools": "",
    "list-node-pools": "",
    "export dra": "",
    "export slurm": "acme",
    "render-node": "acme/hpc",
    "serve autoscaler": "--tenant acme --cluster k8s --print",
    "map": "",
    "top": "--once",
    "list-networks": "",
    "show-network": f"front {ACME}",
    "show-external-network": "internet",
    "show-load-balancer": f"shop {ACME}",
    "list-external-networks": "",
    "list-security-rules": "",
    "list-vpc-objects": "",
    "list-events": "",
    "show-schema": "vm",
}
"""Commands that leave no event, with arguments. Some end with an error or a finding; they leave none then either."""

CHANGING = frozenset(step.command for step in SCENARIO)
