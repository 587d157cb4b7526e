/* SPDX-License-Identifier: Apache-2.0 */
/* vGPUs of running VMs: NVML calls a vGPU active when a VM has opened it. */
#include <stdio.h>
#include <string.h>

#include "lab.h"

#define FIRST_INSTANCE 0xc1d00000U	/* numbers like 3251634190, as NVIDIA's driver gives them */
#define VM_ID_IS_UUID 1

unsigned int vgpu_gi(const struct lab_line *vgpu)
{
	return lab_number(vgpu, "gi", NVML_NO_GPU_INSTANCE);
}

bool vgpu_is_active(const struct lab_line *vgpu)
{
	return lab_number(vgpu, "in_use", 0) == 1;
}

static unsigned int instance_of(const struct lab_line *vgpu)
{
	return FIRST_INSTANCE + lab_number(vgpu, "id", 0);
}

/* Look at the GPU that an instance is on, and at its line of the state. */
nvmlReturn_t view_vgpu(struct view *view, nvmlVgpuInstance_t instance, const struct lab_line **vgpu)
{
	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	for (unsigned int i = 0; i < lab_gpu_count(); i++) {
		nvmlReturn_t ret = view_index(view, i);

		*vgpu = NULL;
		while (ret == NVML_SUCCESS && (*vgpu = view_next(view, *vgpu, "vgpu")))
			if (vgpu_is_active(*vgpu) && instance_of(*vgpu) == instance)
				return NVML_SUCCESS;
		view_close(view);
	}
	return instance ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

unsigned int list_active(const struct view *view, unsigned int *instances)
{
	const struct lab_line *vgpu = NULL;
	unsigned int found = 0;

	while ((vgpu = view_next(view, vgpu, "vgpu")) && found < MOST_VGPUS)
		if (vgpu_is_active(vgpu) && (view->target.gi == NO_NUMBER || vgpu_gi(vgpu) == view->target.gi))
			instances[found++] = instance_of(vgpu);
	return found;
}

API nvmlDeviceGetActiveVgpus(nvmlDevice_t device, unsigned int *count, nvmlVgpuInstance_t *instances)
{
	unsigned int ids[MOST_VGPUS];
	VIEW(view);
	nvmlReturn_t ret = count ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!lab_next_below(lab_boards(), view.gpu->card, "type"))
		return NVML_ERROR_NOT_SUPPORTED;
	return tell_ids(ids, list_active(&view, ids), count, instances);
}

API nvmlGpuInstanceGetActiveVgpus(nvmlGpuInstance_t instance, nvmlActiveVgpuInstanceInfo_v1_t *info)
{
	unsigned int ids[MOST_VGPUS];
	VIEW(view);
	nvmlReturn_t ret = info ? view_gpu_instance(&view, instance) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (info->version != NVML_STRUCT_VERSION(nvmlActiveVgpuInstanceInfo_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return tell_ids(ids, list_active(&view, ids), &info->vgpuCount, info->vgpuInstances);
}

/* The word after an option on a process's command line, or what follows `KEY=` in that word up to a comma. */
bool vm_option(unsigned int pid, const char *option, const char *key, char *value, size_t size)
{
	char path[64], text[32768];
	size_t length;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = '\0';
	for (char *word = text; word < text + length; word += strlen(word) + 1) {
		char *next = word + strlen(word) + 1;

		if (strcmp(word, option) || next >= text + length)
			continue;
		if (!strncmp(next, key, strlen(key)))
			next += strlen(key);
		snprintf(value, size, "%.*s", (int)strcspn(next, ","), next);
		return true;
	}
	return false;
}

API nvmlVgpuInstanceGetVmID(nvmlVgpuInstance_t instance, char *id, unsigned int size, unsigned int *kind)
{
	const struct lab_line *vgpu;
	char uuid[64];
	VIEW(view);
	nvmlReturn_t ret = id && kind ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!vm_option(lab_number(vgpu, "vm_pid", 0), "-uuid", "", uuid, sizeof(uuid)))
		return NVML_ERROR_NOT_FOUND;
	*kind = VM_ID_IS_UUID;
	return copy_text(id, size, uuid);
}

/* Not of NVML: for `nvidia-smi vgpu -q`, whose driver hears it from the VM's plugin. */
API labVgpuInstanceGetVmName(nvmlVgpuInstance_t instance, char *name, unsigned int size)
{
	const struct lab_line *vgpu;
	char known[256];
	VIEW(view);
	nvmlReturn_t ret = name ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!vm_option(lab_number(vgpu, "vm_pid", 0), "-name", "guest=", known, sizeof(known)))
		return NVML_ERROR_NOT_FOUND;
	return copy_text(name, size, known);
}

/* One per start of the VM: the same as long as this process holds the vGPU. */
API nvmlVgpuInstanceGetUUID(nvmlVgpuInstance_t instance, char *uuid, unsigned int size)
{
	const struct lab_line *vgpu;
	char seed[64], known[37];
	VIEW(view);
	nvmlReturn_t ret = view_vgpu(&view, instance, &vgpu);

	if (ret != NVML_SUCCESS)
		return ret;
	snprintf(seed, sizeof(seed), "%s %u %u", view.gpu->address, instance, lab_number(vgpu, "vm_pid", 0));
	lab_uuid(known, seed);
	return copy_text(uuid, size, known);
}

/* The mdev's UUID; of a vendor-specific VF, which has none, its PCI address (reference 6.1). */
API nvmlVgpuInstanceGetMdevUUID(nvmlVgpuInstance_t instance, char *uuid, unsigned int size)
{
	const struct lab_line *vgpu;
	char known[64];
	VIEW(view);
	nvmlReturn_t ret = view_vgpu(&view, instance, &vgpu);

	if (ret != NVML_SUCCESS)
		return ret;
	vgpu_device(vgpu, known, sizeof(known));
	return copy_text(uuid, size, known);
}

static nvmlReturn_t tell_number(nvmlVgpuInstance_t instance, const char *key, unsigned int missing, unsigned int *value)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = value ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*value = lab_number(vgpu, key, missing);
	return ret;
}

#define tell_number(instance, key, missing, value) INJECTED(tell_number(instance, key, missing, value))

API nvmlVgpuInstanceGetType(nvmlVgpuInstance_t instance, unsigned int *type)
{
	return tell_number(instance, "type", 0, type);
}

API nvmlVgpuInstanceGetGpuInstanceId(nvmlVgpuInstance_t instance, unsigned int *id)
{
	return tell_number(instance, "gi", NVML_NO_GPU_INSTANCE, id);
}

API nvmlVgpuInstanceGetEccMode(nvmlVgpuInstance_t instance, unsigned int *mode)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = mode ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*mode = lab_number(view.gpu->card, "ecc", 0);
	return ret;
}

API nvmlVgpuInstanceGetAccountingMode(nvmlVgpuInstance_t instance, unsigned int *mode)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = mode ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*mode = 0;
	return ret;
}

/* A place is told where one counts: in mixed-size mode and inside a GPU instance. */
API nvmlVgpuInstanceGetPlacementId(nvmlVgpuInstance_t instance, nvmlVgpuPlacementId_v1_t *placement)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = placement ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (placement->version != NVML_STRUCT_VERSION(nvmlVgpuPlacementId_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	placement->placementId = NVML_INVALID_VGPU_PLACEMENT_ID;
	if (lab_number(view.card, "hetero", 0) == 1 || vgpu_gi(vgpu) != NVML_NO_GPU_INSTANCE)
		placement->placementId = lab_number(vgpu, "placement", NVML_INVALID_VGPU_PLACEMENT_ID);
	return NVML_SUCCESS;
}

/* The address in the guest is known to the guest's driver alone. */
API nvmlVgpuInstanceGetGpuPciId(nvmlVgpuInstance_t instance, char *address, unsigned int *size)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = size ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	return ret == NVML_SUCCESS ? copy_text(address, *size, "00000000:00:00.0") : ret;
}

API nvmlVgpuInstanceGetFBCStats(nvmlVgpuInstance_t instance, nvmlFBCStats_t *stats)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = stats ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		memset(stats, 0, sizeof(*stats));
	return ret;
}
