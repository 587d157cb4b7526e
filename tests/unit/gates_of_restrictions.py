# SPDX-License-Identifier: Apache-2.0
"""The gates of cordoned, drained, fenced and quarantined hosts and GPUs: rows of the table in test_gates.py."""

from tests.unit.uses_of_names import guarded

RESTRICTIONS = [
    guarded(
        "one gate says which hosts and GPUs take no VM, and placing, kept shares and reservations ask it: the host",
        "refuse_closed_host",
        "sharing/gate.py",
        "node_config/dra.py:resource_slices",
        "scheduler/fleet_host.py:__init__",
        "scheduler/gpu_map.py:map_gpus",
        "scheduler/partition_states.py:_views",
        "scheduler/host_rules.py:refuse_host",
        "scheduler/what_if.py:_allowed_again",
        "usecases/host/adopt_host.py:_refuse_fenced",
        "usecases/host/list_gpus.py:_closed",
        "usecases/host/list_hosts.py:_completed",
        "usecases/kubernetes/export_dra.py:export_dra",
        "usecases/telemetry/fleet_view.py:host",
        "usecases/vm/start_vm.py:refuse_closed",
    ),
    guarded(
        "one gate says which hosts and GPUs take no VM, and placing, kept shares and reservations ask it: the GPU",
        "refuse_closed_gpu",
        "sharing/gate.py",
        "node_config/dra.py:resource_slices",
        "scheduler/gpu_by_facts.py:read_gpu",
        "scheduler/what_if.py:_allowed_again",
        "usecases/host/list_gpus.py:_closed",
    ),
    guarded(
        "a share that needs no placing is held against the rules of its host",
        "check_rules",
        "planner/plan.py",
        "usecases/placement/reservations.py:refuse_closed_shares",
    ),
    guarded(
        "two functions know all that the inventory and the store say of a host",
        "HostRules",
        "model/host_constraints.py",
        "model/placement.py:rules",
        "usecases/observed/capacities.py:rules_of",
        calls_only=True,
    ),
    guarded(
        "a finding about a GPU is noted with its event and its quarantine in one place",
        "restrict",
        "store/restrictions.py",
        "usecases/observed/gpu_health.py:quarantine_device",
        "usecases/maintenance/restricted.py:set_restriction",
    ),
]
