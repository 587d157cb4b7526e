# SPDX-License-Identifier: Apache-2.0
"""Each safety rule has one gate, and this file lists every path that may reach what the gate guards.

A row names a primitive that could break the rule and every function that may call it. The code is read, not run:
a new caller fails the test until somebody has decided that it passes through the gate, and so does a row that no
longer matches anything. Calls are found by name, `NAME(…)` or `….NAME(…)`, also when the name is only handed on.
"""

import ast

import pytest

from tests.e2e.operate.command_events import CHANGING, READING
from tests.unit.gates_of_guests import GUESTS
from tests.unit.gates_of_logins import LOGINS
from tests.unit.gates_of_preemption import PREEMPTION
from tests.unit.gates_of_restrictions import RESTRICTIONS
from tests.unit.gates_of_returns import RETURNS
from tests.unit.gates_of_volumes import VOLUMES
from tests.unit.uses_of_names import PACKAGE, Guarded, guarded, uses
from vgpuctl.cli.contents import COMMANDS

GATES = [
    *PREEMPTION,
    *RESTRICTIONS,
    *RETURNS,
    *LOGINS,
    *VOLUMES,
    *GUESTS,
    guarded(
        "a domain's power is taken only from a domain with the VM's UUID",
        "destroy",
        "guests/libvirtd/hypervisor.py",
        "usecases/domain/guest.py:remove_domain",
        "usecases/vm/start_vm.py:_start",
        "usecases/vm/stop_vm.py:stop_vm",
        on="hypervisor",
    ),
    guarded(
        "a guest is shut down only in a domain with the VM's UUID",
        "shutdown",
        "guests/libvirtd/hypervisor.py",
        "usecases/vm/stop_vm.py:stop_vm",
        "usecases/vm/delete_vm.py:_shut_down",
        on="hypervisor",
    ),
    guarded(
        "huge pages that libvirt cannot give are left out of every placement by one function",
        "unmounted_sizes",
        "scheduler/host_nodes.py",
        "scheduler/host_rules.py:_refuse_unmounted",
    ),
    guarded(
        "hosts are looked at without the agent for check-hosts --prepare alone",
        "probe",
        "hosts/preparation_probe.py",
        "usecases/host/prepare_hosts.py:_look_at",
    ),
    guarded(
        "a domain is defined after its name was found free or its own",
        "define",
        "guests/libvirtd/hypervisor.py",
        "usecases/domain/guest.py:define",
        on="hypervisor",
    ),
    guarded(
        "side effects are rolled back by the stack that no signal interrupts, and rows are settled with it",
        "Undo",
        "usecases/support/undo.py",
        "usecases/vm/create_vm.py:-",
        "usecases/vm/build_vm.py:undo_of",
        "usecases/vm/build_vm.py:build_vm",
        "usecases/vm/build_vm.py:_connect",
        "usecases/vm/start_vm.py:start_vm",
        "usecases/vm/start_vm.py:_start_one",
        "usecases/vm/start_vm.py:_start",
        "usecases/vm/start_vm.py:_settle",
        "usecases/vm/attach_gpu.py:_attach",
        "usecases/vm/preempt_vms.py:_notice",
        "usecases/vm/attach_nic.py:_add",
        "usecases/vm/rename_vm.py:rename_vm",
        "usecases/disk/kept_disks.py:take_kept",
        "usecases/share/shares.py:build_shares",
        "usecases/image/volumes.py:make_volumes",
        "usecases/disk/attach_disk.py:_add",
        "usecases/disk/attach_disk.py:_attach",
        "usecases/disk/attach_disk.py:_make",
        "usecases/disk/create_snapshot.py:_take",
        "usecases/disk/resize_disk.py:_grow",
    ),
    guarded(
        "rows of a VM are forgotten only after a complete rollback or deletion",
        "delete_vm",
        "store/vms.py",
        "usecases/vm/build_vm.py:undo_of",
        "usecases/vm/delete_vm.py:remove_vm",
        "usecases/store/reconcile_store.py:_forget_vm",
        on="session",
    ),
    guarded(
        "outside of delete-vm a VM is removed only where an interrupted run is repaired",
        "remove_vm",
        "usecases/vm/delete_vm.py",
        "usecases/operate/repair.py:_diagnose",
    ),
    guarded(
        "devices are promised in the store under the host's generation before anything is built",
        "reserve",
        "store/leases.py",
        "usecases/vm/create_vm.py:_reserve",
        "usecases/vm/start_vm.py:_reserve_again",
        "usecases/vm/move_vm.py:settle_on",
        "usecases/vm/resize_vm.py:_change_rows",
        "usecases/vm/resize_vm.py:_rows_back",
        "usecases/vm/attach_gpu.py:_record",
        "usecases/host/adopt_host.py:_save",
        on="session",
    ),
    *(
        guarded(
            "the boot unit reaches a host only through the agent's call that has systemd verify it",
            name,
            file,
            "usecases/layout/layout_run.py:_install_boot",
        )
        for name, file in (("install_boot", "hosts/agent_client.py"), ("render_boot_unit", "guests/boot_unit.py"))
    ),
    guarded(
        "the row of a VM goes with its place in the queue",
        "delete_vm",
        "store/vms.py",
        "usecases/vm/delete_vm.py:remove_vm",
        "usecases/vm/build_vm.py:undo_of",
        "usecases/store/reconcile_store.py:_forget_vm",
        on="session",
    ),
    guarded(
        "nobody waits in the queue for the start of a VM that does not exist",
        "join_queue",
        "store/queue.py",
        "usecases/placement/queue_entries.py:wait_for_turn",
        "usecases/vm/preempt_vms.py:_requeue",
    ),
    guarded(
        "an entry leaves the queue while no controller serves it, or by the hand of that controller",
        "end_entry",
        "store/queue.py",
        "store/claims.py:claim_by_operation",
    ),
    guarded(
        "a declared GPU serves only what its layout says: every offer passes through sharing/offers.py:ask",
        "offers",
        "sharing/kind.py",
        "sharing/offers.py:ask",
        on="kind",
    ),
    guarded(
        "placing and the check right before building ask the same gate of the declared layout",
        "refuse_use",
        "sharing/declared.py",
        "sharing/offers.py:ask",
        "sharing/passthrough.py:refuse_declared",
        "sharing/plain_vf.py:refuse_declared",
        "sharing/vgpu.py:refuse_declared",
    ),
    guarded(
        "a device is held against its layout again on facts read right before it is built or started",
        "check_share",
        "planner/plan.py",
        "usecases/share/shares.py:check_leases",
    ),
    guarded(
        "a VM is built with checked devices only",
        "build_shares",
        "usecases/share/shares.py",
        "usecases/vm/build_vm.py:build_vm",
        "usecases/vm/start_vm.py:_start",
        "usecases/vm/attach_gpu.py:_attach",
    ),
    guarded(
        "a device that a stopped VM kept is held against its layout before it is made again",
        "refuse_kept",
        "usecases/share/shares.py",
        "usecases/share/restore_shares.py:restore_shares",
    ),
    guarded(
        "a device that a stopped VM kept is held against layout, card and guest driver before the VM starts",
        "refuse_unsuitable",
        "usecases/share/shares.py",
        "usecases/vm/start_vm.py:_start",
        "usecases/vm/attach_gpu.py:_record",
    ),
    guarded(
        "a card that the host shows its console on is given away only when it is declared for that",
        "refuse_display",
        "sharing/declared.py",
        "sharing/passthrough.py:_refuse_display",
        "sharing/passthrough.py:refuse_declared",
    ),
    guarded(
        "what shares an IOMMU group with a card is judged by the gate of whole cards",
        "strangers_in_group",
        "sharing/occupancy.py",
        "sharing/whole_card.py:_not_isolated",
    ),
    guarded(
        "one gate says what keeps a card from being given away as a whole",
        "find_obstacle",
        "sharing/whole_card.py",
        "scheduler/gpu_reading.py:read_gpu",
        "sharing/passthrough.py:check",
        "sharing/passthrough.py:check_kept",
    ),
    guarded(
        "CPUs, memory and huge pages of NUMA nodes are chosen by the scheduler alone",
        "choose_cells",
        "scheduler/node_choice.py",
        "scheduler/guest_place.py:choose_on",
        "scheduler/request_class.py:fit_on",
        "scheduler/host_rules.py:_refuse_nodes",
    ),
    guarded(
        "a GPU is chosen only where the NUMA nodes take the VM",
        "has_cells",
        "scheduler/node_choice.py",
        "scheduler/fleet.py:_choice_on",
        "scheduler/fleet.py:_hides",
        "scheduler/fleet_index.py:_price",
    ),
    guarded(
        "a VM counts where its domain is only when somebody else defined that domain",
        "nodes_as_found",
        "scheduler/found_nodes.py",
        "usecases/host/adopt_host.py:_vm",
    ),
    guarded(
        "a VM is placed on NUMA nodes by the fleet, or by the gate that counts what is promised of them",
        "give_nodes",
        "scheduler/guest_place.py",
        "scheduler/place.py:place_again",
        "usecases/placement/reservations.py:placement_of",
        "usecases/vm/start_vm.py:_record_nodes",
        "usecases/vm/move_vm.py:settle_on",
        "usecases/vm/resize_place.py:_nodes",
    ),
    guarded(
        "the record of a VM's NUMA nodes changes under the host's generation, when the VM starts or is resized",
        "set_vm_nodes",
        "store/vms.py",
        "usecases/vm/start_vm.py:_reserve_again",
        "usecases/vm/start_vm.py:_record_nodes",
        "usecases/vm/resize_vm.py:_set",
        "usecases/vm/attach_gpu.py:_record",
        "usecases/vm/attach_gpu.py:_take_back",
    ),
    guarded(
        "a VM starts only after others were kept off its CPUs",
        "start_domain",
        "usecases/share/quarantine.py",
        "usecases/vm/build_vm.py:build_vm",
        "usecases/vm/start_vm.py:_start",
    ),
    guarded(
        "a VF that QEMU cannot open at a VM's start goes into quarantine",
        "start",
        "guests/libvirtd/hypervisor.py",
        "usecases/share/quarantine.py:start_domain",
        on="hypervisor",
    ),
    guarded(
        "what NUMA nodes have promised is counted in one place",
        "NodePromise",
        "model/placement.py",
        "scheduler/host_memory.py:frozen",
        calls_only=True,
    ),
    guarded(
        "one function knows all that placing must know of a host",
        "HostCapacity",
        "model/placement.py",
        "usecases/support/capacities.py:capacity_of",
        calls_only=True,
    ),
    guarded(
        "what creates a VM leaves hosts that fail out and places again",
        "FailedHosts",
        "usecases/support/failed_hosts.py",
        "usecases/vm/place_search.py:__init__",
    ),
    guarded(
        "a request reaches a file of a host only by a verified image of the catalogue",
        "HostImages",
        "model/image.py",
        "usecases/image/image_gate.py:images_on",
        "usecases/image/image_gate.py:images_again",
        calls_only=True,
    ),
    guarded(
        "a VM is made from images that are verified on its host",
        "images_on",
        "usecases/image/image_gate.py",
        "usecases/vm/build_vm.py:plan_vm",
        "usecases/vm/build_vm.py:build_vm",
        "usecases/vm/move_volumes.py:plan_volumes",
    ),
    guarded(
        "requests with unregistered images are refused before anything is done",
        "refuse_unregistered",
        "usecases/image/image_gate.py",
        "usecases/vm/find_existing.py:_find",
        "usecases/tenant/onboard.py:onboard",
    ),
    guarded(
        "what only OVN can make is refused by name where OVN was not named (refuse_without_ovn)",
        "set_object",
        "usecases/network/vpc_addresses.py",
        "usecases/network/vpc_changes.py:_keep",
    ),
    guarded(
        "what only OVN can make is refused by name where OVN was not named (refuse_without_ovn)",
        "set_vpc_object",
        "store/vpcs.py",
        "usecases/network/vpc_addresses.py:set_object",
        "usecases/network/vpc_changes.py:_keep",
    ),
    guarded(
        "what only OVN can make is refused by name where OVN was not named",
        "refuse_without_ovn",
        "usecases/network/network_backends.py",
        "usecases/network/vpc_changes.py:_keep",
        "usecases/network/create_external_network.py:create_external_network",
        "usecases/tenant/onboard.py:onboard",
    ),
    guarded(
        "quotas of a tenant that is there change by set-quota and its file alone",
        "set_quotas",
        "store/quotas.py",
        "usecases/tenant/set_quota.py:record_quotas",
        on="session",
    ),
    guarded(
        "what libvirt answers of many VMs is recorded with its time",
        "states",
        "guests/libvirtd/domain_reader.py",
        "usecases/support/observations.py:read_domains",
        "usecases/operate/watch_hosts.py:_domains",
        on="hypervisor",
    ),
    guarded(
        "the content of a secret goes into a VM's seed or is encrypted; of a licence token the claims are read",
        "reveal",
        "model/secret_text.py",
        "guests/seed/image.py:_cloud_init_files",
        "guests/seed/linux_setup.py:linux_setup",
        "guests/seed/network.py:network_document",
        "guests/seed/windows_setup.py:windows_user_data",
        "guests/seed/windows_setup.py:windows_setup",
        "store/licences.py:set_licence_token",
        "store/sealed.py:documents_of",
        "usecases/support/licences.py:token_claims",
        "model/texts.py:texts_of",
    ),
    guarded(
        "a secret that a tenant's file names is read beside it or in folders of the operator",
        "SecretFiles",
        "specs/secret_file.py",
        "specs/tenant.py:read_tenant_file",
        "usecases/licence/create_licence_pool.py:read_token_file",
        calls_only=True,
    ),
    guarded(
        "readings are kept in the store by a gate that only warns where the store cannot be written",
        "keep_reading",
        "usecases/support/readings.py",
        "usecases/support/gpu_health.py:_look_at",
        "usecases/support/observations.py:_keep",
    ),
    guarded(
        "facts are saved together with what was observed in them",
        "save_facts",
        "store/hosts.py",
        "usecases/support/observations.py:_facts_change",
        on="session",
    ),
    guarded(
        "facts are recorded by commands that change the host, and by the gate of readings (keep_reading)",
        "note_facts",
        "usecases/support/observations.py",
        "usecases/vm/start_vm.py:_start",
        "usecases/layout/layout_run.py:_take_rounds",
        "usecases/share/release.py:remember_facts",
        "usecases/host/adopt_host.py:_save",
        "usecases/vm/build_vm.py:build_vm",
        "usecases/share/restore_shares.py:restore_shares",
    ),
    guarded(
        "one renderer of refusals",
        "group_refusals",
        "scheduler/refusals.py",
        "cli/placement/explain_vm.py:_show_groups",
    ),
    guarded(
        "a host that no inventory has is refused before any host is read",
        "refuse_unknown_host",
        "usecases/placement/usable_hosts.py",
        "usecases/placement/explain_vm.py:explain_vm",
    ),
]


def _callers(guarded: Guarded) -> set[str]:
    return {
        use.place
        for use in uses()
        if use.name == guarded.name
        and use.on.endswith(guarded.on)
        and (use.is_call or not guarded.calls_only)
        and not use.place.startswith(f"{guarded.owner}:")
    }


@pytest.mark.parametrize("guarded", GATES, ids=lambda one: f"{one.name}: {one.rule}")
def test_only_the_gate_reaches_what_it_guards(guarded: Guarded) -> None:
    found = _callers(guarded)
    bypassing = sorted(found - guarded.callers)
    assert not bypassing, f"{guarded.rule}: {guarded.name} is used by {', '.join(bypassing)}, past the gate"
    stale = sorted(guarded.callers - found)
    assert not stale, f"{guarded.rule}: {', '.join(stale)} no longer uses {guarded.name}; take it out of the table"


@pytest.mark.parametrize("guarded", GATES, ids=lambda one: f"{one.name}: {one.rule}")
def test_what_is_guarded_is_there(guarded: Guarded) -> None:
    tree = ast.parse((PACKAGE / guarded.owner).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    assert guarded.name in defined, f"{guarded.owner} defines no {guarded.name}"


def test_every_command_says_whether_it_leaves_an_event() -> None:
    """tests/e2e/operate/test_events_of_commands.py runs them all: a changing one leaves its event, others none."""
    unknown = COMMANDS.keys() - CHANGING - READING.keys()
    assert not unknown, f"add a step or a line to tests/e2e/operate/command_events.py for {sorted(unknown)}"
    assert (CHANGING | READING.keys()) <= COMMANDS.keys()
