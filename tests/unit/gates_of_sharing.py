# SPDX-License-Identifier: Apache-2.0
"""The gates of GPU shares: layouts, kept devices, whole cards. Rows of the table in test_gates.py."""

from tests.unit.uses_of_names import guarded

SHARING = [
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
        "usecases/vm/live_move.py:_prepare",
    ),
    guarded(
        "a VM gets its GPUs on an NVSwitch fabric only with their partition active",
        "activate_partition",
        "usecases/share/partitions.py",
        "usecases/vm/build_vm.py:build_vm",
        "usecases/vm/start_vm.py:_may_start",
        "usecases/vm/live_move.py:_prepare",
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
        "usecases/vm/restart_vm.py:_refuse_without_return",
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
        "scheduler/gpu_by_facts.py:read_gpu",
        "sharing/passthrough.py:check",
        "sharing/passthrough.py:check_kept",
    ),
]
