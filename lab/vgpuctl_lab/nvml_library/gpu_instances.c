/* SPDX-License-Identifier: Apache-2.0 */
/* MIG mode and GPU instances. What is allowed and what still fits is the kernel module's to say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"

#define MOST_STARTS 64

/* Where a profile's instances can begin; size_key: the profile's key for how much they take. */
nvmlReturn_t tell_placements(const struct lab_line *profile, const char *size_key, nvmlPlacement_t *placements,
			     unsigned int *count)
{
	unsigned int starts[MOST_STARTS], room = *count;

	*count = lab_numbers(profile, "starts", starts, MOST_STARTS);
	if (placements && room < *count)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; placements && i < *count; i++)
		placements[i] = (nvmlPlacement_t){ starts[i], lab_number(profile, size_key, 1) };
	return NVML_SUCCESS;
}

/* Create an instance of a profile. parent: what the command names before the profile; placement: NULL for any. */
nvmlReturn_t create_instance(const char *command, const char *parent, const struct lab_line *profile,
			     const char *size_key, const nvmlPlacement_t *placement, unsigned int *id)
{
	char start[16] = "-";
	struct lab_answer answer;
	nvmlReturn_t ret;

	if (placement && placement->size != lab_number(profile, size_key, 0))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (placement)
		snprintf(start, sizeof(start), "%u", placement->start);
	ret = lab_control(&answer, "%s %s %lu %s", command, parent, strtoul(profile->first, NULL, 0), start);
	*id = ret == NVML_SUCCESS ? lab_answer_number(&answer, "id", 0) : 0;
	return ret;
}

bool mig_is_supported(const struct gpu *gpu)
{
	return lab_number(gpu->card, "mig", 0) == 1;
}

bool mig_is_enabled(const struct view *view)
{
	return lab_number(view->card, "mig", 0) == 1;
}

API nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	VIEW(view);
	nvmlReturn_t ret = current && pending ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!mig_is_supported(view.gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	*current = lab_number(view.card, "mig", 0);
	*pending = lab_number(view.card, "mig_pending", *current);
	return NVML_SUCCESS;
}

/* This client lets go of the GPU meanwhile, as a mode that needs a reset takes effect only when nobody uses it. */
API nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, unsigned int *activation)
{
	struct lab_answer answer;
	unsigned int current, pending;
	VIEW(view);
	nvmlReturn_t ret = activation && mode < 2 ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!mig_is_supported(view.gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	lab_nodes_release(view.target.gpu);
	ret = lab_control(&answer, "mig-mode %s %u", view.gpu->address, mode);
	lab_nodes_hold(view.target.gpu);
	if (ret == NVML_SUCCESS)
		ret = nvmlDeviceGetMigMode(device, &current, &pending);
	if (ret == NVML_SUCCESS)
		*activation = lab_answer_number(&answer, "activation",
						current == pending ? NVML_SUCCESS : NVML_ERROR_RESET_REQUIRED);
	return ret;
}

/* Not of NVML, which has no call for it: `nvidia-smi --gpu-reset`. */
API labDeviceReset(nvmlDevice_t device)
{
	struct lab_answer answer;
	VIEW(view);
	nvmlReturn_t ret = view_gpu(&view, device);

	if (ret != NVML_SUCCESS)
		return ret;
	lab_nodes_release(view.target.gpu);
	ret = lab_control(&answer, "reset %s", view.gpu->address);
	lab_nodes_hold(view.target.gpu);
	if (ret == NVML_SUCCESS)
		tuning_forget(view.gpu);
	return ret;
}

API nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	VIEW(view);
	nvmlReturn_t ret = count ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	const struct lab_line *profile;

	if (ret != NVML_SUCCESS)
		return ret;
	*count = 0;
	profile = mig_is_supported(view.gpu) ? view.gpu->card : NULL;
	while ((profile = lab_next_below(lab_boards(), profile, "gi")))
		if (lab_number(profile, "max", 0) > *count)
			*count = lab_number(profile, "max", 0);
	return NVML_SUCCESS;
}

/* The board's GPU instance profile with an id of `nvidia-smi mig -lgip`. */
const struct lab_line *gi_profile(const struct gpu *gpu, unsigned int id)
{
	return lab_line_below(lab_boards(), gpu->card, "gi", id);
}

/* One of its numbers; 0 where the table has none. */
unsigned int gi_profile_number(const struct gpu *gpu, unsigned int id, const char *key)
{
	return lab_number(gi_profile(gpu, id), key, 0);
}

static void describe(const struct gpu *gpu, const struct lab_line *profile, nvmlGpuInstanceProfileInfo_t *info)
{
	unsigned int id = strtoul(profile->first, NULL, 0);

	*info = (nvmlGpuInstanceProfileInfo_t){
		.id = id,
		.sliceCount = lab_number(profile, "slices", 0),
		.instanceCount = lab_number(profile, "max", 0),
		.multiprocessorCount = gi_profile_number(gpu, id, "sm"),
		.copyEngineCount = gi_profile_number(gpu, id, "ce"),
		.decoderCount = gi_profile_number(gpu, id, "dec"),
		.encoderCount = gi_profile_number(gpu, id, "enc"),
		.jpegCount = gi_profile_number(gpu, id, "jpeg"),
		.ofaCount = gi_profile_number(gpu, id, "ofa"),
		.memorySizeMB = gi_profile_number(gpu, id, "memory"),
	};
}

/* by_id: `profile` is the profile's id, otherwise one of NVML's profile constants. */
static nvmlReturn_t find_profile(struct view *view, nvmlDevice_t device, unsigned int profile, bool by_id,
				 const struct lab_line **line)
{
	nvmlReturn_t ret = view_gpu(view, device);

	if (ret != NVML_SUCCESS)
		return ret;
	if (!by_id && profile >= NVML_GPU_INSTANCE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*line = mig_is_supported(view->gpu) ? view->gpu->card : NULL;
	while ((*line = lab_next_below(lab_boards(), *line, "gi")))
		if (by_id ? strtoul((*line)->first, NULL, 0) == profile : lab_number(*line, "nvml", NO_NUMBER) == profile)
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_t *info)
{
	const struct lab_line *line;
	VIEW(view);
	nvmlReturn_t ret = info ? find_profile(&view, device, profile, false, &line) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		describe(view.gpu, line, info);
	return ret;
}

static nvmlReturn_t describe_versioned(nvmlDevice_t device, unsigned int profile, bool by_id,
				       nvmlGpuInstanceProfileInfo_v2_t *info)
{
	nvmlGpuInstanceProfileInfo_t known;
	const struct lab_line *line;
	VIEW(view);
	nvmlReturn_t ret = info ? find_profile(&view, device, profile, by_id, &line) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	describe(view.gpu, line, &known);
	if (info->version == NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
		memcpy(&info->id, &known, offsetof(nvmlGpuInstanceProfileInfo_t, memorySizeMB));
		info->memorySizeMB = known.memorySizeMB;
		return copy_text(info->name, sizeof(info->name), line->name);
	}
	if (info->version == NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3)) {
		nvmlGpuInstanceProfileInfo_v3_t *newer = (void *)info;

		newer->id = known.id;
		memcpy(&newer->sliceCount, &known.sliceCount,
		       offsetof(nvmlGpuInstanceProfileInfo_t, memorySizeMB) -
			       offsetof(nvmlGpuInstanceProfileInfo_t, sliceCount));
		newer->memorySizeMB = known.memorySizeMB;
		newer->capabilities = 0;
		return copy_text(newer->name, sizeof(newer->name), line->name);
	}
	return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

#define describe_versioned(...) INJECTED(describe_versioned(__VA_ARGS__))

API nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
					 nvmlGpuInstanceProfileInfo_v2_t *info)
{
	return describe_versioned(device, profile, false, info);
}

API nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id,
					     nvmlGpuInstanceProfileInfo_v2_t *info)
{
	return describe_versioned(device, id, true, info);
}

/* For what a GPU answers in MIG mode only. */
static nvmlReturn_t find_profile_in_mig_mode(struct view *view, nvmlDevice_t device, unsigned int id,
					     const struct lab_line **line)
{
	nvmlReturn_t ret = view_gpu(view, device);

	if (ret != NVML_SUCCESS)
		return ret;
	if (!mig_is_enabled(view))
		return NVML_ERROR_NOT_SUPPORTED;
	*line = gi_profile(view->gpu, id);
	return *line ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id, nvmlPlacement_t *placements,
						  unsigned int *count)
{
	const struct lab_line *profile;
	VIEW(view);
	nvmlReturn_t ret = count ? find_profile_in_mig_mode(&view, device, id, &profile) : NVML_ERROR_INVALID_ARGUMENT;

	return ret == NVML_SUCCESS ? tell_placements(profile, "size", placements, count) : ret;
}

API nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id, nvmlPlacement_t *placements,
					       unsigned int *count)
{
	return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, placements, count);
}

API nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count)
{
	const struct lab_line *profile;
	struct lab_answer answer;
	VIEW(view);
	nvmlReturn_t ret = count ? find_profile_in_mig_mode(&view, device, id, &profile) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		ret = lab_control(&answer, "gi-remaining %s %u", view.gpu->address, id);
	if (ret == NVML_SUCCESS)
		*count = lab_answer_number(&answer, "count", 0);
	return ret;
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned int id, const nvmlPlacement_t *placement,
			   nvmlGpuInstance_t *instance)
{
	const struct lab_line *profile;
	unsigned int created;
	VIEW(view);
	nvmlReturn_t ret = instance ? find_profile_in_mig_mode(&view, device, id, &profile)
				    : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		ret = create_instance("gi-create", view.gpu->address, profile, "size", placement, &created);
	if (ret == NVML_SUCCESS)
		*instance = gpu_instance_handle((struct target){ view.target.gpu, created, 0 });
	return ret;
}

#define create(...) INJECTED(create(__VA_ARGS__))

API nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
	return create(device, id, NULL, instance);
}

API nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id, const nvmlPlacement_t *placement,
					     nvmlGpuInstance_t *instance)
{
	return placement ? create(device, id, placement, instance) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
	struct lab_answer answer;
	VIEW(view);
	nvmlReturn_t ret = view_gpu_instance(&view, instance);

	return ret == NVML_SUCCESS ? lab_control(&answer, "gi-destroy %s %u", view.gpu->address, view.target.gi) : ret;
}

API nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instances, unsigned int *count)
{
	const struct lab_line *profile, *gi = NULL;
	VIEW(view);
	nvmlReturn_t ret = instances && count ? find_profile_in_mig_mode(&view, device, id, &profile)
					      : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	*count = 0;
	while ((gi = view_next(&view, gi, "gi")))
		if (lab_number(gi, "profile", NO_NUMBER) == id)
			instances[(*count)++] = gpu_instance_handle(
				(struct target){ view.target.gpu, lab_number(gi, "id", 0), 0 });
	return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
	VIEW(view);
	nvmlReturn_t ret = instance ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!mig_is_enabled(&view))
		return NVML_ERROR_NOT_SUPPORTED;
	if (!view_gi(&view, id))
		return NVML_ERROR_NOT_FOUND;
	*instance = gpu_instance_handle((struct target){ view.target.gpu, id, 0 });
	return NVML_SUCCESS;
}

API nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
	VIEW(view);
	nvmlReturn_t ret = info ? view_gpu_instance(&view, instance) : NVML_ERROR_INVALID_ARGUMENT;
	const struct lab_line *gi;

	if (ret != NVML_SUCCESS)
		return ret;
	gi = view_gi(&view, view.target.gi);
	*info = (nvmlGpuInstanceInfo_t){
		.device = gpu_handle(view.target.gpu),
		.id = view.target.gi,
		.profileId = lab_number(gi, "profile", 0),
		.placement = { lab_number(gi, "start", 0), lab_number(gi, "size", 0) },
	};
	return NVML_SUCCESS;
}
