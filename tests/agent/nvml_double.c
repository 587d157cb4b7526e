/* SPDX-License-Identifier: Apache-2.0 */
/* A libnvidia-ml.so.1 with two GPUs: an A40 with two vGPU types, and one that fell off the bus. */
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

struct pci_info {
	char bus_id_legacy[16];
	unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
};

struct memory {
	unsigned long long total, free, used;
};

static const unsigned int types[] = { 558, 562 };
static int a40, lost;

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
	*count = 2;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device)
{
	*device = index ? &lost : &a40;
	return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
	if (device == &lost)
		return GPU_IS_LOST;
	strcpy(info->bus_id, "00000000:C1:00.0");
	return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length)
{
	strncpy(name, "NVIDIA A40", length);
	return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length)
{
	strncpy(uuid, "GPU-f124aa59-d406-d45b-9481-8fcd694e6c9e", length);
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	memory->total = 46068ULL << 20;
	return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending)
{
	return NOT_SUPPORTED;
}

int nvmlDeviceGetSupportedVgpus(void *device, unsigned int *count, unsigned int *found)
{
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
