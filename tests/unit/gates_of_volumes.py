# SPDX-License-Identifier: Apache-2.0
"""The gates of volumes and images: rows of the table in test_gates.py."""

from tests.unit.uses_of_names import guarded

VOLUMES = [
    guarded(
        "a VM starts again with the images that it was made from",
        "images_again",
        "usecases/image/image_gate.py",
        "usecases/vm/start_vm.py:_define",
        "usecases/domain/definition.py:parts_again",
    ),
    *(
        guarded(
            "a volume is recorded in the store before libvirt creates it, and never taken over",
            name,
            "guests/libvirtd/storage.py",
            *(f"usecases/{caller}" for caller in callers),
            on="storage",
        )
        for name, callers in (
            ("create_disk", ("image/volumes.py:_disk_maker", "disk/attach_disk.py:_make")),
            ("create_overlay", ("image/volumes.py:_disk_maker", "disk/create_snapshot.py:_make")),
            ("create_image", ("image/volumes.py:_make_seed",)),
        )
    ),
    guarded(
        "a volume is deleted only when the store records it and libvirt shows the recorded one",
        "delete_volume",
        "guests/libvirtd/storage.py",
        "usecases/image/volumes.py:_remove",
    ),
    guarded(
        "a volume is recorded by the gate that creates it",
        "intend_volume",
        "store/volumes.py",
        "usecases/image/volumes.py:make_volume",
        "usecases/disk/create_snapshot.py:_take",  # all overlays at once
        "usecases/vm/build_vm.py:_planned",  # in a dry run's store
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
        "usecases/image/volumes.py:make_intended",
    ),
    guarded(
        "the record of a volume goes with the volume",
        "forget_volume",
        "store/volumes.py",
        "usecases/image/volumes.py:make_intended",
        "usecases/image/volumes.py:_remove",
        "usecases/vm/delete_vm.py:_as_removed",  # in a dry run's store
        "usecases/maintenance/forget_host.py:forget_host",
        "usecases/store/reconcile_store.py:_forget_vm",  # the hosts no longer have it as the store says
    ),
    *(
        guarded(
            "recorded volumes are deleted by those who end a VM or a disk, and by gc after it",
            name,
            "usecases/image/volumes.py",
            *callers,
        )
        for name, callers in (
            (
                "remove_volumes",
                (
                    "usecases/tenant/offboard_tenant.py:offboard_tenant",
                    "usecases/vm/delete_vm.py:remove_vm",
                    "usecases/vm/move_volumes.py:carry_volumes",
                    "usecases/vm/move_volumes.py:make_volumes_there",
                    "usecases/vm/move_volumes.py:drop_left_volumes",
                    "usecases/image/answers.py:drop_answers",
                    "usecases/disk/kept_vms.py:delete_kept",
                ),
            ),
            (
                "remove_recorded",
                (
                    "usecases/maintenance/gc.py:_look",
                    # Data disks that no VM has, and overlays that no domain uses.
                    "usecases/disk/attach_disk.py:_add",
                    "usecases/disk/attach_disk.py:_remove",
                    "usecases/disk/disks.py:delete_disk",
                    "usecases/disk/create_snapshot.py:create_snapshot",
                    "usecases/disk/create_snapshot.py:_remove",
                    "usecases/disk/snapshots.py:revert_snapshot",
                    "usecases/disk/snapshots.py:delete_snapshot",
                ),
            ),
        )
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
        "usecases/vm/build_vm.py:build_vm",
        "usecases/vm/move_volumes.py:plan_volumes",
        "usecases/vm/live_move.py:_prepare",
    ),
    guarded(
        "requests with unregistered images are refused before anything is done",
        "refuse_unregistered",
        "usecases/found/registered_images.py",
        "usecases/vm/find_existing.py:_find",
        "usecases/placement/named_things.py:refuse_unknown_references",
        "usecases/tenant/onboard.py:onboard",
        "usecases/node/node_pools.py:check_pool_in",
        "usecases/node/declared_pools.py:refuse_unusable",
    ),
]
