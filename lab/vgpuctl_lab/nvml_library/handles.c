/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles say what they mean: kind, GPU, GPU instance and compute instance are packed into the pointer, so a handle
 * needs no memory and stays right for as long as the thing exists. The state is looked at when one is used.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"

enum { GPU = 1, MIG_DEVICE, GPU_INSTANCE, COMPUTE_INSTANCE };

static void *pack(unsigned int kind, struct target target)
{
	return (void *)((uintptr_t)kind << 28 | (uintptr_t)(target.gpu & 0xff) << 20 |
			(uintptr_t)(target.gi & 0x3ff) << 10 | (uintptr_t)(target.ci & 0x3ff));
}

static unsigned int unpack(const void *handle, struct target *target)
{
	uintptr_t value = (uintptr_t)handle;

	target->gpu = value >> 20 & 0xff;
	target->gi = value >> 10 & 0x3ff;
	target->ci = value & 0x3ff;
	return value >> 32 ? 0 : value >> 28;
}

nvmlDevice_t gpu_handle(unsigned int gpu)
{
	return pack(GPU, (struct target){ gpu, 0, 0 });
}

nvmlDevice_t mig_device_handle(struct target target)
{
	return pack(MIG_DEVICE, target);
}

nvmlGpuInstance_t gpu_instance_handle(struct target target)
{
	target.ci = 0;
	return pack(GPU_INSTANCE, target);
}

nvmlComputeInstance_t compute_instance_handle(struct target target)
{
	return pack(COMPUTE_INSTANCE, target);
}

void view_close(struct view *view)
{
	lab_text_free(&view->state);
	lab_text_free(&view->curves);
	view->has_read_curves = false;
}

/* Look at a GPU by its index. A GPU that fell off the bus or left the driver is lost. */
nvmlReturn_t view_index(struct view *view, unsigned int gpu)
{
	char driver[16];

	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (lab_injected(view->function) != NVML_SUCCESS)
		return lab_injected(view->function);
	view->gpu = lab_gpu(gpu);
	if (!view->gpu)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!lab_text_read(&view->state, lab_folder, "state"))
		return NVML_ERROR_UNKNOWN;
	view->target = (struct target){ gpu, NO_NUMBER, NO_NUMBER };
	view->card = lab_card_line(&view->state, view->gpu->address);
	lab_word(view->card, "driver", driver, sizeof(driver));
	if (!view->card || strcmp(driver, "nvidia") || lab_number(view->card, "fallen", 0))
		return NVML_ERROR_GPU_IS_LOST;
	return NVML_SUCCESS;
}

static nvmlReturn_t view_handle(struct view *view, const void *handle, unsigned int kind)
{
	struct target target;
	nvmlReturn_t ret;

	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (unpack(handle, &target) != kind)
		return NVML_ERROR_INVALID_ARGUMENT;
	ret = view_index(view, target.gpu);
	if (ret != NVML_SUCCESS || kind == GPU)
		return ret;
	view->target.gi = target.gi;
	if (!view_gi(view, target.gi))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (kind == GPU_INSTANCE)
		return NVML_SUCCESS;
	view->target.ci = target.ci;
	return view_ci(view, target.gi, target.ci) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* For calls that only a GPU answers. */
nvmlReturn_t view_gpu(struct view *view, nvmlDevice_t device)
{
	return view_handle(view, device, GPU);
}

/* For calls that a GPU and a MIG device answer; view->target.ci says which it is. */
nvmlReturn_t view_device(struct view *view, nvmlDevice_t device)
{
	struct target target;

	return view_handle(view, device, unpack(device, &target) == MIG_DEVICE ? MIG_DEVICE : GPU);
}

nvmlReturn_t view_gpu_instance(struct view *view, nvmlGpuInstance_t instance)
{
	return view_handle(view, instance, GPU_INSTANCE);
}

nvmlReturn_t view_compute_instance(struct view *view, nvmlComputeInstance_t instance)
{
	return view_handle(view, instance, COMPUTE_INSTANCE);
}

/* The next line `KIND ADDRESS ...` of this GPU in the state; line is NULL at first. */
const struct lab_line *view_next(const struct view *view, const struct lab_line *line, const char *kind)
{
	line = line ? line + 1 : view->state.lines;
	for (; line < view->state.lines + view->state.count; line++)
		if (!strcmp(line->kind, kind) && !strcmp(line->first, view->gpu->address))
			return line;
	return NULL;
}

const struct lab_line *view_gi(const struct view *view, unsigned int id)
{
	const struct lab_line *line = NULL;

	while ((line = view_next(view, line, "gi")))
		if (lab_number(line, "id", NO_NUMBER) == id)
			return line;
	return NULL;
}

const struct lab_line *view_ci(const struct view *view, unsigned int gi, unsigned int id)
{
	const struct lab_line *line = NULL;

	while ((line = view_next(view, line, "ci")))
		if (lab_number(line, "gi", NO_NUMBER) == gi && lab_number(line, "id", NO_NUMBER) == id)
			return line;
	return NULL;
}
