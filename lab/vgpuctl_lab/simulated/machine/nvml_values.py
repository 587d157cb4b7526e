# SPDX-License-Identifier: Apache-2.0
"""The constants, structs and errors of pynvml that the simulated NVML answers with, by pynvml's names.

Not pynvml itself: every agent on every simulated host would compile its eight thousand lines.
"""

from ctypes import Structure, Union, c_ubyte, c_uint, c_ulonglong

MIB = 1 << 20
_MOST_GPM_METRICS = 16
NO_INSTANCE = 0xFFFFFFFF

CONSTANTS = {
    "NVML_SUCCESS": 0,
    "NVML_ERROR_UNINITIALIZED": 1,
    "NVML_ERROR_INVALID_ARGUMENT": 2,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_NOT_FOUND": 6,
    "NVML_ERROR_INSUFFICIENT_SIZE": 7,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_FUNCTION_NOT_FOUND": 13,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_RESET_REQUIRED": 16,
    "NVML_ERROR_IN_USE": 19,
    "NVML_ERROR_INSUFFICIENT_RESOURCES": 23,
    "NVML_ERROR_INVALID_STATE": 29,
    "NVML_ERROR_UNKNOWN": 999,
    "NVML_ERROR_NO_DATA": 21,
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": 25,
    "NVML_ERROR_DEPRECATED": 26,
    "nvmlVgpuSchedulerStateInfo_v1": 0x1000018,
    "nvmlVgpuSchedulerLogInfo_v1": 0x10025A0,
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
    "NVML_CLOCK_SM": 1,
    "NVML_CLOCK_MEM": 2,
    "NVML_FI_DEV_MEMORY_TEMP": 82,
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX": 138,
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX": 139,
    "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 230,
    "NVML_GPM_METRICS_GET_VERSION": 1,
    "NVML_NVLINK_MAX_LINKS": 36,
    "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0,
    "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
    "NVML_VOLATILE_ECC": 0,
    "NVML_AGGREGATE_ECC": 1,
    "NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS": 0,
    "NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR": 1,
    "NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED": 0,
    "NVML_COMPUTE_INSTANCE_PROFILE_COUNT": 9,
    "NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1": 7,
    "NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1": 8,
    "NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX": 0xA,
    "NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX": 0xB,
    "NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX": 0xC,
    "NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME": 0xD,
    "NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME": 0xE,
    "NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME": 0xF,
    "NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME": 0x10,
    "NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX": 0x11,
    "NVML_GPU_INSTANCE_PROFILE_COUNT": 0x12,
    "NVML_VGPU_SCHEDULER_ARR_DEFAULT": 0,
    "NVML_VGPU_SCHEDULER_ARR_DISABLE": 1,
    "NVML_VGPU_SCHEDULER_ARR_ENABLE": 2,
    "NVML_VGPU_SCHEDULER_POLICY_BEST_EFFORT": 1,
    "NVML_VGPU_SCHEDULER_POLICY_EQUAL_SHARE": 2,
    "NVML_VGPU_SCHEDULER_POLICY_FIXED_SHARE": 3,
}

# As nvmlErrorString says them, and so pynvml.
ERROR_TEXTS = {
    1: "Uninitialized",
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    6: "Not Found",
    7: "Insufficient Size",
    9: "Driver Not Loaded",
    13: "Function Not Found",
    15: "GPU is lost",
    16: "GPU requires restart",
    19: "In use by another client",
    21: "No data",
    23: "Insufficient Resources",
    25: "Argument version mismatch",
    29: "Invalid State",
}


class NvmlError(Exception):
    """pynvml's NVMLError: `value` is the return code."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return ERROR_TEXTS.get(self.value, "Unknown Error")


class InstanceHandle(Structure):
    """A GPU or compute instance: the number of its card, of the GPU instance, of the compute instance."""

    _fields_ = [("card", c_uint), ("instance", c_uint), ("compute", c_uint)]


class Placement(Structure):
    """c_nvmlGpuInstancePlacement_t."""

    _fields_ = [("start", c_uint), ("size", c_uint)]


class SchedulerWithArr(Structure):
    """c_nvmlVgpuSchedSetDataWithARR_t."""

    _fields_ = [("avgFactor", c_uint), ("frequency", c_uint)]


class SchedulerSlice(Structure):
    """c_nvmlVgpuSchedSetData_t."""

    _fields_ = [("timeslice", c_uint)]


class SchedulerSetParams(Union):
    """c_nvmlVgpuSchedulerSetParams_t."""

    _fields_ = [("vgpuSchedDataWithARR", SchedulerWithArr), ("vgpuSchedData", SchedulerSlice)]


class SchedulerSetState(Structure):
    """c_nvmlVgpuSchedulerSetState_t."""

    _fields_ = [("schedulerPolicy", c_uint), ("enableARRMode", c_uint), ("schedulerParams", SchedulerSetParams)]


class SchedulerStateInfo(Structure):
    """c_nvmlVgpuSchedulerStateInfo_v1_t."""

    _fields_ = [
        ("version", c_uint),
        ("engineId", c_uint),
        ("schedulerPolicy", c_uint),
        ("arrMode", c_uint),
        ("schedulerParams", SchedulerSetParams),
    ]


class SchedulerStateInfoV2(Structure):
    """c_nvmlVgpuSchedulerStateInfo_v2_t."""

    _fields_ = [("engineId", c_uint), ("schedulerPolicy", c_uint), ("avgFactor", c_uint), ("timeslice", c_uint)]


class SchedulerLogInfo(Structure):
    """c_nvmlVgpuSchedulerLogInfo_v1_t, with no room for entries: the answer is another object."""

    _fields_ = [*SchedulerStateInfo._fields_, ("entriesCount", c_uint), ("logEntries", c_ulonglong * 0)]


class SchedulerLogInfoV2(Structure):
    """c_nvmlVgpuSchedulerLogInfo_v2_t, with no room for entries."""

    _fields_ = [*SchedulerStateInfoV2._fields_, ("entriesCount", c_uint), ("logEntries", c_ulonglong * 0)]


class FabricInfo(Structure):
    """c_nvmlGpuFabricInfo_t."""

    _fields_ = [("clusterUuid", c_ubyte * 16), ("status", c_uint), ("cliqueId", c_uint), ("state", c_uint)]


class FabricInfoV2(Structure):
    """c_nvmlGpuFabricInfo_v2_t."""

    _fields_ = [
        ("version", c_uint),
        ("clusterUuid", c_ubyte * 16),
        ("status", c_uint),
        ("cliqueId", c_uint),
        ("state", c_ubyte),
        ("healthMask", c_uint),
    ]


class SramErrorStatus(Structure):
    """c_nvmlEccSramErrorStatus_v1_t, of which only the threshold is played."""

    _fields_ = [
        ("version", c_uint),
        *(
            (name, c_ulonglong)
            for name in (
                "aggregateUncParity",
                "aggregateUncSecDed",
                "aggregateCor",
                "volatileUncParity",
                "volatileUncSecDed",
                "volatileCor",
                "aggregateUncBucketL2",
                "aggregateUncBucketSm",
                "aggregateUncBucketPcie",
                "aggregateUncBucketMcu",
                "aggregateUncBucketOther",
            )
        ),
        ("bThresholdExceeded", c_uint),
    ]


class GpmMetric:
    """c_nvmlGpmMetric_t."""

    def __init__(self) -> None:
        self.metricId = 0
        self.nvmlReturn = 0
        self.value = 0.0


class GpmMetricsGet:
    """c_nvmlGpmMetricsGet_t, whose samples are Python objects here."""

    def __init__(self) -> None:
        self.version = self.numMetrics = 0
        self.sample1 = self.sample2 = None
        self.metrics = [GpmMetric() for _ in range(_MOST_GPM_METRICS)]


STRUCTS = {
    "NVMLError": NvmlError,
    "c_nvmlEccSramErrorStatus_v1_t": SramErrorStatus,
    "c_nvmlGpmMetricsGet_t": GpmMetricsGet,
    "c_nvmlGpuFabricInfo_t": FabricInfo,
    "c_nvmlGpuFabricInfo_v2_t": FabricInfoV2,
    "c_nvmlGpuInstance_t": InstanceHandle,
    "c_nvmlComputeInstance_t": InstanceHandle,
    "c_nvmlGpuInstancePlacement_t": Placement,
    "c_nvmlVgpuSchedulerLogInfo_v1_t": SchedulerLogInfo,
    "c_nvmlVgpuSchedulerLogInfo_v2_t": SchedulerLogInfoV2,
    "c_nvmlVgpuSchedulerStateInfo_v1_t": SchedulerStateInfo,
    "c_nvmlVgpuSchedulerStateInfo_v2_t": SchedulerStateInfoV2,
    "c_nvmlVgpuSchedulerSetState_t": SchedulerSetState,
}
