/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NVML's binary interface that the lab's library answers: the layouts as pynvml declares them
 * (tests/lab/test_nvml_library.py compares each size), the constants under their public names.
 */
#ifndef LAB_NVML_H
#define LAB_NVML_H

typedef enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_RESET_REQUIRED = 16,
	NVML_ERROR_IN_USE = 19,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_NO_DATA = 21,
	NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_NOT_READY = 27,
	NVML_ERROR_GPU_NOT_FOUND = 28,
	NVML_ERROR_INVALID_STATE = 29,
	NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

#define NVML_VALUE_NOT_AVAILABLE		(~0ULL)
#define NVML_NO_GPU_INSTANCE			0xffffffffU
#define NVML_INVALID_VGPU_PLACEMENT_ID		0xffffU
#define NVML_GPU_INSTANCE_PROFILE_COUNT		0x12
#define NVML_COMPUTE_INSTANCE_PROFILE_COUNT	0x9
#define NVML_DEVICE_UUID_V2_BUFFER_SIZE		96
#define NVML_SCHEDULER_SW_MAX_LOG_ENTRIES	200
#define NVML_GPM_METRIC_MAX			477
#define NVML_STRUCT_VERSION(type, number)	((unsigned int)(sizeof(type) | ((number) << 24)))

typedef struct nvmlDevice *nvmlDevice_t;
typedef struct nvmlGpuInstance *nvmlGpuInstance_t;
typedef struct nvmlComputeInstance *nvmlComputeInstance_t;
typedef unsigned int nvmlVgpuTypeId_t;
typedef unsigned int nvmlVgpuInstance_t;

typedef struct {
	char busIdLegacy[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;

typedef struct {
	unsigned int version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
	char busId[32];
} nvmlPciInfoExt_v1_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	unsigned long long bar1Total, bar1Free, bar1Used;
} nvmlBAR1Memory_t;

typedef struct {
	unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
	unsigned int version, sensorType;
	int temperature;
} nvmlTemperature_v1_t;

typedef struct {
	unsigned long long l1Cache, l2Cache, deviceMemory, registerFile;
} nvmlEccErrorCounts_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
	unsigned int start, size;
} nvmlPlacement_t;

typedef struct {
	unsigned int id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
		encoderCount, jpegCount, ofaCount;
	unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
	unsigned int version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount,
		decoderCount, encoderCount, jpegCount, ofaCount;
	unsigned long long memorySizeMB;
	char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;

typedef struct {
	unsigned int version, id, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
		encoderCount, jpegCount, ofaCount;
	unsigned long long memorySizeMB;
	char name[96];
	unsigned int capabilities;
} nvmlGpuInstanceProfileInfo_v3_t;

typedef struct {
	nvmlDevice_t device;
	unsigned int id, profileId;
	nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
	unsigned int id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
		sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
	unsigned int version, id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount,
		sharedDecoderCount, sharedEncoderCount, sharedJpegCount, sharedOfaCount;
	char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;

typedef struct {
	nvmlDevice_t device;
	nvmlGpuInstance_t gpuInstance;
	unsigned int id, profileId;
	nvmlPlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct {
	unsigned int multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount,
		sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
	unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
	unsigned int version, vgpuCount;
	unsigned int *vgpuTypeIds;
} nvmlVgpuTypeIdInfo_v1_t;

typedef struct {
	unsigned int version, vgpuTypeId, maxInstancePerGI;
} nvmlVgpuTypeMaxInstance_v1_t;

typedef struct {
	unsigned int version;
	unsigned long long bar1Size;
} nvmlVgpuTypeBar1Info_v1_t;

typedef struct {
	unsigned int version, placementSize, count;
	unsigned int *placementIds;
} nvmlVgpuPlacementList_v1_t;

typedef struct {
	unsigned int version, placementSize, count;
	unsigned int *placementIds;
	unsigned int mode;
} nvmlVgpuPlacementList_v2_t;

typedef struct {
	unsigned int version, vgpuTypeId, count;
	unsigned int *placementIds;
	unsigned int placementSize;
} nvmlVgpuCreatablePlacementInfo_v1_t;

typedef struct {
	unsigned int version, placementId;
} nvmlVgpuPlacementId_v1_t;

typedef struct {
	unsigned int version, mode;
} nvmlVgpuHeterogeneousMode_v1_t;

typedef struct {
	unsigned int version, vgpuCount;
	unsigned int *vgpuInstances;
} nvmlActiveVgpuInstanceInfo_v1_t;

typedef struct {
	unsigned int year;
	unsigned short month, day, hour, min, sec;
	unsigned char status;
} nvmlVgpuLicenseExpiry_t;

typedef struct {
	unsigned char isLicensed;
	nvmlVgpuLicenseExpiry_t licenseExpiry;
	unsigned int currentState;
} nvmlVgpuLicenseInfo_t;

typedef union {
	double dVal;
	unsigned int uiVal;
	unsigned long long ullVal;
} nvmlValue_t;

typedef struct {
	unsigned int vgpuInstance;
	unsigned long long timeStamp;
	nvmlValue_t smUtil, memUtil, encUtil, decUtil;
} nvmlVgpuInstanceUtilizationSample_t;

typedef struct {
	unsigned long long timeStamp;
	unsigned int vgpuInstance;
	nvmlValue_t smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlVgpuInstanceUtilizationInfo_v1_t;

typedef struct {
	unsigned int version, sampleValType, vgpuInstanceCount;
	unsigned long long lastSeenTimeStamp;
	nvmlVgpuInstanceUtilizationInfo_v1_t *vgpuUtilArray;
} nvmlVgpuInstancesUtilizationInfo_v1_t;

typedef struct {
	unsigned int sessionsCount, averageFPS, averageLatency;
} nvmlFBCStats_t;

/* With adaptive round robin (ARR) both numbers count, without it the first one is the time slice in ns. */
typedef struct {
	unsigned int schedulerPolicy, arrMode, first, timeslice;
} nvmlVgpuSchedulerGetState_t;

typedef struct {
	unsigned int schedulerPolicy, enableARRMode, first, frequency;
} nvmlVgpuSchedulerSetState_t;

typedef struct {
	unsigned int engineId, schedulerPolicy, avgFactor, timeslice;
} nvmlVgpuSchedulerStateInfo_v2_t;

typedef struct {
	unsigned int engineId, schedulerPolicy, avgFactor, frequency;
} nvmlVgpuSchedulerState_v2_t;

typedef struct {
	unsigned int supportedSchedulers[3], maxTimeslice, minTimeslice, isArrModeSupported, maxFrequencyForARR,
		minFrequencyForARR, maxAvgFactorForARR, minAvgFactorForARR;
} nvmlVgpuSchedulerCapabilities_t;

typedef struct {
	unsigned long long timestamp, timeRunTotal, timeRun;
	unsigned int swRunlistId;
	unsigned long long targetTimeSlice, cumulativePreemptionTime;
} nvmlVgpuSchedulerLogEntry_t;

typedef struct {
	unsigned int engineId, schedulerPolicy, arrMode, first, timeslice, entriesCount;
	nvmlVgpuSchedulerLogEntry_t logEntries[NVML_SCHEDULER_SW_MAX_LOG_ENTRIES];
} nvmlVgpuSchedulerLog_t;

typedef struct {
	unsigned int version, engineId, schedulerPolicy, arrMode, first, timeslice;
} nvmlVgpuSchedulerStateInfo_v1_t;

typedef struct {
	unsigned int version, engineId, schedulerPolicy, arrMode, first, timeslice, entriesCount;
	nvmlVgpuSchedulerLogEntry_t logEntries[NVML_SCHEDULER_SW_MAX_LOG_ENTRIES];
} nvmlVgpuSchedulerLogInfo_v1_t;

typedef struct {
	unsigned long long timestamp, timeRunTotal, timeRun;
	unsigned int swRunlistId;
	unsigned long long targetTimeSlice, cumulativePreemptionTime;
	unsigned int weight;
} nvmlVgpuSchedulerLogEntry_v2_t;

typedef struct {
	unsigned int engineId, schedulerPolicy, avgFactor, timeslice, entriesCount;
	nvmlVgpuSchedulerLogEntry_v2_t logEntries[NVML_SCHEDULER_SW_MAX_LOG_ENTRIES];
} nvmlVgpuSchedulerLogInfo_v2_t;

typedef struct {
	unsigned int minVersion, maxVersion;
} nvmlVgpuVersion_t;

/* Of both kinds of metadata the opaque part goes on after the structure. */
typedef struct {
	unsigned int version, revision, guestInfoState;
	char guestDriverVersion[80], hostDriverVersion[80];
	unsigned int reserved[6], vgpuVirtualizationCaps, guestVgpuVersion, opaqueDataSize;
	char opaqueData[4];
} nvmlVgpuMetadata_t;

typedef struct {
	unsigned int version, revision;
	char hostDriverVersion[80];
	unsigned int pgpuVirtualizationCaps, reserved[5];
	nvmlVgpuVersion_t hostSupportedVgpuRange;
	unsigned int opaqueDataSize;
	char opaqueData[4];
} nvmlVgpuPgpuMetadata_t;

typedef struct {
	unsigned int vgpuVmCompatibility, compatibilityLimitCode;
} nvmlVgpuPgpuCompatibility_t;

typedef struct {
	unsigned int version;
	unsigned long long size;
} nvmlVgpuRuntimeState_v1_t;

typedef struct {
	unsigned int version;
	unsigned long long aggregateUncParity, aggregateUncSecDed, aggregateCor, volatileUncParity, volatileUncSecDed,
		volatileCor, aggregateUncBucketL2, aggregateUncBucketSm, aggregateUncBucketPcie,
		aggregateUncBucketMcu, aggregateUncBucketOther;
	unsigned int bThresholdExceeded;
} nvmlEccSramErrorStatus_v1_t;

typedef struct {
	unsigned int version, bChannelRepairPending, bTpcRepairPending;
} nvmlRepairStatus_t;

typedef struct {
	unsigned int fieldId, scopeId;
	long long timestamp, latencyUsec;
	unsigned int valueType, nvmlReturn;
	nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct {
	unsigned char clusterUuid[16];
	unsigned int status, cliqueId;
	unsigned char state;
} nvmlGpuFabricInfo_t;

typedef struct {
	unsigned int version;
	unsigned char clusterUuid[16];
	unsigned int status, cliqueId;
	unsigned char state;
	unsigned int healthMask;
} nvmlGpuFabricInfo_v2_t;

typedef struct nvmlGpmSample *nvmlGpmSample_t;

typedef struct {
	unsigned int version, isSupportedDevice;
} nvmlGpmSupport_t;

typedef struct {
	unsigned int metricId, nvmlReturn;
	double value;
	const char *shortName, *longName, *unit;
} nvmlGpmMetric_t;

typedef struct {
	unsigned int version, numMetrics;
	nvmlGpmSample_t sample1, sample2;
	nvmlGpmMetric_t metrics[NVML_GPM_METRIC_MAX];
} nvmlGpmMetricsGet_t;

#endif /* LAB_NVML_H */
