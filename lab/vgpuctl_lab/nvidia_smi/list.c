/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi -L` and the summary without options. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "smi.h"

static void list_mig_devices(nvmlDevice_t device)
{
	nvmlDevice_t mig_device;

	for (unsigned int i = 0; nvmlDeviceGetMigDeviceHandleByIndex(device, i, &mig_device) == NVML_SUCCESS; i++) {
		char name[128] = "", uuid[96] = "", shown[96] = "";
		nvmlGpuInstance_t gpu_instance;
		nvmlComputeInstance_t instance;
		nvmlComputeInstanceInfo_t info;
		nvmlComputeInstanceProfileInfo_v2_t profile = {
			.version = NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2)
		};
		unsigned int gi = 0, ci = 0;

		nvmlDeviceGetName(mig_device, name, sizeof(name));
		nvmlDeviceGetUUID(mig_device, uuid, sizeof(uuid));
		snprintf(shown, sizeof(shown), "%s", strstr(name, " MIG ") ? strstr(name, " MIG ") + 5 : name);
		nvmlDeviceGetGpuInstanceId(mig_device, &gi);
		nvmlDeviceGetComputeInstanceId(mig_device, &ci);
		/* An instance that is only a part of its GPU instance is named after itself. */
		if (nvmlDeviceGetGpuInstanceById(device, gi, &gpu_instance) == NVML_SUCCESS &&
		    nvmlGpuInstanceGetComputeInstanceById(gpu_instance, ci, &instance) == NVML_SUCCESS &&
		    nvmlComputeInstanceGetInfo_v2(instance, &info) == NVML_SUCCESS)
			for (unsigned int known = 0; known < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; known++)
				if (nvmlGpuInstanceGetComputeInstanceProfileInfoV(gpu_instance, known, 0, &profile) ==
					    NVML_SUCCESS &&
				    profile.id == info.profileId)
					snprintf(shown, sizeof(shown), "%s", profile.name);
		printf("  MIG %-11s Device %2u: (UUID: %s)\n", shown, i, uuid);
	}
}

int list_devices(const struct selection *selection)
{
	for (unsigned int i = 0; i < selection->count; i++) {
		const struct device *device = &selection->devices[i];
		char name[96] = "", uuid[96] = "N/A";

		if (device->lost) {
			printf("Unable to determine the device handle for gpu %u: %s\n", device->index,
			       nvmlErrorString(device->lost));
			continue;
		}
		nvmlDeviceGetName(device->handle, name, sizeof(name));
		nvmlDeviceGetUUID(device->handle, uuid, sizeof(uuid));
		printf("GPU %u: %s (UUID: %s)\n", device->index, name, uuid);
		list_mig_devices(device->handle);
	}
	return NVML_SUCCESS;
}

static void shorten(char *name, size_t room)
{
	if (strlen(name) > room)
		strcpy(name + room - 3, "...");
}

static void summarise(const struct device *device)
{
	nvmlMemory_v2_t memory = { .version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2) };
	unsigned int temperature = 0, power = 0, limit = 0, mig = 0, pending = 0, compute = 0, ecc[2];
	char name[96] = "ERR!", errors[24] = "N/A", load[16] = "N/A", mode[16] = "N/A";
	unsigned long long count;
	nvmlUtilization_t utilization;

	nvmlDeviceGetName(device->handle, name, sizeof(name));
	shorten(name, 25);
	nvmlDeviceGetMemoryInfo_v2(device->handle, &memory);
	nvmlDeviceGetTemperature(device->handle, 0, &temperature);
	nvmlDeviceGetComputeMode(device->handle, &compute);
	nvmlDeviceGetPowerUsage(device->handle, &power);
	nvmlDeviceGetPowerManagementLimit(device->handle, &limit);
	if (nvmlDeviceGetEccMode(device->handle, &ecc[0], &ecc[1]) == NVML_SUCCESS && ecc[0] &&
	    nvmlDeviceGetTotalEccErrors(device->handle, 1, 0, &count) == NVML_SUCCESS)
		snprintf(errors, sizeof(errors), "%llu", count);
	if (nvmlDeviceGetUtilizationRates(device->handle, &utilization) == NVML_SUCCESS)
		snprintf(load, sizeof(load), "%u%%", utilization.gpu);
	if (nvmlDeviceGetMigMode(device->handle, &mig, &pending) == NVML_SUCCESS)
		snprintf(mode, sizeof(mode), "%s%s", mig ? "Enabled" : "Disabled", mig == pending ? "" : "*");
	printf("|%4u  %-25s      Off |   %s Off | %20s |\n", device->index, name, device->bus_id, errors);
	printf("| N/A%5uC    P8%15uW / %4uW | %7lluMiB / %6lluMiB |%8s %12s |\n", temperature,
	       power / 1000, limit / 1000, memory.used >> 20, memory.total >> 20, load,
	       compute == 3 ? "E. Process" : compute ? "Prohibited" : "Default");
	printf("|                                         |                        | %20s |\n", mode);
	puts("+-----------------------------------------+------------------------+----------------------+");
}

int summarise_devices(const struct selection *selection)
{
	char driver[80] = "N/A", now[64];
	time_t seconds = time(NULL);

	nvmlSystemGetDriverVersion(driver, sizeof(driver));
	strftime(now, sizeof(now), "%a %b %e %H:%M:%S %Y", localtime(&seconds));
	printf("%s       \n", now);
	puts("+-----------------------------------------------------------------------------------------+");
	printf("| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n", driver, driver, "12.4");
	puts("|-----------------------------------------+------------------------+----------------------+");
	puts("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |");
	puts("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |");
	puts("|                                         |                        |               MIG M. |");
	puts("|=========================================+========================+======================|");
	for (unsigned int i = 0; i < selection->count; i++)
		if (selection->devices[i].lost)
			printf("Unable to determine the device handle for GPU%u: %s\n", selection->devices[i].index,
			       nvmlErrorString(selection->devices[i].lost));
		else
			summarise(&selection->devices[i]);
	return NVML_SUCCESS;
}
