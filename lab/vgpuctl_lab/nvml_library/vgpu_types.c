/* SPDX-License-Identifier: Apache-2.0 */
/* vGPU types: what the card table says of each, and which of them the kernel module still gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"

#define MOST_TYPES 128
#define BAR1_MIB 256
#define CAPABILITIES 5
#define MOST_PER_VM 16

/* Answer with a list as NVML does: count is what there is room for, and becomes what there is. */
nvmlReturn_t tell_ids(const unsigned int *ids, unsigned int found, unsigned int *count, unsigned int *told)
{
	unsigned int room = *count;

	*count = found;
	if (room < found || (found && !told))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	if (found)
		memcpy(told, ids, found * sizeof(*ids));
	return NVML_SUCCESS;
}

const struct lab_line *find_type_of(const struct gpu *gpu, unsigned int id)
{
	return lab_line_below(lab_boards(), gpu->card, "type", id);
}

/* A type by its id alone: it is the same on every GPU that has it. */
const struct lab_line *find_type(unsigned int id)
{
	for (unsigned int i = 0; i < lab_gpu_count(); i++) {
		const struct lab_line *line = find_type_of(lab_gpu(i), id);

		if (line)
			return line;
	}
	return NULL;
}

API nvmlDeviceGetSupportedVgpus(nvmlDevice_t device, unsigned int *count, unsigned int *types)
{
	unsigned int ids[MOST_TYPES], found = 0;
	VIEW(view);
	nvmlReturn_t ret = count ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	const struct lab_line *line;

	if (ret != NVML_SUCCESS)
		return ret;
	line = view.gpu->card;
	while ((line = lab_next_below(lab_boards(), line, "type")) && found < MOST_TYPES)
		ids[found++] = strtoul(line->first, NULL, 10);
	return found ? tell_ids(ids, found, count, types) : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t read_creatable(const struct view *view, unsigned int *ids, unsigned int *found)
{
	struct lab_answer answer;
	char gi[24] = "";
	nvmlReturn_t ret;

	if (view->target.gi != NO_NUMBER)
		snprintf(gi, sizeof(gi), " gi=%u", view->target.gi);
	ret = lab_control(&answer, "creatable %s%s", view->gpu->address, gi);
	*found = ret == NVML_SUCCESS ? lab_answer_numbers(&answer, "types", ids, MOST_TYPES) : 0;
	return ret;
}

API nvmlDeviceGetCreatableVgpus(nvmlDevice_t device, unsigned int *count, unsigned int *types)
{
	unsigned int ids[MOST_TYPES], found;
	VIEW(view);
	nvmlReturn_t ret = count ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		ret = read_creatable(&view, ids, &found);
	return ret == NVML_SUCCESS ? tell_ids(ids, found, count, types) : ret;
}

API nvmlGpuInstanceGetCreatableVgpus(nvmlGpuInstance_t instance, nvmlVgpuTypeIdInfo_v1_t *info)
{
	unsigned int ids[MOST_TYPES], found;
	VIEW(view);
	nvmlReturn_t ret = info ? view_gpu_instance(&view, instance) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS && info->version != NVML_STRUCT_VERSION(nvmlVgpuTypeIdInfo_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (ret == NVML_SUCCESS)
		ret = read_creatable(&view, ids, &found);
	return ret == NVML_SUCCESS ? tell_ids(ids, found, &info->vgpuCount, info->vgpuTypeIds) : ret;
}

static nvmlReturn_t look_up(unsigned int id, const void *wanted, const struct lab_line **type)
{
	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	*type = wanted ? find_type(id) : NULL;
	return *type ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t tell_number(unsigned int id, const char *key, unsigned int missing, unsigned int *value)
{
	const struct lab_line *type;
	nvmlReturn_t ret = look_up(id, value, &type);

	if (ret == NVML_SUCCESS)
		*value = lab_number(type, key, missing);
	return ret;
}

static nvmlReturn_t tell_word(unsigned int id, const char *key, char *value, unsigned int size)
{
	const struct lab_line *type;
	nvmlReturn_t ret = look_up(id, value, &type);
	char known[128];

	if (ret != NVML_SUCCESS)
		return ret;
	return lab_word(type, key, known, sizeof(known)) ? copy_text(value, size, known) : NVML_ERROR_NOT_SUPPORTED;
}

#define look_up(id, wanted, type) INJECTED(look_up(id, wanted, type))
#define tell_number(id, key, missing, value) INJECTED(tell_number(id, key, missing, value))
#define tell_word(id, key, value, size) INJECTED(tell_word(id, key, value, size))

API nvmlVgpuTypeGetClass(nvmlVgpuTypeId_t id, char *class, unsigned int *size)
{
	return size ? tell_word(id, "class", class, *size) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlVgpuTypeGetName(nvmlVgpuTypeId_t id, char *name, unsigned int *size)
{
	const struct lab_line *type;
	nvmlReturn_t ret = size ? look_up(id, name, &type) : NVML_ERROR_INVALID_ARGUMENT;

	return ret == NVML_SUCCESS ? copy_text(name, *size, type->name) : ret;
}

API nvmlVgpuTypeGetLicense(nvmlVgpuTypeId_t id, char *license, unsigned int size)
{
	return tell_word(id, "license", license, size);
}

API nvmlVgpuTypeGetGpuInstanceProfileId(nvmlVgpuTypeId_t id, unsigned int *profile)
{
	return tell_number(id, "gi", NVML_NO_GPU_INSTANCE, profile);
}

/* What a guest sees: `0x223510de`, `0x14d810de`. */
API nvmlVgpuTypeGetDeviceID(nvmlVgpuTypeId_t id, unsigned long long *device, unsigned long long *subsystem)
{
	const struct lab_line *type;
	nvmlReturn_t ret = look_up(id, device, &type);
	unsigned int guest = 0, guest_subsystem = 0;
	char text[16];

	if (ret != NVML_SUCCESS || !subsystem)
		return ret ? ret : NVML_ERROR_INVALID_ARGUMENT;
	if (!lab_word(type, "vdev", text, sizeof(text)))
		return NVML_ERROR_NOT_SUPPORTED;
	sscanf(text, "%x:%x", &guest, &guest_subsystem);
	*device = guest << 16 | 0x10de;
	*subsystem = guest_subsystem << 16 | 0x10de;
	return NVML_SUCCESS;
}

API nvmlVgpuTypeGetFramebufferSize(nvmlVgpuTypeId_t id, unsigned long long *size)
{
	const struct lab_line *type;
	nvmlReturn_t ret = look_up(id, size, &type);

	if (ret == NVML_SUCCESS)
		*size = lab_number(type, "framebuffer", 0) * MIB;
	return ret;
}

API nvmlVgpuTypeGetNumDisplayHeads(nvmlVgpuTypeId_t id, unsigned int *heads)
{
	return tell_number(id, "heads", 1, heads);
}

API nvmlVgpuTypeGetResolution(nvmlVgpuTypeId_t id, unsigned int head, unsigned int *width, unsigned int *height)
{
	const struct lab_line *type;
	nvmlReturn_t ret = look_up(id, width, &type);
	char text[24];

	if (ret != NVML_SUCCESS)
		return ret;
	if (!height || head >= lab_number(type, "heads", 1))
		return NVML_ERROR_INVALID_ARGUMENT;
	*width = *height = 0;
	if (lab_word(type, "resolution", text, sizeof(text)))
		sscanf(text, "%ux%u", width, height);
	return NVML_SUCCESS;
}

API nvmlVgpuTypeGetFrameRateLimit(nvmlVgpuTypeId_t id, unsigned int *limit)
{
	return tell_number(id, "frl", 60, limit);
}

API nvmlVgpuTypeGetMaxInstances(nvmlDevice_t device, nvmlVgpuTypeId_t id, unsigned int *most)
{
	VIEW(view);
	nvmlReturn_t ret = most ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	const struct lab_line *type;

	if (ret != NVML_SUCCESS)
		return ret;
	type = find_type_of(view.gpu, id);
	if (!type)
		return NVML_ERROR_INVALID_ARGUMENT;
	*most = lab_number(type, "max", 0);
	return NVML_SUCCESS;
}

/* NVIDIA documents several vGPUs in one VM for Q and C types. */
API nvmlVgpuTypeGetMaxInstancesPerVm(nvmlVgpuTypeId_t id, unsigned int *most)
{
	const struct lab_line *type;
	nvmlReturn_t ret = look_up(id, most, &type);
	char class[16];

	if (ret != NVML_SUCCESS)
		return ret;
	lab_word(type, "class", class, sizeof(class));
	*most = !strcmp(class, "Quadro") || !strcmp(class, "Compute") ? MOST_PER_VM : 1;
	return NVML_SUCCESS;
}

API nvmlVgpuTypeGetMaxInstancesPerGpuInstance(nvmlVgpuTypeMaxInstance_v1_t *info)
{
	const struct lab_line *type;
	nvmlReturn_t ret = info ? look_up(info->vgpuTypeId, info, &type) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (info->version != NVML_STRUCT_VERSION(nvmlVgpuTypeMaxInstance_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	info->maxInstancePerGI = lab_number(type, "per_gi", 0);
	return NVML_SUCCESS;
}

API nvmlVgpuTypeGetBAR1Info(nvmlVgpuTypeId_t id, nvmlVgpuTypeBar1Info_v1_t *info)
{
	const struct lab_line *type;
	nvmlReturn_t ret = look_up(id, info, &type);

	if (ret != NVML_SUCCESS)
		return ret;
	if (info->version != NVML_STRUCT_VERSION(nvmlVgpuTypeBar1Info_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	info->bar1Size = BAR1_MIB;
	return NVML_SUCCESS;
}

/* The part of the framebuffer that the guest does not get, in bytes. */
API nvmlVgpuTypeGetFbReservation(nvmlVgpuTypeId_t id, unsigned int *size)
{
	const struct lab_line *type;
	nvmlReturn_t ret = look_up(id, size, &type);
	unsigned int guest;

	if (ret != NVML_SUCCESS)
		return ret;
	guest = lab_number(type, "guest_framebuffer", NO_NUMBER);
	if (guest == NO_NUMBER)
		return NVML_ERROR_NOT_SUPPORTED;
	*size = (lab_number(type, "framebuffer", 0) - guest) * MIB;
	return NVML_SUCCESS;
}

/* No emulated type has NVLink, GPUDirect or a rule of exclusiveness. */
API nvmlVgpuTypeGetCapabilities(nvmlVgpuTypeId_t id, unsigned int capability, unsigned int *answer)
{
	const struct lab_line *type;
	nvmlReturn_t ret = look_up(id, answer, &type);

	if (ret != NVML_SUCCESS || capability >= CAPABILITIES)
		return ret ? ret : NVML_ERROR_INVALID_ARGUMENT;
	*answer = 0;
	return NVML_SUCCESS;
}
