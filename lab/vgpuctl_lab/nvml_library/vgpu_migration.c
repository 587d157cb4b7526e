/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVML says about moves of vGPUs: metadata of both sides, and their comparison. Versions of the branches are
 * those of vgpuctl/catalog/vgpu_versions.py, as major << 16 | minor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"

enum { CAN_MIGRATE = 0x1 };
#define OPAQUE_SIZE 64

enum { WAY_COLD = 0x1, ALL_WAYS = 0xf };
enum { LIMIT_HOST_DRIVER = 0x1, LIMIT_GUEST_DRIVER = 0x2, LIMIT_GPU = 0x4 };

static const struct {
	unsigned int branch;
	nvmlVgpuVersion_t versions;
} branches[] = {
	{ 535, { 0x70001, 0x120001 } }, { 550, { 0x70001, 0x140001 } }, { 555, { 0x70001, 0x150001 } },
	{ 560, { 0x70001, 0x160001 } }, { 565, { 0x70001, 0x170001 } }, { 570, { 0x120001, 0x180002 } },
	{ 575, { 0x70001, 0x190001 } }, { 580, { 0x120001, 0x1a0001 } }, { 590, { 0x180001, 0x1b0001 } },
	{ 595, { 0x180001, 0x1c0001 } },
};

/* The versions that a driver negotiates; a branch that is not known has those of the one before. */
static nvmlVgpuVersion_t versions_of(const char *driver)
{
	unsigned int branch = atoi(driver), found = 0;

	for (unsigned int i = 0; i < sizeof(branches) / sizeof(*branches); i++)
		if (branches[i].branch <= branch)
			found = i;
	return branches[found].versions;
}

static nvmlReturn_t view_sharing_gpu(struct view *view, nvmlDevice_t device)
{
	nvmlReturn_t ret = view_gpu(view, device);

	return ret == NVML_SUCCESS && !gpu_has_types(view->gpu) ? NVML_ERROR_NOT_SUPPORTED : ret;
}

/* None with the card's fault `move-unsupported`. */
static unsigned int migration_caps(const struct lab_line *card)
{
	return lab_number(card, "can_move", 1) ? CAN_MIGRATE : 0;
}

/* Both calls of metadata: the first tells the size. */
static nvmlReturn_t tell_bytes(const void *from, unsigned int needed, void *to, unsigned int *size)
{
	unsigned int room = *size;

	*size = needed;
	if (!to || room < needed)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(to, from, needed);
	return NVML_SUCCESS;
}

API nvmlDeviceGetVgpuMetadata(nvmlDevice_t device, nvmlVgpuPgpuMetadata_t *metadata, unsigned int *size)
{
	struct {
		nvmlVgpuPgpuMetadata_t known;
		char more[OPAQUE_SIZE - 4];
	} told = { .known = { .version = 1, .revision = 1, .opaqueDataSize = OPAQUE_SIZE } };
	VIEW(view);
	nvmlReturn_t ret = size ? view_sharing_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		ret = nvmlSystemGetDriverVersion(told.known.hostDriverVersion, sizeof(told.known.hostDriverVersion));
	if (ret != NVML_SUCCESS)
		return ret;
	told.known.pgpuVirtualizationCaps = migration_caps(view.card);
	told.known.hostSupportedVgpuRange = versions_of(told.known.hostDriverVersion);
	snprintf(told.known.opaqueData, OPAQUE_SIZE, "%04x", gpu_device_id(view.gpu));
	return tell_bytes(&told, sizeof(told), metadata, size);
}

API nvmlVgpuInstanceGetMetadata(nvmlVgpuInstance_t instance, nvmlVgpuMetadata_t *metadata, unsigned int *size)
{
	struct {
		nvmlVgpuMetadata_t known;
		char more[OPAQUE_SIZE - 4];
	} told = { .known = { .version = 1, .revision = 1, .guestInfoState = 1, .opaqueDataSize = OPAQUE_SIZE } };
	const struct lab_line *vgpu;
	nvmlVgpuVersion_t host, guest;
	VIEW(view);
	nvmlReturn_t ret = size ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		ret = nvmlSystemGetDriverVersion(told.known.hostDriverVersion, sizeof(told.known.hostDriverVersion));
	if (ret == NVML_SUCCESS)
		ret = nvmlVgpuInstanceGetVmDriverVersion(instance, told.known.guestDriverVersion,
							 sizeof(told.known.guestDriverVersion));
	if (ret != NVML_SUCCESS)
		return ret;
	told.known.vgpuVirtualizationCaps = migration_caps(view.card);
	host = versions_of(told.known.hostDriverVersion);
	guest = versions_of(told.known.guestDriverVersion);
	told.known.guestVgpuVersion = guest.maxVersion < host.maxVersion ? guest.maxVersion : host.maxVersion;
	snprintf(told.known.opaqueData, OPAQUE_SIZE, "%04x", gpu_device_id(view.gpu));
	return tell_bytes(&told, sizeof(told), metadata, size);
}

/* Not of capacity, and not of ECC: NVIDIA's driver notices a difference of that when the move has begun. */
API nvmlGetVgpuCompatibility(const nvmlVgpuMetadata_t *vgpu, const nvmlVgpuPgpuMetadata_t *gpu,
			     nvmlVgpuPgpuCompatibility_t *compatibility)
{
	nvmlReturn_t injected = lab_injected(__func__);
	unsigned int version;

	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (injected)
		return injected;
	if (!vgpu || !gpu || !compatibility || vgpu->opaqueDataSize != OPAQUE_SIZE || gpu->opaqueDataSize != OPAQUE_SIZE)
		return NVML_ERROR_INVALID_ARGUMENT;
	version = vgpu->guestVgpuVersion;
	*compatibility = (nvmlVgpuPgpuCompatibility_t){ ALL_WAYS, 0 };
	if (strncmp(vgpu->opaqueData, gpu->opaqueData, 4))
		*compatibility = (nvmlVgpuPgpuCompatibility_t){ WAY_COLD, LIMIT_GPU };
	if (version > gpu->hostSupportedVgpuRange.maxVersion) {
		compatibility->vgpuVmCompatibility &= WAY_COLD;
		compatibility->compatibilityLimitCode |= LIMIT_HOST_DRIVER;
	} else if (version < gpu->hostSupportedVgpuRange.minVersion) {
		compatibility->vgpuVmCompatibility = 0;
		compatibility->compatibilityLimitCode |= LIMIT_GUEST_DRIVER;
	}
	return NVML_SUCCESS;
}

API nvmlDeviceGetPgpuMetadataString(nvmlDevice_t device, char *metadata, unsigned int *size)
{
	char driver[80], told[128];
	VIEW(view);
	nvmlReturn_t ret = size ? view_sharing_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		ret = nvmlSystemGetDriverVersion(driver, sizeof(driver));
	if (ret != NVML_SUCCESS)
		return ret;
	snprintf(told, sizeof(told), "%04x-%s", gpu_device_id(view.gpu), driver);
	return tell_bytes(told, strlen(told) + 1, metadata, size);
}

API nvmlGetVgpuVersion(nvmlVgpuVersion_t *supported, nvmlVgpuVersion_t *current)
{
	nvmlReturn_t ret = lab_injected(__func__);
	char driver[80];

	if (ret == NVML_SUCCESS)
		ret = supported && current ? nvmlSystemGetDriverVersion(driver, sizeof(driver)) : NVML_ERROR_INVALID_ARGUMENT;
	if (ret == NVML_SUCCESS)
		*supported = *current = versions_of(driver);
	return ret;
}

/* That of the card's fault `move-state`; without it the framebuffer of the vGPU's type, as if all of it were used. */
API nvmlVgpuInstanceGetRuntimeStateSize(nvmlVgpuInstance_t instance, nvmlVgpuRuntimeState_v1_t *state)
{
	unsigned int mib;
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = state ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (state->version != NVML_STRUCT_VERSION(nvmlVgpuRuntimeState_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	mib = lab_number(view.card, "state_mib", 0);
	state->size = (mib ? mib : lab_number(vgpu, "framebuffer", 0)) * MIB;
	return NVML_SUCCESS;
}

/* On Hopper, and from Ada on, vGPU hosts run the GPU's own firmware. */
API nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled, unsigned int *by_default)
{
	VIEW(view);
	nvmlReturn_t ret = enabled && by_default ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	unsigned int id;

	if (ret != NVML_SUCCESS)
		return ret;
	id = gpu_device_id(view.gpu);
	*enabled = *by_default = id >> 8 == 0x23 || id >= 0x2600;
	return NVML_SUCCESS;
}
