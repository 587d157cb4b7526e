/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi vgpu -ss` (reference 3.4). */
#include <stdio.h>

#include "smi.h"

#define NS_PER_MS 1000000U

static const char *const policies[] = { "Unknown", "Best Effort", "Equal Share", "Fixed Share" };

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
