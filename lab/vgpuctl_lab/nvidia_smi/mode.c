/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi -mig` and `--gpu-reset` (reference 5.1). */
#include <stdio.h>
#include <string.h>

#include "smi.h"

static nvmlReturn_t set_one(const struct device *device, unsigned int mode)
{
	nvmlReturn_t activation = NVML_SUCCESS;
	nvmlReturn_t ret = device->lost ? device->lost
					: nvmlDeviceSetMigMode(device->handle, mode, (unsigned int *)&activation);

	if (ret) {
		printf("Unable to %s MIG Mode for GPU %s: %s\n", mode ? "enable" : "disable", device->bus_id,
		       nvmlErrorString(ret));
	} else if (activation) {
		printf("Warning: MIG mode is in pending %s state for GPU %s:%s\n", mode ? "enable" : "disable",
		       device->bus_id, nvmlErrorString(activation));
		printf("Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU %s\n",
		       device->bus_id);
	} else {
		printf("%s MIG Mode for GPU %s\n", mode ? "Enabled" : "Disabled", device->bus_id);
	}
	return ret;
}

int set_mig_mode(const struct selection *selection, const char *text)
{
	int first = NVML_SUCCESS;
	unsigned int mode;

	if (read_number(text, &mode) || mode > 1) {
		puts("Invalid value for MIG mode: 0 or 1 is wanted. Please run 'nvidia-smi -h' for help.");
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	for (unsigned int i = 0; i < selection->count; i++) {
		int ret = set_one(&selection->devices[i], mode);

		if (ret && ret != NVML_ERROR_NOT_SUPPORTED) {
			puts("Terminating early due to previous errors.");
			return ret;
		}
		if (ret && !first)
			first = ret;
		if (ret)
			puts("Treating as warning and moving on.");
	}
	puts("All done.");
	return first;
}

int reset_devices(const struct selection *selection)
{
	for (unsigned int i = 0; i < selection->count; i++) {
		const struct device *device = &selection->devices[i];
		nvmlReturn_t ret = device->lost ? device->lost : labDeviceReset(device->handle);

		if (ret == NVML_ERROR_NOT_SUPPORTED) {
			printf("Resetting GPU %s is not supported.\n", device->bus_id);
			return ret;
		}
		if (ret == NVML_ERROR_IN_USE) {
			printf("The following GPUs could not be reset:\n  GPU %s: In use by another client\n\n",
			       device->bus_id);
			puts("1 device is currently being used by one or more other processes. Please first kill all "
			     "processes using this device.");
			return ret;
		}
		if (ret) {
			printf("Unable to reset GPU %s: %s\n", device->bus_id, nvmlErrorString(ret));
			return ret;
		}
		printf("GPU %s was successfully reset.\n", device->bus_id);
	}
	puts("All done.");
	return NVML_SUCCESS;
}

int set_persistence(const struct selection *selection, const char *text)
{
	unsigned int mode;

	if (read_number(text, &mode) || mode > 1) {
		puts("Invalid value for persistence mode: 0 or 1 is wanted. Please run 'nvidia-smi -h' for help.");
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	for (unsigned int i = 0; i < selection->count; i++)
		if (!selection->devices[i].lost)
			printf("%s persistence mode for GPU %s.\n", mode ? "Enabled" : "Disabled",
			       selection->devices[i].bus_id);
	puts("All done.");
	return NVML_SUCCESS;
}
