/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `nvidia-smi vgpu -ss` and `set-scheduler-state` (reference 3.4). What NVIDIA calls the options of the latter is not
 * published: these names are the lab's.
 */
#include <stdio.h>
#include <string.h>

#include "smi.h"

#define NS_PER_MS 1000000U

static const char *const policies[] = { "Unknown", "Best Effort", "Equal Share", "Fixed Share" };

static const char usage[] =
	"nvidia-smi vgpu set-scheduler-state [-i ID] --policy 1|2|3 [--arr 0|1|2] [--time-slice MS]\n"
	"                                    [--frequency HZ --average-factor N]\n\n"
	"    --policy           1 best effort, 2 equal share, 3 fixed share\n"
	"    --arr              adaptive round robin: 0 the default, 1 off, 2 on\n"
	"    --time-slice       1 to 30, without adaptive round robin\n"
	"    --frequency        63 to 960, with it\n"
	"    --average-factor   1 to 60, with it\n";

int show_scheduler_state(const struct selection *selection)
{
	for (unsigned int i = 0; i < selection->count; i++) {
		const struct device *device = &selection->devices[i];
		nvmlVgpuSchedulerGetState_t state;
		nvmlReturn_t ret = device->lost ? device->lost : nvmlDeviceGetVgpuSchedulerState(device->handle, &state);

		printf("GPU %s\n", device->bus_id);
		if (ret) {
			printf("    %-38s: %s\n", "Active vGPU Scheduler", "N/A");
			continue;
		}
		printf("    %-38s: %s\n", "Scheduler Policy",
		       policies[state.schedulerPolicy < 4 ? state.schedulerPolicy : 0]);
		printf("    %-38s: %s\n", "ARR Mode",
		       state.schedulerPolicy == 1 ? "N/A" : state.arrMode == 1 ? "Disabled" : "Enabled");
		printf("    %-38s: %.1f ms\n", "Time Slice",
		       (state.arrMode == 1 ? state.first : state.timeslice) / (double)NS_PER_MS);
	}
	return NVML_SUCCESS;
}

/* The number of an option; 0, which is the default to NVML, when it is left out. */
static int number_of(const struct options *options, const char *name, unsigned int *value)
{
	*value = 0;
	if (!has_option(options, name, name) || read_number(option(options, name, name), value) == NVML_SUCCESS)
		return NVML_SUCCESS;
	printf("%s wants a number.\n", name);
	return NVML_ERROR_INVALID_ARGUMENT;
}

int set_scheduler_state(const struct options *options)
{
	static const char *const known[] = { "-i", "--id", "--policy", "--arr", "--time-slice", "--frequency",
					     "--average-factor", NULL };
	nvmlVgpuSchedulerSetState_t state = { 0 };
	unsigned int slice_ms, factor;
	struct selection selection;
	int ret;

	if (has_option(options, "-h", "--help")) {
		fputs(usage, stdout);
		return NVML_SUCCESS;
	}
	if (unknown_option(options, known) || !has_option(options, "--policy", "--policy")) {
		fputs(usage, stdout);
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	if (number_of(options, "--policy", &state.schedulerPolicy) || number_of(options, "--arr", &state.enableARRMode) ||
	    number_of(options, "--time-slice", &slice_ms) || number_of(options, "--frequency", &state.frequency) ||
	    number_of(options, "--average-factor", &factor))
		return NVML_ERROR_INVALID_ARGUMENT;
	state.first = state.enableARRMode == 2 ? factor : slice_ms * NS_PER_MS;
	ret = select_devices(&selection, option(options, "-i", "--id"));
	for (unsigned int i = 0; !ret && i < selection.count; i++) {
		const struct device *device = &selection.devices[i];

		ret = device->lost ? (int)device->lost : (int)nvmlDeviceSetVgpuSchedulerState(device->handle, &state);
		if (ret)
			printf("Unable to set vGPU scheduler state for GPU %s: %s\n", device->bus_id, nvmlErrorString(ret));
		else
			printf("Set vGPU scheduler state for GPU %s\n", device->bus_id);
	}
	return ret;
}
