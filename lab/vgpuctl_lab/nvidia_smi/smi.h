/* SPDX-License-Identifier: Apache-2.0 */
/* A minimal nvidia-smi: NVML's answers in nvidia-smi's words (reference 3.3, 3.4, 5 and 6). Exit codes are NVML's. */
#ifndef SMI_H
#define SMI_H

#include <stdbool.h>
#include <stddef.h>

#include "../nvml_library/nvml.h"

#define MOST_GPUS 64
#define BUS_ID_SIZE 32

struct device {
	unsigned int index;
	nvmlDevice_t handle;
	nvmlReturn_t lost;	/* why the driver does not give it */
	char bus_id[BUS_ID_SIZE];
};

/* The GPUs that `-i` chose, or all. */
struct selection {
	unsigned int count;
	struct device devices[MOST_GPUS];
};

/* Options of one command line: every word begins with a dash, the next one is its value unless it does so too. */
struct options {
	int count;
	char **words;
};

/* selection.c */
int select_devices(struct selection *selection, const char *wanted);
const char *option(const struct options *options, const char *name);
bool has_option(const struct options *options, const char *name);
const char *unknown_option(const struct options *options, const char *const *known);
int read_number(const char *text, unsigned int *value);

/* main.c */
const char *cuda_version(void);

/* list.c, query.c, details.c, vgpu.c, vgpu_types.c, scheduler.c, mig_list.c, mig_change.c, mode.c */
int list_devices(const struct selection *selection);
int summarise_devices(const struct selection *selection);
int query_devices(const struct selection *selection, const char *fields, const char *format);
nvmlReturn_t read_field_with_unit(const struct device *device, const char *name, char *text, size_t size);
int tell_details(const struct selection *selection, bool as_xml);
void tell(int indent, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));
int vgpu_command(const struct options *options);
int describe_vgpu_types(const struct selection *selection, bool only_creatable, bool verbose);
int show_scheduler_state(const struct selection *selection);
int mig_command(const struct options *options);
int change_instances(const struct selection *selection, const struct options *options);
int set_mig_mode(const struct selection *selection, const char *mode);
int reset_devices(const struct selection *selection);
int set_persistence(const struct selection *selection, const char *mode);

/* NVML's calls, as far as they are used. */
nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlShutdown(void);
const char *nvmlErrorString(nvmlReturn_t result);
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length);
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length);
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length);
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length);
nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length);
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor);
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture);
nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode);
nvmlReturn_t nvmlDeviceGetHostVgpuMode(nvmlDevice_t device, unsigned int *mode);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization);
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts);
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts);
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *temperature);
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode);
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode);
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending);
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter,
					 unsigned long long *count);
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending);
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, unsigned int *activation);
nvmlReturn_t labDeviceReset(nvmlDevice_t device);
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count);
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig_device);
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id);
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id);
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
						  nvmlGpuInstanceProfileInfo_v2_t *info);
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id,
						      nvmlGpuInstanceProfileInfo_v2_t *info);
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
							   nvmlPlacement_t *placements, unsigned int *count);
nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count);
nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance);
nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
						      const nvmlPlacement_t *placement, nvmlGpuInstance_t *instance);
nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance);
nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instances,
				       unsigned int *count);
nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance);
nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info);
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int profile,
							   unsigned int engines,
							   nvmlComputeInstanceProfileInfo_v2_t *info);
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned int id,
								unsigned int *count);
nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int id,
						  nvmlComputeInstance_t *created);
nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance);
nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int id,
						nvmlComputeInstance_t *instances, unsigned int *count);
nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
						   nvmlComputeInstance_t *found);
nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info);
nvmlReturn_t nvmlDeviceGetSupportedVgpus(nvmlDevice_t device, unsigned int *count, unsigned int *types);
nvmlReturn_t nvmlDeviceGetCreatableVgpus(nvmlDevice_t device, unsigned int *count, unsigned int *types);
nvmlReturn_t nvmlVgpuTypeGetName(nvmlVgpuTypeId_t id, char *name, unsigned int *size);
nvmlReturn_t nvmlVgpuTypeGetClass(nvmlVgpuTypeId_t id, char *class, unsigned int *size);
nvmlReturn_t nvmlVgpuTypeGetLicense(nvmlVgpuTypeId_t id, char *license, unsigned int size);
nvmlReturn_t nvmlVgpuTypeGetGpuInstanceProfileId(nvmlVgpuTypeId_t id, unsigned int *profile);
nvmlReturn_t nvmlVgpuTypeGetDeviceID(nvmlVgpuTypeId_t id, unsigned long long *device, unsigned long long *subsystem);
nvmlReturn_t nvmlVgpuTypeGetFramebufferSize(nvmlVgpuTypeId_t id, unsigned long long *size);
nvmlReturn_t nvmlVgpuTypeGetNumDisplayHeads(nvmlVgpuTypeId_t id, unsigned int *heads);
nvmlReturn_t nvmlVgpuTypeGetResolution(nvmlVgpuTypeId_t id, unsigned int head, unsigned int *width,
				       unsigned int *height);
nvmlReturn_t nvmlVgpuTypeGetFrameRateLimit(nvmlVgpuTypeId_t id, unsigned int *limit);
nvmlReturn_t nvmlVgpuTypeGetMaxInstances(nvmlDevice_t device, nvmlVgpuTypeId_t id, unsigned int *most);
nvmlReturn_t nvmlVgpuTypeGetMaxInstancesPerVm(nvmlVgpuTypeId_t id, unsigned int *most);
nvmlReturn_t nvmlVgpuTypeGetMaxInstancesPerGpuInstance(nvmlVgpuTypeMaxInstance_v1_t *info);
nvmlReturn_t nvmlVgpuTypeGetCapabilities(nvmlVgpuTypeId_t id, unsigned int capability, unsigned int *answer);
nvmlReturn_t nvmlDeviceGetVgpuTypeSupportedPlacements(nvmlDevice_t device, nvmlVgpuTypeId_t type,
						      nvmlVgpuPlacementList_v2_t *list);
nvmlReturn_t nvmlDeviceGetVgpuTypeCreatablePlacements(nvmlDevice_t device, nvmlVgpuTypeId_t type,
						      nvmlVgpuPlacementList_v2_t *list);
nvmlReturn_t nvmlDeviceGetVgpuHeterogeneousMode(nvmlDevice_t device, nvmlVgpuHeterogeneousMode_v1_t *mode);
nvmlReturn_t nvmlDeviceSetVgpuHeterogeneousMode(nvmlDevice_t device, const nvmlVgpuHeterogeneousMode_v1_t *mode);
nvmlReturn_t nvmlGpuInstanceSetVgpuHeterogeneousMode(nvmlGpuInstance_t instance,
						     const nvmlVgpuHeterogeneousMode_v1_t *mode);
nvmlReturn_t nvmlGetVgpuDriverCapabilities(unsigned int capability, unsigned int *answer);
nvmlReturn_t nvmlDeviceGetVgpuCapabilities(nvmlDevice_t device, unsigned int capability, unsigned int *answer);
nvmlReturn_t nvmlDeviceGetActiveVgpus(nvmlDevice_t device, unsigned int *count, nvmlVgpuInstance_t *instances);
nvmlReturn_t nvmlVgpuInstanceGetVmID(nvmlVgpuInstance_t instance, char *id, unsigned int size, unsigned int *kind);
nvmlReturn_t labVgpuInstanceGetVmName(nvmlVgpuInstance_t instance, char *name, unsigned int size);
nvmlReturn_t nvmlVgpuInstanceGetUUID(nvmlVgpuInstance_t instance, char *uuid, unsigned int size);
nvmlReturn_t nvmlVgpuInstanceGetMdevUUID(nvmlVgpuInstance_t instance, char *uuid, unsigned int size);
nvmlReturn_t nvmlVgpuInstanceGetType(nvmlVgpuInstance_t instance, unsigned int *type);
nvmlReturn_t nvmlVgpuInstanceGetGpuInstanceId(nvmlVgpuInstance_t instance, unsigned int *id);
nvmlReturn_t nvmlVgpuInstanceGetPlacementId(nvmlVgpuInstance_t instance, nvmlVgpuPlacementId_v1_t *placement);
nvmlReturn_t nvmlVgpuInstanceGetFrameRateLimit(nvmlVgpuInstance_t instance, unsigned int *limit);
nvmlReturn_t nvmlVgpuInstanceGetFbUsage(nvmlVgpuInstance_t instance, unsigned long long *usage);
nvmlReturn_t nvmlVgpuInstanceGetEccMode(nvmlVgpuInstance_t instance, unsigned int *mode);
nvmlReturn_t nvmlDeviceGetVgpuSchedulerState(nvmlDevice_t device, nvmlVgpuSchedulerGetState_t *state);

#endif /* SMI_H */
