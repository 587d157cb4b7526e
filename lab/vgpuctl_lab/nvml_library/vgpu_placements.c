/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed-size (heterogeneous) mode and the places of vGPUs on a GPU or in a GPU instance. */
#include <stdio.h>
#include <string.h>

#include "lab.h"

#define BUFFER_MB_S 12000
#define MOST_PLACEMENTS 128
#define HETEROGENEOUS 0

static bool is_heterogeneous(const struct view *view)
{
	return lab_number(view->target.gi == NO_NUMBER ? view->card : view_gi(view, view->target.gi), "hetero", 0) == 1;
}

/* Only a GPU instance that takes several vGPUs has the mode. */
static bool takes_several(const struct view *view)
{
	unsigned int profile = lab_number(view_gi(view, view->target.gi), "profile", NO_NUMBER);
	const struct lab_line *type = view->gpu->card;

	while ((type = lab_next_below(lab_boards(), type, "type")))
		if (lab_number(type, "gi", NO_NUMBER) == profile && lab_number(type, "per_gi", 1) > 1)
			return true;
	return false;
}

static nvmlReturn_t read_mode(const struct view *view, nvmlVgpuHeterogeneousMode_v1_t *mode)
{
	if (mode->version != NVML_STRUCT_VERSION(nvmlVgpuHeterogeneousMode_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!lab_number(view->gpu->card, "hetero", 0))
		return NVML_ERROR_NOT_SUPPORTED;
	if (view->target.gi != NO_NUMBER && !takes_several(view))
		return NVML_ERROR_NOT_SUPPORTED;
	mode->mode = is_heterogeneous(view);
	return NVML_SUCCESS;
}

static nvmlReturn_t write_mode(const struct view *view, const nvmlVgpuHeterogeneousMode_v1_t *mode)
{
	struct lab_answer answer;
	char gi[24] = "";

	if (mode->version != NVML_STRUCT_VERSION(nvmlVgpuHeterogeneousMode_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (mode->mode > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (view->target.gi != NO_NUMBER)
		snprintf(gi, sizeof(gi), " gi=%u", view->target.gi);
	return lab_control(&answer, "heterogeneous %s %u%s", view->gpu->address, mode->mode, gi);
}

API nvmlDeviceGetVgpuHeterogeneousMode(nvmlDevice_t device, nvmlVgpuHeterogeneousMode_v1_t *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS && mig_is_enabled(&view))
		return NVML_ERROR_NOT_SUPPORTED;
	return ret == NVML_SUCCESS ? read_mode(&view, mode) : ret;
}

API nvmlDeviceSetVgpuHeterogeneousMode(nvmlDevice_t device, const nvmlVgpuHeterogeneousMode_v1_t *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	return ret == NVML_SUCCESS ? write_mode(&view, mode) : ret;
}

API nvmlGpuInstanceGetVgpuHeterogeneousMode(nvmlGpuInstance_t instance, nvmlVgpuHeterogeneousMode_v1_t *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_gpu_instance(&view, instance) : NVML_ERROR_INVALID_ARGUMENT;

	return ret == NVML_SUCCESS ? read_mode(&view, mode) : ret;
}

API nvmlGpuInstanceSetVgpuHeterogeneousMode(nvmlGpuInstance_t instance, const nvmlVgpuHeterogeneousMode_v1_t *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_gpu_instance(&view, instance) : NVML_ERROR_INVALID_ARGUMENT;

	return ret == NVML_SUCCESS ? write_mode(&view, mode) : ret;
}

/* which: `supported` or `creatable`. */
static nvmlReturn_t read_placements(const struct view *view, unsigned int type, const char *which, unsigned int *size,
				    unsigned int *ids, unsigned int *found)
{
	struct lab_answer answer;
	char gi[24] = "";
	nvmlReturn_t ret;

	if (!find_type_of(view->gpu, type))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (view->target.gi != NO_NUMBER)
		snprintf(gi, sizeof(gi), " gi=%u", view->target.gi);
	ret = lab_control(&answer, "placements %s %u%s", view->gpu->address, type, gi);
	if (ret != NVML_SUCCESS)
		return ret;
	*size = lab_answer_number(&answer, "size", 0);
	*found = lab_answer_numbers(&answer, which, ids, MOST_PLACEMENTS);
	return NVML_SUCCESS;
}

/*
 * The first version of the list is for the caller's memory to have room for max_instances ids and says nothing of
 * its size (pynvml leaves `count` at 0); the second says it.
 */
static nvmlReturn_t fill_list(const struct view *view, unsigned int type, const char *which,
			      nvmlVgpuPlacementList_v1_t *list)
{
	unsigned int ids[MOST_PLACEMENTS], found, size, room;
	bool is_first = list->version == NVML_STRUCT_VERSION(nvmlVgpuPlacementList_v1_t, 1);
	nvmlReturn_t ret;

	if (!is_first && list->version != NVML_STRUCT_VERSION(nvmlVgpuPlacementList_v2_t, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!is_first && ((nvmlVgpuPlacementList_v2_t *)list)->mode != HETEROGENEOUS)
		return NVML_ERROR_NOT_SUPPORTED;
	ret = read_placements(view, type, which, &size, ids, &found);
	if (ret != NVML_SUCCESS)
		return ret;
	room = is_first ? lab_number(find_type_of(view->gpu, type), "max", 0) : list->count;
	list->placementSize = size;
	return tell_ids(ids, found, is_first ? (list->count = room, &list->count) : &list->count, list->placementIds);
}

API nvmlDeviceGetVgpuTypeSupportedPlacements(nvmlDevice_t device, nvmlVgpuTypeId_t type,
					     nvmlVgpuPlacementList_v1_t *list)
{
	VIEW(view);
	nvmlReturn_t ret = list ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS && !lab_number(view.gpu->card, "hetero", 0))
		return NVML_ERROR_NOT_SUPPORTED;
	return ret == NVML_SUCCESS ? fill_list(&view, type, "supported", list) : ret;
}

API nvmlDeviceGetVgpuTypeCreatablePlacements(nvmlDevice_t device, nvmlVgpuTypeId_t type,
					     nvmlVgpuPlacementList_v1_t *list)
{
	VIEW(view);
	nvmlReturn_t ret = list ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS && !is_heterogeneous(&view))
		return NVML_ERROR_NOT_SUPPORTED;
	return ret == NVML_SUCCESS ? fill_list(&view, type, "creatable", list) : ret;
}

API nvmlGpuInstanceGetVgpuTypeCreatablePlacements(nvmlGpuInstance_t instance,
						  nvmlVgpuCreatablePlacementInfo_v1_t *info)
{
	unsigned int ids[MOST_PLACEMENTS], found;
	VIEW(view);
	nvmlReturn_t ret = info ? view_gpu_instance(&view, instance) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (info->version != NVML_STRUCT_VERSION(nvmlVgpuCreatablePlacementInfo_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!is_heterogeneous(&view))
		return NVML_ERROR_NOT_SUPPORTED;
	ret = read_placements(&view, info->vgpuTypeId, "creatable", &info->placementSize, ids, &found);
	return ret == NVML_SUCCESS ? tell_ids(ids, found, &info->count, info->placementIds) : ret;
}

API nvmlGetVgpuDriverCapabilities(unsigned int capability, unsigned int *answer)
{
	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!answer || capability > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	*answer = capability == 0;	/* several types in one VM; no warm update */
	return NVML_SUCCESS;
}

/* The numbers are NVML_DEVICE_VGPU_CAP_*. */
API nvmlDeviceGetVgpuCapabilities(nvmlDevice_t device, unsigned int capability, unsigned int *answer)
{
	VIEW(view);
	nvmlReturn_t ret = answer ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (capability > 11)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!lab_next_below(lab_boards(), view.gpu->card, "type"))
		return NVML_ERROR_NOT_SUPPORTED;
	if (capability == 3 || capability == 4) {	/* to read and to write a vGPU's state, in MB/s */
		*answer = BUFFER_MB_S;
		return NVML_SUCCESS;
	}
	*answer = capability == 1 /* types of one size, mixed */ || capability == 0 /* fractional multi-vGPU */ ||
		  (capability == 2 /* sizes, mixed */ && lab_number(view.gpu->card, "hetero", 0));
	return NVML_SUCCESS;
}
