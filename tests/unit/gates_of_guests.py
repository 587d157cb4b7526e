# SPDX-License-Identifier: Apache-2.0
"""Gates of guests' definitions, firmware and TPM."""

from tests.unit.uses_of_names import guarded

GUESTS = [
    guarded(
        "a domain is undefined only after its UUID was compared",
        "undefine",
        "guests/libvirtd/hypervisor.py",
        "usecases/domain/guest.py:remove_domain",
        "usecases/maintenance/gc.py:_undefine",
        on="hypervisor",
    ),
    guarded(
        "only the creation of a VM gives its domain the answers of an installation, which wipe a disk unasked",
        "of_first_run",
        "usecases/domain/guest.py",
        "usecases/vm/build_vm.py:_planned",
        "usecases/vm/build_vm.py:build_vm",
    ),
    guarded(
        "which UEFI build a guest boots is decided once, and the check asks the same function",
        "unwanted_feature",
        "model/guest_firmware.py",
        "guests/domain/firmware_view.py:uefi_view",
        "model/host_parts.py:missing_uefi",
    ),
    guarded(
        "UEFI variables and a TPM are removed with their VM, or from a host that it has left",
        "guest_state",
        "hosts/agent_client.py",
        "usecases/domain/guest_state.py:carry_state",
        "usecases/domain/guest_state.py:_ask",
        "usecases/maintenance/gc.py:_look",
        "usecases/maintenance/gc.py:_undefine",
        on="agent",
    ),
    guarded(
        "a domain's power is taken only from a domain with the VM's UUID",
        "destroy",
        "guests/libvirtd/hypervisor.py",
        "usecases/domain/guest.py:remove_domain",
        "usecases/vm/start_vm.py:_may_start",
        "usecases/vm/stop_vm.py:_end_guest",
        on="hypervisor",
    ),
    guarded(
        "a guest is shut down only in a domain with the VM's UUID",
        "shutdown",
        "guests/libvirtd/hypervisor.py",
        "usecases/vm/stop_vm.py:_end_guest",
        "usecases/vm/delete_vm.py:_shut_down",
        on="hypervisor",
    ),
    guarded(
        "a domain is defined after its name was found free or its own",
        "define",
        "guests/libvirtd/hypervisor.py",
        "usecases/domain/guest.py:define",
        on="hypervisor",
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
        "what libvirt answers of many VMs is recorded with its time",
        "states",
        "guests/libvirtd/domain_reader.py",
        "usecases/observed/observations.py:read_domains",
        "usecases/observed/full_survey.py:read_host",
        "usecases/operate/watch_hosts.py:_domains",
        on="hypervisor",
    ),
]
