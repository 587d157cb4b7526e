/* SPDX-License-Identifier: Apache-2.0 */
/* Compute instances: the parts of a GPU instance. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"

#define SHARED_ENGINES 0

/* One of the board's compute instance profiles for a GPU instance profile. */
const struct lab_line *ci_profile(const struct gpu *gpu, unsigned int gi_profile, unsigned int id)
{
	const struct lab_line *line = gpu->card;

	while ((line = lab_next_below(lab_boards(), line, "ci")))
		if (lab_number(line, "gi", NO_NUMBER) == gi_profile && strtoul(line->first, NULL, 0) == id)
			return line;
	return NULL;
}

static unsigned int profile_of_gi(const struct view *view)
{
	return lab_number(view_gi(view, view->target.gi), "profile", NO_NUMBER);
}

static void describe(const struct view *view, const struct lab_line *profile, nvmlComputeInstanceProfileInfo_t *info)
{
	unsigned int gi = profile_of_gi(view), slices = lab_number(profile, "slices", 1);
	unsigned int whole = gi_profile_number(view->gpu, gi, "slices");

	*info = (nvmlComputeInstanceProfileInfo_t){
		.id = strtoul(profile->first, NULL, 0),
		.sliceCount = slices,
		.instanceCount = lab_number(profile, "max", 0),
		.multiprocessorCount = gi_profile_number(view->gpu, gi, "sm") * slices / (whole ? whole : 1),
		.sharedCopyEngineCount = gi_profile_number(view->gpu, gi, "ce"),
		.sharedDecoderCount = gi_profile_number(view->gpu, gi, "dec"),
		.sharedEncoderCount = gi_profile_number(view->gpu, gi, "enc"),
		.sharedJpegCount = gi_profile_number(view->gpu, gi, "jpeg"),
		.sharedOfaCount = gi_profile_number(view->gpu, gi, "ofa"),
	};
}

/* By NVML's profile constant. */
static nvmlReturn_t find_profile(struct view *view, nvmlGpuInstance_t instance, unsigned int profile,
				 unsigned int engines, const struct lab_line **line)
{
	nvmlReturn_t ret = view_gpu_instance(view, instance);
	unsigned int gi;

	if (ret != NVML_SUCCESS)
		return ret;
	if (profile >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT || engines != SHARED_ENGINES)
		return NVML_ERROR_INVALID_ARGUMENT;
	gi = profile_of_gi(view);
	*line = view->gpu->card;
	while ((*line = lab_next_below(lab_boards(), *line, "ci")))
		if (lab_number(*line, "gi", NO_NUMBER) == gi && lab_number(*line, "nvml", NO_NUMBER) == profile)
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int profile,
						 unsigned int engines, nvmlComputeInstanceProfileInfo_t *info)
{
	const struct lab_line *line;
	VIEW(view);
	nvmlReturn_t ret = info ? find_profile(&view, instance, profile, engines, &line) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		describe(&view, line, info);
	return ret;
}

API nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int profile,
						  unsigned int engines, nvmlComputeInstanceProfileInfo_v2_t *info)
{
	nvmlComputeInstanceProfileInfo_t known;
	const struct lab_line *line;
	VIEW(view);
	nvmlReturn_t ret = info ? find_profile(&view, instance, profile, engines, &line) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (info->version != NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	describe(&view, line, &known);
	memcpy(&info->id, &known, sizeof(known));
	return copy_text(info->name, sizeof(info->name), line->name);
}

static nvmlReturn_t find_profile_by_id(struct view *view, nvmlGpuInstance_t instance, unsigned int id,
				       const struct lab_line **line)
{
	nvmlReturn_t ret = view_gpu_instance(view, instance);

	if (ret != NVML_SUCCESS)
		return ret;
	*line = ci_profile(view->gpu, profile_of_gi(view), id);
	return *line ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, unsigned int id,
							nvmlPlacement_t *placements, unsigned int *count)
{
	const struct lab_line *profile;
	VIEW(view);
	nvmlReturn_t ret = count ? find_profile_by_id(&view, instance, id, &profile) : NVML_ERROR_INVALID_ARGUMENT;

	return ret == NVML_SUCCESS ? tell_placements(profile, "slices", placements, count) : ret;
}

API nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned int id,
						       unsigned int *count)
{
	const struct lab_line *profile;
	struct lab_answer answer;
	VIEW(view);
	nvmlReturn_t ret = count ? find_profile_by_id(&view, instance, id, &profile) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		ret = lab_control(&answer, "ci-remaining %s %u %u", view.gpu->address, view.target.gi, id);
	if (ret == NVML_SUCCESS)
		*count = lab_answer_number(&answer, "count", 0);
	return ret;
}

static nvmlReturn_t create(nvmlGpuInstance_t instance, unsigned int id, const nvmlPlacement_t *placement,
			   nvmlComputeInstance_t *created)
{
	char parent[32];
	const struct lab_line *profile;
	VIEW(view);
	nvmlReturn_t ret = created ? find_profile_by_id(&view, instance, id, &profile) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	snprintf(parent, sizeof(parent), "%s %u", view.gpu->address, view.target.gi);
	ret = create_instance("ci-create", parent, profile, "slices", placement, &view.target.ci);
	if (ret == NVML_SUCCESS)
		*created = compute_instance_handle(view.target);
	return ret;
}

#define create(...) INJECTED(create(__VA_ARGS__))

API nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *created)
{
	return create(instance, id, NULL, created);
}

API nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, unsigned int id,
						      const nvmlPlacement_t *placement, nvmlComputeInstance_t *created)
{
	return placement ? create(instance, id, placement, created) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance)
{
	struct lab_answer answer;
	VIEW(view);
	nvmlReturn_t ret = view_compute_instance(&view, instance);

	if (ret != NVML_SUCCESS)
		return ret;
	return lab_control(&answer, "ci-destroy %s %u %u", view.gpu->address, view.target.gi, view.target.ci);
}

API nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *instances,
				       unsigned int *count)
{
	const struct lab_line *profile, *ci = NULL;
	VIEW(view);
	nvmlReturn_t ret = instances && count ? find_profile_by_id(&view, instance, id, &profile)
					      : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	*count = 0;
	while ((ci = view_next(&view, ci, "ci"))) {
		if (lab_number(ci, "gi", NO_NUMBER) != view.target.gi || lab_number(ci, "profile", NO_NUMBER) != id)
			continue;
		view.target.ci = lab_number(ci, "id", 0);
		instances[(*count)++] = compute_instance_handle(view.target);
	}
	return NVML_SUCCESS;
}

API nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *found)
{
	VIEW(view);
	nvmlReturn_t ret = found ? view_gpu_instance(&view, instance) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!view_ci(&view, view.target.gi, id))
		return NVML_ERROR_NOT_FOUND;
	view.target.ci = id;
	*found = compute_instance_handle(view.target);
	return NVML_SUCCESS;
}

API nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
	VIEW(view);
	nvmlReturn_t ret = info ? view_compute_instance(&view, instance) : NVML_ERROR_INVALID_ARGUMENT;
	const struct lab_line *ci;

	if (ret != NVML_SUCCESS)
		return ret;
	ci = view_ci(&view, view.target.gi, view.target.ci);
	*info = (nvmlComputeInstanceInfo_t){
		.device = gpu_handle(view.target.gpu),
		.gpuInstance = gpu_instance_handle(view.target),
		.id = view.target.ci,
		.profileId = lab_number(ci, "profile", 0),
		.placement = { lab_number(ci, "start", 0), lab_number(ci, "size", 0) },
	};
	return NVML_SUCCESS;
}
