/* SPDX-License-Identifier: Apache-2.0 */
/* The vGPU software scheduler: what NVML says of it in ns, the kernel module keeps in us. */
#include <string.h>

#include "lab.h"

enum { BEST_EFFORT = 1, EQUAL_SHARE, FIXED_SHARE };
enum { ARR_DEFAULT, ARR_OFF, ARR_ON };

#define SLICE_LEAST_NS 1000000U
#define SLICE_MOST_NS 30000000U
#define FREQUENCY_LEAST 63
#define FREQUENCY_MOST 960
#define FACTOR_LEAST 1
#define FACTOR_MOST 60
#define FACTOR_DEFAULT 33

/* For the GPUs that offer vGPUs: the others have no such scheduler. */
static nvmlReturn_t view_scheduler(struct view *view, nvmlDevice_t device, const void *wanted)
{
	nvmlReturn_t ret = wanted ? view_gpu(view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS && !lab_next_below(lab_boards(), view->gpu->card, "type"))
		return NVML_ERROR_NOT_SUPPORTED;
	return ret;
}

API nvmlDeviceGetVgpuSchedulerCapabilities(nvmlDevice_t device, nvmlVgpuSchedulerCapabilities_t *capabilities)
{
	VIEW(view);
	nvmlReturn_t ret = view_scheduler(&view, device, capabilities);

	if (ret == NVML_SUCCESS)
		*capabilities = (nvmlVgpuSchedulerCapabilities_t){
			.supportedSchedulers = { BEST_EFFORT, EQUAL_SHARE, FIXED_SHARE },
			.maxTimeslice = SLICE_MOST_NS,
			.minTimeslice = SLICE_LEAST_NS,
			.isArrModeSupported = 1,
			.maxFrequencyForARR = FREQUENCY_MOST,
			.minFrequencyForARR = FREQUENCY_LEAST,
			.maxAvgFactorForARR = FACTOR_MOST,
			.minAvgFactorForARR = FACTOR_LEAST,
		};
	return ret;
}

static bool vms_run(const struct view *view)
{
	const struct lab_line *vgpu = NULL;

	while ((vgpu = view_next(view, vgpu, "vgpu")))
		if (lab_number(vgpu, "in_use", 0))
			return true;
	return false;
}

static nvmlReturn_t read_state(const struct view *view, nvmlVgpuSchedulerGetState_t *state)
{
	unsigned int slice_ns = lab_number(view->card, "sched_slice_us", 0) * 1000;

	memset(state, 0, sizeof(*state));
	state->schedulerPolicy = lab_number(view->card, "sched_policy", BEST_EFFORT);
	state->arrMode = lab_number(view->card, "sched_arr", ARR_DEFAULT);
	/* The numbers are those of what is scheduled now: 0 while that is nothing. */
	if (state->schedulerPolicy == BEST_EFFORT || !vms_run(view))
		return NVML_SUCCESS;
	if (state->arrMode == ARR_OFF) {
		state->first = slice_ns;
	} else {
		state->first = FACTOR_DEFAULT;
		state->timeslice = slice_ns;
	}
	return NVML_SUCCESS;
}

static void tell_newer_state(const nvmlVgpuSchedulerGetState_t *state, nvmlVgpuSchedulerStateInfo_v2_t *info)
{
	info->schedulerPolicy = state->schedulerPolicy;
	info->avgFactor = state->arrMode == ARR_OFF ? 0 : state->first;
	info->timeslice = state->arrMode == ARR_OFF ? state->first : state->timeslice;
}

API nvmlDeviceGetVgpuSchedulerState(nvmlDevice_t device, nvmlVgpuSchedulerGetState_t *state)
{
	VIEW(view);
	nvmlReturn_t ret = view_scheduler(&view, device, state);

	return ret == NVML_SUCCESS ? read_state(&view, state) : ret;
}

API nvmlDeviceGetVgpuSchedulerState_v2(nvmlDevice_t device, nvmlVgpuSchedulerStateInfo_v2_t *info)
{
	nvmlVgpuSchedulerGetState_t state;
	VIEW(view);
	nvmlReturn_t ret = view_scheduler(&view, device, info);

	if (ret == NVML_SUCCESS)
		ret = read_state(&view, &state);
	if (ret == NVML_SUCCESS)
		tell_newer_state(&state, info);
	return ret;
}

/* For the instances that several vGPUs can share: the others have no scheduler. */
nvmlReturn_t view_shared_instance(struct view *view, nvmlGpuInstance_t instance, const void *wanted)
{
	nvmlReturn_t ret = wanted ? view_gpu_instance(view, instance) : NVML_ERROR_INVALID_ARGUMENT;
	const struct lab_line *type;
	unsigned int profile;

	if (ret != NVML_SUCCESS)
		return ret;
	type = view->gpu->card;
	profile = lab_number(view_gi(view, view->target.gi), "profile", NO_NUMBER);
	while ((type = lab_next_below(lab_boards(), type, "type")))
		if (lab_number(type, "gi", NO_NUMBER) == profile && lab_number(type, "per_gi", 0) > 1)
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlGpuInstanceGetVgpuSchedulerState(nvmlGpuInstance_t instance, nvmlVgpuSchedulerStateInfo_v1_t *info)
{
	nvmlVgpuSchedulerGetState_t state;
	VIEW(view);
	nvmlReturn_t ret = view_shared_instance(&view, instance, info);

	if (ret == NVML_SUCCESS && info->version != NVML_STRUCT_VERSION(nvmlVgpuSchedulerStateInfo_v1_t, 1))
		ret = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (ret == NVML_SUCCESS)
		ret = read_state(&view, &state);
	if (ret != NVML_SUCCESS)
		return ret;
	info->schedulerPolicy = state.schedulerPolicy;
	info->arrMode = state.arrMode;
	info->first = state.first;
	info->timeslice = state.timeslice;
	return NVML_SUCCESS;
}

API nvmlGpuInstanceGetVgpuSchedulerState_v2(nvmlGpuInstance_t instance, nvmlVgpuSchedulerStateInfo_v2_t *info)
{
	nvmlVgpuSchedulerGetState_t state;
	VIEW(view);
	nvmlReturn_t ret = view_shared_instance(&view, instance, info);

	if (ret == NVML_SUCCESS)
		ret = read_state(&view, &state);
	if (ret == NVML_SUCCESS)
		tell_newer_state(&state, info);
	return ret;
}

static bool is_outside(unsigned int value, unsigned int least, unsigned int most)
{
	return value && (value < least || value > most);
}

/* Numbers that are 0 mean the default. */
static nvmlReturn_t write_state(const struct view *view, unsigned int policy, unsigned int arr, unsigned int slice_ns,
				unsigned int frequency, unsigned int factor)
{
	struct lab_answer answer;

	if (policy < BEST_EFFORT || policy > FIXED_SHARE || arr > ARR_ON ||
	    is_outside(slice_ns, SLICE_LEAST_NS, SLICE_MOST_NS) ||
	    is_outside(frequency, FREQUENCY_LEAST, FREQUENCY_MOST) || is_outside(factor, FACTOR_LEAST, FACTOR_MOST))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (arr == ARR_OFF && slice_ns)
		return lab_control(&answer, "scheduler %s policy=%u arr=%u slice_us=%u", view->gpu->address, policy, arr,
				   slice_ns / 1000);
	if (arr != ARR_OFF && frequency)
		return lab_control(&answer, "scheduler %s policy=%u arr=%u frequency=%u", view->gpu->address, policy,
				   arr, frequency);
	return lab_control(&answer, "scheduler %s policy=%u arr=%u", view->gpu->address, policy, arr);
}

API nvmlDeviceSetVgpuSchedulerState(nvmlDevice_t device, nvmlVgpuSchedulerSetState_t *state)
{
	VIEW(view);
	nvmlReturn_t ret = view_scheduler(&view, device, state);

	if (ret != NVML_SUCCESS)
		return ret;
	if (state->enableARRMode == ARR_ON)
		return write_state(&view, state->schedulerPolicy, ARR_ON, 0, state->frequency, state->first);
	return write_state(&view, state->schedulerPolicy, state->enableARRMode, state->first, 0, 0);
}

API nvmlDeviceSetVgpuSchedulerState_v2(nvmlDevice_t device, nvmlVgpuSchedulerState_v2_t *state)
{
	VIEW(view);
	nvmlReturn_t ret = view_scheduler(&view, device, state);

	if (ret != NVML_SUCCESS)
		return ret;
	return write_state(&view, state->schedulerPolicy, ARR_DEFAULT, 0, state->frequency, state->avgFactor);
}
