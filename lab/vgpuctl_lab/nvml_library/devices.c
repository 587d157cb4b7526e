/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs there are, and what does not change on them: names, addresses, identity. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lab.h"

API nvmlDeviceGetCount_v2(unsigned int *count)
{
	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (lab_injected(__func__) != NVML_SUCCESS)
		return lab_injected(__func__);
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = lab_gpu_count();
	return NVML_SUCCESS;
}

API nvmlDeviceGetCount(unsigned int *count)
{
	return nvmlDeviceGetCount_v2(count);
}

API nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	VIEW(view);
	nvmlReturn_t ret = device ? view_index(&view, index) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*device = gpu_handle(index);
	return ret;
}

API nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* Takes `00000000:C1:00.0`, `0000:c1:00.0` and `c1:00.0`. */
API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
	unsigned int domain = 0, bus, slot, function = 0;

	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!bus_id || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
		domain = function = 0;
		if (sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) < 2)
			return NVML_ERROR_INVALID_ARGUMENT;
	}
	for (unsigned int i = 0; i < lab_gpu_count(); i++) {
		const struct gpu *gpu = lab_gpu(i);

		if (gpu->domain == domain && gpu->bus == bus && gpu->slot == slot && !function)
			return nvmlDeviceGetHandleByIndex_v2(i, device);
	}
	return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

static nvmlReturn_t find_by_word(const char *key, const char *value, nvmlDevice_t *device)
{
	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!value || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < lab_gpu_count(); i++) {
		char known[96];

		if (lab_word(lab_gpu(i)->card, key, known, sizeof(known)) && !strcasecmp(known, value))
			return nvmlDeviceGetHandleByIndex_v2(i, device);
	}
	return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	return find_by_word("serial", serial, device);
}

/* A MIG device's UUID is the one of the state's line that gives it. */
static nvmlReturn_t find_mig_device(const char *uuid, nvmlDevice_t *device)
{
	for (unsigned int i = 0; i < lab_gpu_count(); i++) {
		VIEW(view);
		const struct lab_line *ci = NULL;

		if (view_index(&view, i) != NVML_SUCCESS)
			continue;
		while ((ci = view_next(&view, ci, "ci"))) {
			struct target target = { i, lab_number(ci, "gi", 0), lab_number(ci, "id", 0) };
			char known[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

			mig_uuid(view.gpu, target.gi, target.ci, known);
			if (!strcasecmp(known, uuid)) {
				*device = mig_device_handle(target);
				return NVML_SUCCESS;
			}
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	if (lab_is_open() && uuid && device && !strncasecmp(uuid, "MIG-", 4))
		return find_mig_device(uuid, device);
	return find_by_word("uuid", uuid, device);
}

API nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	VIEW(view);
	nvmlReturn_t ret = index ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*index = view.target.gpu;
	return ret;
}

API nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	VIEW(view);
	nvmlReturn_t ret = view_device(&view, device);
	const struct lab_line *gi;
	char whole[192];

	if (ret != NVML_SUCCESS)
		return ret;
	snprintf(whole, sizeof(whole), "%s", view.gpu->card->name);
	if (view.target.ci != NO_NUMBER) {
		gi = gi_profile(view.gpu, lab_number(view_gi(&view, view.target.gi), "profile", NO_NUMBER));
		snprintf(whole + strlen(whole), sizeof(whole) - strlen(whole), " MIG %s", gi ? gi->name : "");
	}
	return copy_text(name, length, whole);
}

API nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	VIEW(view);
	nvmlReturn_t ret = view_device(&view, device);
	char known[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

	if (ret != NVML_SUCCESS)
		return ret;
	if (view.target.ci != NO_NUMBER)
		mig_uuid(view.gpu, view.target.gi, view.target.ci, known);
	else if (!lab_word(view.gpu->card, "uuid", known, sizeof(known)))
		return NVML_ERROR_NOT_SUPPORTED;
	return copy_text(uuid, length, known);
}

API nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
	VIEW(view);
	nvmlReturn_t ret = view_gpu(&view, device);
	char known[32];

	if (ret != NVML_SUCCESS)
		return ret;
	return lab_word(view.gpu->card, "serial", known, sizeof(known)) ? copy_text(serial, length, known)
									 : NVML_ERROR_NOT_SUPPORTED;
}

/* N of /dev/nvidiaN: the GPU's place in the table, whatever drivers the others have. */
API nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	VIEW(view);
	nvmlReturn_t ret = minor ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*minor = lab_minor(view.target.gpu);
	return ret;
}

static void read_ids(const struct gpu *gpu, const char *key, unsigned int *id)
{
	unsigned int vendor = 0, device = 0;
	char text[16];

	lab_word(gpu->card, key, text, sizeof(text));
	sscanf(text, "%x:%x", &vendor, &device);
	*id = device << 16 | vendor;
}

API nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
	VIEW(view);
	nvmlReturn_t ret = info ? view_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	memset(info, 0, sizeof(*info));
	info->domain = view.gpu->domain;
	info->bus = view.gpu->bus;
	info->device = view.gpu->slot;
	read_ids(view.gpu, "device", &info->pciDeviceId);
	read_ids(view.gpu, "subsystem", &info->pciSubSystemId);
	snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "%04X:%02X:%02X.0", info->domain & 0xffff, info->bus,
		 info->device);
	snprintf(info->busId, sizeof(info->busId), "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
	return NVML_SUCCESS;
}

API nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *info)
{
	nvmlPciInfo_t known;
	unsigned int class;
	char text[16];
	VIEW(view);
	nvmlReturn_t ret = info ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (info->version != NVML_STRUCT_VERSION(nvmlPciInfoExt_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	ret = nvmlDeviceGetPciInfo_v3(device, &known);
	if (ret != NVML_SUCCESS)
		return ret;
	lab_word(view.gpu->card, "class", text, sizeof(text));
	class = strtoul(text, NULL, 16);
	info->domain = known.domain;
	info->bus = known.bus;
	info->device = known.device;
	info->pciDeviceId = known.pciDeviceId;
	info->pciSubSystemId = known.pciSubSystemId;
	info->baseClass = class >> 16;
	info->subClass = class >> 8 & 0xff;
	memcpy(info->busId, known.busId, sizeof(info->busId));
	return NVML_SUCCESS;
}

/* NVML counts the architectures from Kepler's 2 on. */
API nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
	static const char *const names[] = { "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper",
					     "blackwell" };
	char known[32];
	VIEW(view);
	nvmlReturn_t ret = architecture ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	lab_word(view.gpu->card, "architecture", known, sizeof(known));
	for (unsigned int i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strncmp(known, names[i], strlen(names[i]))) {
			*architecture = 2 + i;
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *id)
{
	VIEW(view);
	nvmlReturn_t ret = id ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*id = view.gpu->domain << 16 | view.gpu->bus << 8;
	return ret;
}

API nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
	VIEW(view);
	nvmlReturn_t ret = view_gpu(&view, device);
	char known[32];

	if (ret != NVML_SUCCESS)
		return ret;
	return lab_word(view.gpu->card, "vbios", known, sizeof(known)) ? copy_text(version, length, known)
									: NVML_ERROR_NOT_SUPPORTED;
}

/* 3 (host vGPU) for a board that offers vGPUs, 0 (none) for the others; SR-IOV or not is another question. */
API nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*mode = lab_next_below(lab_boards(), view.gpu->card, "type") ? 3 : 0;
	return ret;
}

API nvmlDeviceGetHostVgpuMode(nvmlDevice_t device, unsigned int *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!lab_next_below(lab_boards(), view.gpu->card, "type"))
		return NVML_ERROR_NOT_SUPPORTED;
	*mode = lab_number(view.gpu->card, "vfs", 0) > 0;
	return NVML_SUCCESS;
}
