# SPDX-License-Identifier: Apache-2.0
"""The gates of placing: NUMA nodes, memory, what is known of a host. Rows of the table in test_gates.py."""

from tests.unit.uses_of_names import guarded

PLACING = [
    guarded(
        "huge pages that libvirt cannot give are left out of every placement by one function",
        "unmounted_sizes",
        "scheduler/host_cells.py",
        "scheduler/host_rules.py:_refuse_unmounted",
    ),
    guarded(
        "CPUs, memory and huge pages of NUMA nodes are chosen by the scheduler alone",
        "choose_cells",
        "scheduler/cell_choice.py",
        "scheduler/guest_place.py:choose_on",
        "scheduler/request_class.py:fit_on",
        "scheduler/host_rules.py:_refuse_cells",
    ),
    guarded(
        "a GPU is chosen only where the NUMA nodes take the VM",
        "has_cells",
        "scheduler/cell_choice.py",
        "scheduler/fleet.py:_choice_on",
        "scheduler/fleet.py:_hides",
        "scheduler/fleet_index.py:_price",
    ),
    guarded(
        "a VM counts where its domain is only when somebody else defined that domain",
        "numa_as_found",
        "scheduler/found_cells.py",
        "usecases/host/adopt_host.py:_vm",
    ),
    guarded(
        "a VM is placed on NUMA nodes by the fleet, or by the gate that counts what is promised of them",
        "give_numa",
        "scheduler/guest_place.py",
        "scheduler/place.py:place_again",
        "usecases/placement/reservations.py:placement_of",
        "usecases/share/cpu_pins.py:record_numa",
        "usecases/vm/move_vm.py:settle_on",
        "usecases/vm/resize_place.py:_numa",
    ),
    guarded(
        "the record of a VM's NUMA nodes changes under the host's generation, when the VM starts or is resized",
        "set_vm_numa",
        "store/vms.py",
        "usecases/vm/start_vm.py:_reserve_again",
        "usecases/share/cpu_pins.py:record_numa",
        "usecases/vm/resize_vm.py:_set",
        "usecases/vm/attach_gpu.py:_record",
        "usecases/vm/attach_gpu.py:_take_back",
    ),
    guarded(
        "what NUMA nodes have promised is counted in one place",
        "CellPromise",
        "model/placement.py",
        "scheduler/host_memory.py:frozen",
        calls_only=True,
    ),
    guarded(
        "one function knows all that placing must know of a host",
        "HostCapacity",
        "model/placement.py",
        "usecases/observed/capacities.py:capacity_of",
        calls_only=True,
    ),
    guarded(
        "what creates a VM leaves hosts that fail out and places again",
        "FailedHosts",
        "usecases/observed/failed_hosts.py",
        "usecases/vm/place_search.py:__init__",
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
        "usecases/placement/capacity.py:capacity",
        "usecases/tenant/onboard.py:require_hosts",
    ),
    guarded(
        "what a request names and nobody knows is refused by questions as by the run",
        "refuse_unknown_references",
        "usecases/placement/named_things.py",
        "usecases/vm/find_existing.py:_find",
    ),
]
