# SPDX-License-Identifier: Apache-2.0
"""The rows of test_gates.py about shares that go back to the pool: each way leads through the health gate."""

from tests.unit.uses_of_names import guarded

_GATE = "a share goes back to the pool after its end of use, its reset and its GPU's health were proven"

RETURNS = [
    guarded(
        f"{_GATE}: a lease ends there, or where no guest ever had the device, or nothing may be done on its host",
        "GONE",
        "model/lease.py",
        "store/leases.py:-",
        "store/leases.py:_faults",
        "store/leases.py:set_lease_share",
        "store/leases.py:set_lease_state",
        "usecases/share/health_gate.py:_end",
        "usecases/share/release.py:release_leases",
        "usecases/vm/build_vm.py:undo_of",
        "usecases/vm/start_vm.py:_settle",
        on="LeaseState",
    ),
    guarded(
        f"{_GATE}: leases of hosts on which nothing may be done",
        "release_leases",
        "usecases/share/release.py",
        "usecases/vm/delete_vm.py:remove_vm",
        "usecases/vm/delete_vm.py:_as_removed",
        "usecases/vm/move_vm.py:settle_on",
        "usecases/vm/resize_vm.py:_change_rows",
        "usecases/vm/live_move_end.py:change_host",
        "usecases/maintenance/evacuate_host.py:_give_up",
        "usecases/maintenance/forget_host.py:forget_host",
        "usecases/store/reconcile_store.py:_forget_vm",
    ),
    guarded(
        f"{_GATE}: a device is freed there alone",
        "release_device",
        "usecases/share/health_gate.py",
        "usecases/share/release.py:release_shares",
        "usecases/share/release.py:release_ended",
        "usecases/share/release.py:release_strays",
    ),
    guarded(
        f"{_GATE}: and proven by the same functions",
        "prove",
        "usecases/share/health_gate.py",
        "usecases/share/release.py:release_shares",
        "usecases/share/release.py:release_ended",
        "usecases/share/release.py:release_strays",
    ),
    guarded(
        f"{_GATE}: its steps",
        "plan_release",
        "planner/plan.py",
        "usecases/share/health_gate.py:release_device",
        "usecases/vm/resize_place.py:steps",
    ),
    guarded(
        f"{_GATE}: whoever has the agent change a host is known here",
        "apply",
        "hosts/agent_client.py",
        "usecases/share/health_gate.py:release_device",
        "usecases/share/health_gate.py:_bind_back",
        "usecases/share/health_gate.py:_with_rom",
        "usecases/share/shares.py:take_steps",
        "usecases/share/shares.py:build_shares",
        "usecases/share/shares.py:rehearse_steps",
        "usecases/share/partitions.py:settle",
        "usecases/telemetry/tuning_ways.py:_set_limit",  # a power limit, which no share has
        "usecases/telemetry/tuning_ways.py:_keep_limit",  # the same, at boot
        "usecases/layout/layout_run.py:_take_each",
        "usecases/layout/layout_run.py:_try_start_service",
        "usecases/layout/layout_run.py:_undo",
        "usecases/operate/over_promise.py:_stop",
        "usecases/network/functions.py:_take",  # a program of a tenant's network, which no share is
        "usecases/maintenance/gc.py:_remove_function",  # the same
        on="agent",
    ),
    guarded(
        f"{_GATE}: steps for a share build it, or take back one that no guest had",
        "take_steps",
        "usecases/share/shares.py",
        "usecases/share/restore_shares.py:restore_shares",
        "usecases/share/restore_shares.py:set_params",
        "usecases/share/partitions.py:activate_partition",
        "usecases/share/partitions.py:deactivate_partitions",
    ),
    guarded(
        f"{_GATE}: devices without a lease",
        "release_strays",
        "usecases/share/release.py",
        "usecases/maintenance/gc.py:_look",
        "usecases/layout/layout_run.py:_take_steps",
        "usecases/share/held_shares.py:release_held",
        "usecases/vm/live_move_end.py:release_source",
        "usecases/vm/live_move_end.py:settle_live_move",
    ),
    guarded(
        f"{_GATE}: cards of a domain without a VM",
        "release_cards_of",
        "usecases/share/release.py",
        "usecases/maintenance/gc.py:_undefine",
        "usecases/maintenance/uncordon_host.py:_end_stale_vms",
    ),
]
