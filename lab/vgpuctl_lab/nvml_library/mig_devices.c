/* SPDX-License-Identifier: Apache-2.0 */
/* MIG devices: what a compute instance is to programs that look for GPUs. */
#include <stdio.h>
#include <string.h>

#include "lab.h"

/* NVML_DEVICE_UUID_V2_BUFFER_SIZE characters; the same as long as an instance with these ids exists. */
void mig_uuid(const struct gpu *gpu, unsigned int gi, unsigned int ci, char *uuid)
{
	char seed[160], board[96];

	lab_word(gpu->card, "uuid", board, sizeof(board));
	snprintf(seed, sizeof(seed), "%s %s %u %u", board, gpu->address, gi, ci);
	strcpy(uuid, "MIG-");
	lab_uuid(uuid + 4, seed);
}

/* They are numbered in the order of their places on the GPU. */
API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig_device)
{
	VIEW(view);
	nvmlReturn_t ret = mig_device ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	const struct lab_line *ci = NULL;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!mig_is_enabled(&view))
		return NVML_ERROR_NOT_SUPPORTED;
	while ((ci = view_next(&view, ci, "ci"))) {
		unsigned int gi = lab_number(ci, "gi", 0), start = lab_number(view_gi(&view, gi), "start", 0);
		unsigned int before = 0;
		const struct lab_line *other = NULL;

		while ((other = view_next(&view, other, "ci"))) {
			unsigned int other_gi = lab_number(other, "gi", 0);
			unsigned int other_start = lab_number(view_gi(&view, other_gi), "start", 0);

			before += other_gi == gi ? lab_number(other, "id", 0) < lab_number(ci, "id", 0)
						 : other_start < start;
		}
		if (before == index) {
			*mig_device = mig_device_handle(
				(struct target){ view.target.gpu, gi, lab_number(ci, "id", 0) });
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *answer)
{
	VIEW(view);
	nvmlReturn_t ret = answer ? view_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*answer = view.target.ci != NO_NUMBER;
	return ret;
}

static nvmlReturn_t view_mig_device(struct view *view, nvmlDevice_t device)
{
	nvmlReturn_t ret = view_device(view, device);

	return ret == NVML_SUCCESS && view->target.ci == NO_NUMBER ? NVML_ERROR_NOT_SUPPORTED : ret;
}

API nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	VIEW(view);
	nvmlReturn_t ret = id ? view_mig_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*id = view.target.gi;
	return ret;
}

API nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	VIEW(view);
	nvmlReturn_t ret = id ? view_mig_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*id = view.target.ci;
	return ret;
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device, nvmlDevice_t *device)
{
	VIEW(view);
	nvmlReturn_t ret = device ? view_mig_device(&view, mig_device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*device = gpu_handle(view.target.gpu);
	return ret;
}

API nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	VIEW(view);
	nvmlReturn_t ret = attributes ? view_mig_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	unsigned int profile, slices, whole;

	if (ret != NVML_SUCCESS)
		return ret;
	profile = lab_number(view_gi(&view, view.target.gi), "profile", NO_NUMBER);
	slices = lab_number(view_ci(&view, view.target.gi, view.target.ci), "size", 1);
	whole = gi_profile_number(view.gpu, profile, "slices");
	*attributes = (nvmlDeviceAttributes_t){
		.multiprocessorCount = gi_profile_number(view.gpu, profile, "sm") * slices / (whole ? whole : 1),
		.sharedCopyEngineCount = gi_profile_number(view.gpu, profile, "ce"),
		.sharedDecoderCount = gi_profile_number(view.gpu, profile, "dec"),
		.sharedEncoderCount = gi_profile_number(view.gpu, profile, "enc"),
		.sharedJpegCount = gi_profile_number(view.gpu, profile, "jpeg"),
		.sharedOfaCount = gi_profile_number(view.gpu, profile, "ofa"),
		.gpuInstanceSliceCount = whole,
		.computeInstanceSliceCount = slices,
		.memorySizeMB = gi_profile_number(view.gpu, profile, "memory"),
	};
	return NVML_SUCCESS;
}
