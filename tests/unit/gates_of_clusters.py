# SPDX-License-Identifier: Apache-2.0
"""Gates of nodes of tenants' clusters: a cluster is told before the VM of its node goes."""

from tests.unit.uses_of_names import guarded

CLUSTERS = [
    guarded(
        "a guest is reset after the cluster of its node was told",
        "reset",
        "guests/libvirtd/hypervisor.py",
        "usecases/vm/reset_vm.py:reset_vm",
        on="hypervisor",
    ),
    guarded(
        "a domain is removed after the cluster of its node was told",
        "remove_domain",
        "usecases/domain/guest.py",
        "usecases/maintenance/uncordon_host.py:_end_stale_vms",
        "usecases/vm/build_vm.py:build_vm",
        "usecases/vm/delete_vm.py:remove_vm",
        "usecases/vm/move_vm.py:_relocate",
        "usecases/vm/live_move_end.py:release_source",
        "usecases/vm/live_move_end.py:go_on",
        on="guest",
    ),
]

TELLERS = {
    "usecases/vm/stop_vm.py:_end_guest": "usecases/vm/stop_vm.py:_leave_and_end",
    "usecases/vm/delete_vm.py:_shut_down": "usecases/vm/delete_vm.py:delete_vm",
    "usecases/vm/reset_vm.py:reset_vm": "usecases/vm/reset_vm.py:reset_vm",
    # It has told the cluster when the domain runs still: the deletion that was cut short had, or its VM has no node.
    "usecases/vm/delete_vm.py:remove_vm": "usecases/vm/delete_vm.py:delete_vm",
    "usecases/vm/move_vm.py:_relocate": "usecases/vm/stop_vm.py:_leave_and_end",
    "usecases/maintenance/uncordon_host.py:_end_stale_vms": "usecases/maintenance/evacuate_host.py:_evacuate",
}
"""Who ends a guest (`file:function`), and who has told its cluster before."""

NOT_JOINED = {
    "usecases/domain/guest.py:remove_domain",
    "usecases/vm/build_vm.py:build_vm",
    "usecases/vm/start_vm.py:_may_start",
    "usecases/vm/live_move_end.py:release_source",
    "usecases/vm/live_move_end.py:go_on",
}
"""Those that need not: a rollback ends a guest that has just started; remove_domain is what the others call; a live
move ends no guest, it removes what is off on the host where the VM is not."""
