# SPDX-License-Identifier: Apache-2.0
"""The rows of test_gates.py about VMs that are stopped, preempted or reclaimed."""

from tests.unit.uses_of_names import guarded

PREEMPTION = [
    guarded(
        "VMs are preempted only through the gate: quota, consent, notice, grace period, last check",
        "make_room",
        "usecases/vm/preempt_vms.py",
        "usecases/vm/create_vm.py:_preempt",
        "usecases/vm/start_vm.py:_make_room",
    ),
    guarded(
        "a preemption that is decided is final in the store before a guest is asked to shut down",
        "set_vm_notice",
        "store/vms.py",
        "usecases/vm/preemption_notice.py:notice_to",
        "usecases/vm/preempt_vms.py:_confirm",
        "usecases/vm/preemption_notice.py:drop_notices",
        "usecases/store/reconcile_store.py:_withdraw_notice",
    ),
    guarded(
        "a preemption that is decided is finished, so that no gang stays stopped in part",
        "finish_preemptions",
        "usecases/vm/final_preemptions.py",
        "usecases/operate/repair.py:_finish_preemptions",
        "usecases/operate/controller.py:_fix",
    ),
    guarded(
        "no VM of a gang starts while another one of it is being preempted",
        "refuse_while_preempted",
        "usecases/vm/final_preemptions.py",
        "usecases/vm/start_vm.py:_start_one",
        "usecases/vm/resize_plan.py:refuse_resize",
        "usecases/vm/restart_vm.py:restart_vm",
    ),
    guarded(
        "quota is reclaimed in the transaction that checks the guarantee, and counts until the VM has its shares",
        "claim_quota",
        "store/reclaims.py",
        "usecases/vm/preempt_vms.py:_claim",
    ),
    guarded(
        "the guarantee is checked by the one function that counts what other runs reclaim",
        "may_reclaim",
        "quota/borrowing.py",
        "usecases/placement/preemption.py:may_ask_everyone",
    ),
    guarded(
        "whoever makes room ends its claims on quota",
        "claims_end",
        "usecases/vm/preempt_vms.py",
        "usecases/vm/create_vm.py:create_together",
        "usecases/vm/start_vm.py:_start_one",
    ),
    guarded(
        "only VMs whose owner was told are chosen as victims",
        "choose_victims",
        "scheduler/victims.py",
        "usecases/placement/preemption.py:find_eviction",
        "scheduler/what_if.py:changes_that_admit",
    ),
    guarded(
        "the fewest victims for one request are a step of choosing them for all requests",
        "fewest_victims",
        "scheduler/fewest_victims.py",
        "scheduler/victims.py:_one_by_one",
    ),
    guarded(
        "a VM is stopped for its owner, at its end, for a layout, move, resize, restart, drain or GPU, or as preempted",
        "stop_vm",
        "usecases/vm/stop_vm.py",
        "cli/vm/stop_vm.py:command",
        "usecases/operate/controller.py:_end",
        "usecases/layout/layout_run.py:_make_way",
        "usecases/vm/final_preemptions.py:_stop",
        "usecases/vm/start_vm.py:start_vm",
        "usecases/vm/move_vm.py:carry_out",
        "usecases/vm/resize_vm.py:_resize_here",
        "usecases/vm/restart_vm.py:restart_vm",
        "usecases/vm/suspend_vm.py:suspend_vm",
        "usecases/maintenance/drain_host.py:_stop",
        "usecases/maintenance/evacuate_gpu.py:_take_other_card",
    ),
    guarded(
        "a VM is suspended for its owner, for another card, or as preempted",
        "suspend_vm",
        "usecases/vm/suspend_vm.py",
        "cli/vm/suspend_vm.py:command",
        "usecases/vm/final_preemptions.py:_suspend",
        "usecases/maintenance/evacuate_gpu.py:_take_other_card",
    ),
]
