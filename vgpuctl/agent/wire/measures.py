# SPDX-License-Identifier: Apache-2.0
"""Every measure that a host can be asked for: name, unit, kind, meaning. Python 3.9, standard library only.

The one description of a measure: metrics, textfile, history, JSON, pages and docs/telemetry.md follow from it.
Units are Prometheus's base units (telemetry reference 4): seconds, bytes, watts, joules, hertz, celsius, and ratios
from 0 to 1.
"""

from typing import Dict, Tuple

from vgpuctl.agent.wire.values import dataclass

GPU, INSTANCE, VGPU, VM, HOST = "gpu", "gpu_instance", "vgpu", "vm", "host"


@dataclass(frozen=True)
class Measure:
    """One measure of one kind of object.

    of: GPU, INSTANCE (a MIG GPU instance), VGPU, VM or HOST. name: with its unit. labels: what tells several values of
    one object apart, such as the code of an Xid. is_counter: the value only rises, from the start of the driver, guest
    or host. is_kept: the history keeps it. source: who tells it.
    """

    of: str
    name: str
    text: str
    labels: Tuple[str, ...] = ()
    is_counter: bool = False
    is_kept: bool = False
    source: str = "NVML"

    @property
    def metric(self) -> str:
        """The metric's name."""
        return f"vgpuctl_{self.of}_{self.name}{'_total' if self.is_counter else ''}"


def _gpu(
    name: str, text: str, *labels: str, counter: bool = False, kept: bool = False, source: str = "NVML"
) -> Measure:
    return Measure(GPU, name, text, labels, counter, kept, source)


def _instance(
    name: str, text: str, *labels: str, counter: bool = False, kept: bool = False, source: str = "NVML, GPM"
) -> Measure:
    return Measure(INSTANCE, name, text, labels, counter, kept, source)


def _vgpu(
    name: str, text: str, *labels: str, counter: bool = False, kept: bool = False, source: str = "NVML"
) -> Measure:
    return Measure(VGPU, name, text, labels, counter, kept, source)


def _vm(
    name: str, text: str, *labels: str, counter: bool = False, kept: bool = False, source: str = "libvirt"
) -> Measure:
    return Measure(VM, name, text, labels, counter, kept, source)


def _host(name: str, text: str, *labels: str, counter: bool = False, kept: bool = False) -> Measure:
    return Measure(HOST, name, text, labels, counter, kept, "kernel")


_COMPUTED = "computed"
_OF_GPUS: Tuple[Measure, ...] = (
    _gpu("utilization_ratio", "Part of the last sample period in which a kernel ran on the GPU.", kept=True),
    _gpu("memory_activity_ratio", "Part of the last sample period in which the memory was read or written."),
    _gpu("encoder_utilization_ratio", "Part of the last sample period in which the video encoders worked."),
    _gpu("decoder_utilization_ratio", "Part of the last sample period in which the video decoders worked."),
    _gpu("jpeg_utilization_ratio", "Part of the last sample period in which the JPEG decoders worked."),
    _gpu("ofa_utilization_ratio", "Part of the last sample period in which the optical flow accelerator worked."),
    _gpu("telemetry_support", "Source of the utilization: util (rates of NVML), gpm or none.", "kind"),
    _gpu("framebuffer_total_bytes", "Framebuffer of the GPU."),
    _gpu("framebuffer_used_bytes", "Framebuffer that is handed out.", kept=True),
    _gpu("power_watts", "Power draw of the board.", kept=True),
    _gpu("power_limit_watts", "Power limit that is enforced."),
    _gpu("energy_joules", "Energy since the driver was loaded.", counter=True),
    _gpu("temperature_celsius", "Temperature of the GPU core.", kept=True),
    _gpu("memory_temperature_celsius", "Temperature of the memory."),
    _gpu("slowdown_temperature_celsius", "Temperature of the GPU core at which the hardware slows the clocks down."),
    _gpu("sm_clock_hertz", "Clock of the streaming multiprocessors."),
    _gpu("memory_clock_hertz", "Clock of the memory."),
    _gpu("clock_event", "1 while the reason keeps the clocks from their maximum.", "reason"),
    _gpu("ecc_errors", "ECC errors since the driver was loaded.", "severity", counter=True),
    _gpu("remapped_rows", "Memory rows replaced by spare rows in the GPU's life.", "cause", counter=True),
    _gpu("row_remap_pending", "1 while a memory row waits for its spare row until the next reset."),
    _gpu("row_remap_failed", "1 if no spare row was left for a memory row: the board is due for replacement."),
    _gpu("sram_threshold_exceeded", "1 if SRAM errors passed the vendor's threshold for a replacement."),
    _gpu("repair_pending", "1 while the repair of a unit waits for the next reset.", "unit"),
    _gpu("pcie_replays", "PCIe packets that had to be sent again.", counter=True),
    _gpu("nvlink_active_links", "NVLink links that are up."),
    _gpu("nvlink_bytes", "Bytes of data over all NVLink links.", "direction", counter=True),
    _gpu("nvlink_errors", "Errors of all NVLink links.", "kind", counter=True),
    _gpu("xid", "Xid errors in the kernel's log since the boot.", "xid", "class", counter=True, source="kernel log"),
    _gpu("scheduler_policy", "1 for the policy of the vGPU scheduler.", "policy"),
    _gpu("scheduler_arr", "1 for the mode of the scheduler's adaptive round robin.", "mode"),
    _gpu("scheduler_time_slice_seconds", "Time slice of the vGPU scheduler; 0 while nothing is scheduled."),
    _gpu("scheduler_run_seconds", "Time that a runlist of the scheduler ran.", "runlist", counter=True),
    _gpu("scheduler_preempted_seconds", "Time that a runlist waited preempted.", "runlist", counter=True),
    _gpu("recovery_action", "1 for the action that the driver asks for.", "action"),
)
_OF_INSTANCES: Tuple[Measure, ...] = (
    _instance(
        "utilization_ratio", "Part of the time in which the graphics engine of the instance was busy.", kept=True
    ),
    _instance("sm_activity_ratio", "Part of the instance's streaming multiprocessors that were busy."),
    _instance("sm_occupancy_ratio", "Active warps of the possible ones."),
    _instance("tensor_activity_ratio", "Part of the time in which the tensor cores were busy."),
    _instance("memory_activity_ratio", "Bandwidth of the instance's memory that was used."),
    _instance("framebuffer_size_bytes", "Framebuffer of the instance.", source="NVML"),
    _instance("framebuffer_used_bytes", "Framebuffer that is used.", kept=True, source="NVML"),
    _instance(
        "scheduler_policy", "1 for the policy of the scheduler of the instance's vGPUs.", "policy", source="NVML"
    ),
    _instance("scheduler_arr", "1 for the mode of the scheduler's adaptive round robin.", "mode", source="NVML"),
    _instance(
        "scheduler_time_slice_seconds", "Time slice of the scheduler; 0 while nothing is scheduled.", source="NVML"
    ),
    _instance(
        "scheduler_run_seconds", "Time that a runlist of the scheduler ran.", "runlist", counter=True, source="NVML"
    ),
    _instance(
        "scheduler_preempted_seconds", "Time that a runlist waited preempted.", "runlist", counter=True, source="NVML"
    ),
)
_OF_VGPUS: Tuple[Measure, ...] = (
    _vgpu("utilization_ratio", "Part of the whole GPU's compute time that the vGPU used.", kept=True),
    _vgpu("memory_activity_ratio", "Part of the time in which the vGPU read or wrote the GPU's memory."),
    _vgpu("encoder_utilization_ratio", "Part of the GPU's video encoders that the vGPU used."),
    _vgpu("decoder_utilization_ratio", "Part of the GPU's video decoders that the vGPU used."),
    _vgpu("jpeg_utilization_ratio", "Part of the GPU's JPEG decoders that the vGPU used."),
    _vgpu("ofa_utilization_ratio", "Part of the GPU's optical flow accelerator that the vGPU used."),
    _vgpu("telemetry_support", "Source of the utilization: util (samples of the vGPU), gpm or none.", "kind"),
    _vgpu("framebuffer_size_bytes", "Framebuffer that the profile promises."),
    _vgpu("framebuffer_used_bytes", "Framebuffer that the guest uses.", kept=True),
    _vgpu("encoder_sessions", "Video encoder sessions of the guest."),
    _vgpu("encoder_frame_rate_hertz", "Frames a second that an encoder session produces on average."),
    _vgpu("encoder_latency_seconds", "Average time to encode a frame."),
    _vgpu("encoder_capacity_ratio", "Part of the encoder capacity that the vGPU may use."),
    _vgpu("frame_rate_limit_hertz", "Frame rate limit of the guest; 0 for none."),
    _vgpu("license_state", "1 for the state of the guest's vGPU licence.", "state"),
    _vgpu("license_expiry_timestamp_seconds", "End of the guest's licence, seconds since the epoch."),
    _vgpu("guest_driver_info", "1 for the version of the guest's driver.", "version"),
    _vgpu("promised_ratio", "Part of the GPU's compute time that profile and scheduler promise.", source=_COMPUTED),
    _vgpu(
        "share_utilization_ratio",
        "Use of the compute time that is promised; above 1 it uses idle time.",
        kept=True,
        source=_COMPUTED,
    ),
    _vgpu(
        "steal_ratio",
        "Upper bound of the GPU's compute time that neighbours above their promise took from the vGPU.",
        kept=True,
        source=_COMPUTED,
    ),
)
_OF_VMS: Tuple[Measure, ...] = (
    _vm("state", "1 for the state of the domain.", "state"),
    _vm("start_since_boot_seconds", "Time from the boot of the host to the start of the VM's QEMU.", source="kernel"),
    _vm("vcpus", "Virtual CPUs that are online."),
    _vm("cpu_seconds", "CPU time of the VM.", counter=True),
    _vm("vcpu_steal_seconds", "Time that virtual CPUs waited for a CPU of the host.", counter=True),
    _vm("memory_current_bytes", "Memory that the VM has now."),
    _vm("memory_maximum_bytes", "Memory that the VM may have."),
    _vm("memory_rss_bytes", "Memory of the host that QEMU holds, without huge pages.", kept=True),
    _vm("hugepages_bytes", "Huge pages of a size, in KiB, that the VM holds.", "size", kept=True),
    _vm("disk_allocated_bytes", "Room that the VM's disks take on a file system of a pool.", "filesystem", kept=True),
    _vm("memory_unused_bytes", "Memory that the guest leaves unused, told by its balloon driver."),
    _vm("block_read_bytes", "Bytes read from a disk.", "device", counter=True),
    _vm("block_written_bytes", "Bytes written to a disk.", "device", counter=True),
    _vm("block_read_requests", "Read requests to a disk.", "device", counter=True),
    _vm("block_write_requests", "Write requests to a disk.", "device", counter=True),
    _vm("block_read_seconds", "Time spent with reads of a disk.", "device", counter=True),
    _vm("block_write_seconds", "Time spent with writes to a disk.", "device", counter=True),
    _vm("network_received_bytes", "Bytes that an interface received.", "interface", counter=True),
    _vm("network_sent_bytes", "Bytes that an interface sent.", "interface", counter=True),
    _vm("network_received_packets", "Packets that an interface received.", "interface", counter=True),
    _vm("network_sent_packets", "Packets that an interface sent.", "interface", counter=True),
    _vm("network_receive_errors", "Packets lost to errors on reception.", "interface", counter=True),
    _vm("network_send_errors", "Packets lost to errors on sending.", "interface", counter=True),
    _vm("network_receive_drops", "Received packets that were dropped.", "interface", counter=True),
    _vm("network_send_drops", "Sent packets that were dropped.", "interface", counter=True),
    _vm(
        "network_port_up",
        "1 if ovn-controller of the host has installed the flows of an interface's port, else 0.",
        "interface",
        "port",
        source="Open vSwitch",
    ),
)
_OF_HOSTS: Tuple[Measure, ...] = (
    _host("reading_seconds", "Time that these readings took on the host."),
    _host("reading_cpu_seconds", "CPU time that these readings cost the host."),
    _host("memory_total_bytes", "Memory of the host."),
    _host("memory_without_hugepages_bytes", "Memory of the host that is not kept for huge pages.", kept=True),
    _host("memory_available_bytes", "Memory of the host that programs can still have.", kept=True),
    _host("hugepages_total_bytes", "Huge pages of a size, in KiB, that the host keeps.", "size", kept=True),
    _host("hugepages_free_bytes", "Huge pages of a size that no program holds.", "size", kept=True),
    _host(
        "pool_total_bytes",
        "Size of the file system, or of LVM's volume group, of an active storage pool.",
        *("pool", "filesystem"),
        kept=True,
    ),
    _host("pool_available_bytes", "Free room of the same.", "pool", "filesystem", kept=True),
    _host(
        "pool_unmeasured",
        "1 for an active storage pool whose room is not known. kind: not-measurable (nothing tells it for this type of"
        " pool) or not-readable.",
        *("pool", "type", "kind"),
        kept=True,
    ),
    _host("pools_read", "1 if every storage pool was looked at and told its room, as far as its type does.", kept=True),
    _host("cpu_seconds", "CPU time of the host by mode.", "mode", counter=True),
)
MEASURES: Tuple[Measure, ...] = (*_OF_GPUS, *_OF_INSTANCES, *_OF_VGPUS, *_OF_VMS, *_OF_HOSTS)
_BY_NAME: Dict[Tuple[str, str], Measure] = {(one.of, one.name): one for one in MEASURES}


def measure(of: str, name: str) -> Measure:
    """Return the measure of a kind of object. Raises KeyError."""
    return _BY_NAME[of, name]
