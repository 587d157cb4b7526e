/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 with three GPUs: an A40 with two vGPU types, one that fell off the bus, and an
 * A100 in MIG mode with places for instances of one profile. It checks what pynvml hands over. The A100 has two
 * NVLinks to an NVSwitch, one to the A40 and one that is not active; no link of the A40 can be asked.
 */
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

struct pci_info {
	char bus_id_legacy[16];
	unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
};

struct memory {
	unsigned long long total, free, used;
};

static const unsigned int types[] = { 558, 562 };
static int a40, lost, a100;

int nvmlInitWithFlags(unsigned int flags)
{
	return flags ? NOT_SUPPORTED : SUCCESS;
}

int nvmlShutdown(void)
{
	return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	strncpy(version, "550.127.06", length);
	return SUCCESS;
}

int nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	strncpy(version, "12.550.127.06", length);
	return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
	*count = 3;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device)
{
	int *devices[] = { &a40, &lost, &a100 };

	*device = devices[index];
	return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
	if (device == &lost)
		return GPU_IS_LOST;
	strcpy(info->bus_id, device == &a40 ? "00000000:C1:00.0" : "00000000:C2:00.0");
	return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length)
{
	strncpy(name, device == &a40 ? "NVIDIA A40" : "NVIDIA A100-PCIE-40GB", length);
	return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length)
{
	strncpy(uuid, "GPU-f124aa59-d406-d45b-9481-8fcd694e6c9e", length);
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	memory->total = (device == &a40 ? 46068ULL : 40960ULL) << 20;
	return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending)
{
	if (device != &a100)
		return NOT_SUPPORTED;
	*current = 1;
	*pending = 0;
	return SUCCESS;
}

int nvmlDeviceGetSupportedVgpus(void *device, unsigned int *count, unsigned int *found)
{
	if (device == &a100)
		return NOT_SUPPORTED;
	if (*count < 2) {
		*count = 2;
		return INSUFFICIENT_SIZE;
	}
	memcpy(found, types, sizeof(types));
	return SUCCESS;
}

int nvmlVgpuTypeGetName(unsigned int type, char *name, unsigned int *length)
{
	strncpy(name, type == 558 ? "NVIDIA A40-2Q" : "NVIDIA A40-8Q", *length);
	return SUCCESS;
}

int nvmlVgpuTypeGetFramebufferSize(unsigned int type, unsigned long long *size)
{
	*size = (type == 558 ? 2ULL : 8ULL) << 30;
	return SUCCESS;
}

int nvmlVgpuTypeGetMaxInstances(void *device, unsigned int type, unsigned int *maximum)
{
	*maximum = type == 558 ? 24 : 6;
	return SUCCESS;
}

struct profile {
	unsigned int id, p2p, slices, instances, engines[6];
	unsigned long long memory_mib;
};

struct placement {
	unsigned int start, size;
};

struct instance_info {
	void *device;
	unsigned int id, profile;
	struct placement placement;
};

struct scheduler {
	unsigned int policy, arr;
	union {
		struct { unsigned int average, slice; } arr_on;
		struct { unsigned int slice; } arr_off;
	} parameters;
};

struct { struct placement placement; int exists, computes; } instances[2];

/* Version 2 of the call, with names, came later. */
int nvmlDeviceGetGpuInstanceProfileInfo(void *device, unsigned int profile, struct profile *info)
{
	static const struct profile one = { 20, 0, 1, 2, { 14 }, 4864 };

	if (profile != 7)	/* 1_SLICE_REV1 */
		return profile < 8 ? NOT_SUPPORTED : INVALID_ARGUMENT;
	*info = one;
	return SUCCESS;
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *device, unsigned int id, struct placement *placements,
						  unsigned int *count)
{
	if (placements && *count < 2)
		return INSUFFICIENT_SIZE;
	*count = 2;
	if (placements) {
		placements[0] = (struct placement){ 6, 1 };
		placements[1] = (struct placement){ 2, 1 };
	}
	return SUCCESS;
}

int nvmlDeviceGetGpuInstances(void *device, unsigned int id, void **found, unsigned int *count)
{
	*count = 0;
	for (int i = 0; i < 2; i++)
		if (instances[i].exists)
			found[(*count)++] = &instances[i];
	return SUCCESS;
}

int nvmlGpuInstanceGetInfo(void *instance, struct instance_info *info)
{
	int number = (char *)instance == (char *)&instances[1];

	*info = (struct instance_info){ &a100, 7 + number, 20, instances[number].placement };
	return SUCCESS;
}

int nvmlDeviceCreateGpuInstanceWithPlacement(void *device, unsigned int id, const struct placement *placement,
					     void **instance)
{
	int number = instances[0].exists;

	if (device != &a100 || id != 20 || placement->size != 1)
		return INVALID_ARGUMENT;
	instances[number].placement = *placement;
	instances[number].exists = 1;
	*instance = &instances[number];
	return SUCCESS;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(void *instance, unsigned int profile, unsigned int engines,
						 unsigned int info[9])
{
	if (profile || engines)
		return NOT_SUPPORTED;
	info[0] = 5;	/* id */
	info[1] = 1;	/* slices */
	info[2] = 1;	/* most */
	return SUCCESS;
}

int nvmlGpuInstanceCreateComputeInstance(void *instance, unsigned int id, void **compute)
{
	if (id != 5)
		return INVALID_ARGUMENT;
	instances[(char *)instance == (char *)&instances[1]].computes++;
	*compute = instance;
	return SUCCESS;
}

int nvmlGpuInstanceGetComputeInstances(void *instance, unsigned int id, void **found, unsigned int *count)
{
	*count = instances[(char *)instance == (char *)&instances[1]].computes;
	for (unsigned int i = 0; i < *count; i++)
		found[i] = instance;
	return SUCCESS;
}

int nvmlDeviceGetVgpuSchedulerState(void *device, struct scheduler *state)
{
	if (device != &a100)
		return NOT_SUPPORTED;
	state->policy = 2;
	state->arr = 1;
	state->parameters.arr_off.slice = 4000000;
	return SUCCESS;
}

/* policy 3, slice 5 ms */
int nvmlDeviceSetVgpuSchedulerState(void *device, const struct scheduler *state)
{
	return state->policy == 3 && state->arr == 1 && state->parameters.arr_off.slice == 5000000 ? SUCCESS
											   : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned int link, unsigned int *is_active)
{
	if (device != &a100)
		return NOT_SUPPORTED;
	if (link > 3)
		return INVALID_ARGUMENT;
	*is_active = link < 3;
	return SUCCESS;
}

int nvmlDeviceGetNvLinkVersion(void *device, unsigned int link, unsigned int *version)
{
	*version = 3;
	return link < 4 && device == &a100 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned int link, unsigned int *type)
{
	*type = link < 2 ? 2 : 0;
	return link < 3 && device == &a100 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned int link, struct pci_info *info)
{
	strcpy(info->bus_id, link < 2 ? "00000000:05:00.0" : "00000000:C1:00.0");
	return link < 3 && device == &a100 ? SUCCESS : INVALID_ARGUMENT;
}

struct fabric_info {
	unsigned int version;
	unsigned char cluster[16];
	int status;
	unsigned int clique;
	unsigned char state;
	unsigned int health;
};

/* Completed; the bandwidth is degraded, the configuration is right. */
int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric_info *info)
{
	if (device != &a100)
		return NOT_SUPPORTED;
	if (info->version != (sizeof(*info) | 2 << 24))
		return INVALID_ARGUMENT;
	memset(info->cluster, 0xab, sizeof(info->cluster));
	info->status = SUCCESS;
	info->clique = 7;
	info->state = 3;
	info->health = 0x101;
	return SUCCESS;
}

int nvmlDeviceGetModuleId(void *device, unsigned int *module)
{
	*module = 5;
	return device == &a100 ? SUCCESS : NOT_SUPPORTED;
}
