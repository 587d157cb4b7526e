# SPDX-License-Identifier: Apache-2.0
"""The gates of volumes: rows of the table in test_gates.py."""

from tests.unit.uses_of_names import guarded

VOLUMES = [
    *(
        guarded(
            "a volume is recorded in the store before libvirt creates it, and never taken over",
            name,
            "guests/storage.py",
            f"usecases/vm/volumes.py:{caller}",
            on="storage",
        )
        for name, caller in (
            ("create_disk", "_disk_maker"),
            ("create_overlay", "_disk_maker"),
            ("create_image", "_make_seed"),
        )
    ),
    guarded(
        "a volume is deleted only when the store records it and libvirt shows the recorded one",
        "delete_volume",
        "guests/storage.py",
        "usecases/vm/volumes.py:_remove",
    ),
    guarded(
        "a volume is recorded by the gate that creates it",
        "intend_volume",
        "store/volumes.py",
        "usecases/vm/volumes.py:make_volume",
    ),
    guarded(
        "a volume is handed over to another host only when its pool was proven to be shared, with the VM's row",
        "hand_over_volume",
        "store/volumes.py",
        "usecases/vm/move_volumes.py:settle",
    ),
    guarded(
        "a volume counts as made when the gate has made it",
        "set_volume_made",
        "store/volumes.py",
        "usecases/vm/volumes.py:make_volume",
    ),
    guarded(
        "the record of a volume goes with the volume",
        "forget_volume",
        "store/volumes.py",
        "usecases/vm/volumes.py:make_volume",
        "usecases/vm/volumes.py:_remove",
        "usecases/maintenance/forget_host.py:forget_host",
        "usecases/store/reconcile_store.py:_forget_vm",  # the hosts no longer have it as the store says
    ),
    *(
        guarded(
            "recorded volumes are deleted by those who end a VM, and by gc after it",
            name,
            "usecases/vm/volumes.py",
            *callers,
        )
        for name, callers in (
            (
                "remove_volumes",
                (
                    "usecases/tenant/offboard_tenant.py:offboard_tenant",
                    "usecases/vm/delete_vm.py:remove_vm",
                    "usecases/vm/move_volumes.py:carry_volumes",
                    "usecases/vm/move_volumes.py:drop_left_volumes",
                ),
            ),
            ("remove_recorded", ("usecases/maintenance/gc.py:_look",)),
        )
    ),
]
