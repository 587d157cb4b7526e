/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi mig -cgi`, `-dgi`, `-dci` (reference 5.2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define MOST_INSTANCES 64

static nvmlGpuInstanceProfileInfo_v2_t empty_profile(void)
{
	return (nvmlGpuInstanceProfileInfo_v2_t){ .version = NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2) };
}

/* A profile by its id or name. */
static nvmlReturn_t find_profile(const struct device *device, const char *wanted, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	unsigned int id;

	*info = empty_profile();
	if (read_number(wanted, &id) == NVML_SUCCESS)
		return nvmlDeviceGetGpuInstanceProfileInfoByIdV(device->handle, id, info);
	if (!strncmp(wanted, "MIG ", 4))
		wanted += 4;
	for (unsigned int known = 0; known < NVML_GPU_INSTANCE_PROFILE_COUNT; known++)
		if (nvmlDeviceGetGpuInstanceProfileInfoV(device->handle, known, info) == NVML_SUCCESS &&
		    !strcmp(info->name, wanted))
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_SUPPORTED;
}

/* wanted: id or name, or NULL for the whole GPU instance. */
static nvmlReturn_t find_compute_profile(nvmlGpuInstance_t instance, const char *wanted,
					 nvmlComputeInstanceProfileInfo_v2_t *info)
{
	nvmlReturn_t ret = NVML_ERROR_NOT_SUPPORTED;
	unsigned int id = NVML_NO_GPU_INSTANCE, most = 0;

	if (wanted)
		read_number(wanted, &id);
	for (unsigned int known = 0; known < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; known++) {
		nvmlComputeInstanceProfileInfo_v2_t found = {
			.version = NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2)
		};

		if (nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance, known, 0, &found))
			continue;
		if (wanted ? found.id == id || !strcmp(found.name, wanted) : found.sliceCount > most) {
			most = found.sliceCount;
			*info = found;
			ret = NVML_SUCCESS;
		}
	}
	return ret;
}

static nvmlReturn_t create_compute_instance(const struct device *device, nvmlGpuInstance_t instance, unsigned int gi,
					    const char *wanted)
{
	nvmlComputeInstanceProfileInfo_v2_t profile;
	nvmlComputeInstanceInfo_t info;
	nvmlComputeInstance_t created;
	nvmlReturn_t ret = find_compute_profile(instance, wanted, &profile);

	if (ret == NVML_SUCCESS)
		ret = nvmlGpuInstanceCreateComputeInstance(instance, profile.id, &created);
	if (ret == NVML_SUCCESS)
		ret = nvmlComputeInstanceGetInfo_v2(created, &info);
	if (ret != NVML_SUCCESS) {
		printf("Unable to create a compute instance on GPU %2u GPU instance ID %2u using profile %s: %s\n",
		       device->index, gi, wanted ? wanted : "default", nvmlErrorString(ret));
		return ret;
	}
	printf("Successfully created compute instance ID %2u on GPU %2u GPU instance ID %2u using profile MIG %s (ID %2u)\n",
	       info.id, device->index, gi, profile.name, profile.id);
	return NVML_SUCCESS;
}

/* wanted: `9`, `3g.20gb`, `9:4` with the slot that it begins at. */
static nvmlReturn_t create_gpu_instance(const struct device *device, char *wanted, bool with_compute_instance)
{
	nvmlGpuInstanceProfileInfo_v2_t profile;
	nvmlGpuInstanceInfo_t info;
	nvmlGpuInstance_t created;
	nvmlPlacement_t placement, places[MOST_INSTANCES];
	unsigned int count = MOST_INSTANCES;
	char *start = strchr(wanted, ':');
	nvmlReturn_t ret;

	if (start)
		*start++ = '\0';
	ret = find_profile(device, wanted, &profile);
	if (ret == NVML_SUCCESS && start)
		ret = read_number(start, &placement.start);
	if (ret == NVML_SUCCESS && start) {
		ret = nvmlDeviceGetGpuInstancePossiblePlacements_v2(device->handle, profile.id, places, &count);
		placement.size = places[0].size;
	}
	if (ret == NVML_SUCCESS)
		ret = start ? nvmlDeviceCreateGpuInstanceWithPlacement(device->handle, profile.id, &placement, &created)
			    : nvmlDeviceCreateGpuInstance(device->handle, profile.id, &created);
	if (ret == NVML_SUCCESS)
		ret = nvmlGpuInstanceGetInfo(created, &info);
	if (ret != NVML_SUCCESS) {
		printf("Unable to create a GPU instance on GPU %2u using profile %s: %s\n", device->index, wanted,
		       nvmlErrorString(ret));
		return ret;
	}
	printf("Successfully created GPU instance ID %2u on GPU %2u using profile MIG %s (ID %2u)\n", info.id, device->index,
	       profile.name, profile.id);
	return with_compute_instance ? create_compute_instance(device, created, info.id, NULL) : NVML_SUCCESS;
}

static unsigned int list_gpu_instances(const struct device *device, nvmlGpuInstance_t *handles, unsigned int *ids)
{
	unsigned int found = 0;

	for (unsigned int known = 0; known < NVML_GPU_INSTANCE_PROFILE_COUNT; known++) {
		nvmlGpuInstanceProfileInfo_v2_t profile = empty_profile();
		nvmlGpuInstance_t some[MOST_INSTANCES];
		unsigned int count = 0;

		if (nvmlDeviceGetGpuInstanceProfileInfoV(device->handle, known, &profile) ||
		    nvmlDeviceGetGpuInstances(device->handle, profile.id, some, &count))
			continue;
		for (unsigned int i = 0; i < count && found < MOST_INSTANCES; i++) {
			nvmlGpuInstanceInfo_t info;

			if (nvmlGpuInstanceGetInfo(some[i], &info))
				continue;
			handles[found] = some[i];
			ids[found++] = info.id;
		}
	}
	return found;
}

/* Whether a list with commas has the number; every number when there is no list. */
static bool is_wanted(const char *list, unsigned int id)
{
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strtoul(at, NULL, 10) == id)
			return true;
	return !list;
}

static nvmlReturn_t destroy_gpu_instances(const struct device *device, const char *wanted)
{
	nvmlGpuInstance_t handles[MOST_INSTANCES];
	unsigned int ids[MOST_INSTANCES], count = list_gpu_instances(device, handles, ids), found = 0;

	for (unsigned int i = 0; i < count; i++) {
		nvmlReturn_t ret;

		if (!is_wanted(wanted, ids[i]))
			continue;
		found++;
		ret = nvmlGpuInstanceDestroy(handles[i]);
		if (ret != NVML_SUCCESS) {
			printf("Unable to destroy GPU instance ID %2u from GPU %2u: %s\n", ids[i], device->index,
			       nvmlErrorString(ret));
			return ret;
		}
		printf("Successfully destroyed GPU instance ID %2u from GPU %2u\n", ids[i], device->index);
	}
	return found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t destroy_compute_instances(const struct device *device, const char *gis, const char *wanted)
{
	nvmlGpuInstance_t handles[MOST_INSTANCES];
	unsigned int ids[MOST_INSTANCES], count = list_gpu_instances(device, handles, ids), found = 0;

	for (unsigned int i = 0; i < count; i++) {
		if (!is_wanted(gis, ids[i]))
			continue;
		for (unsigned int ci = 0; ci < MOST_INSTANCES; ci++) {
			nvmlComputeInstance_t instance;
			nvmlReturn_t ret;

			if (!is_wanted(wanted, ci) ||
			    nvmlGpuInstanceGetComputeInstanceById(handles[i], ci, &instance) != NVML_SUCCESS)
				continue;
			found++;
			ret = nvmlComputeInstanceDestroy(instance);
			if (ret != NVML_SUCCESS) {
				printf("Unable to destroy compute instance ID %2u from GPU %2u GPU instance ID %2u: %s\n", ci,
				       device->index, ids[i], nvmlErrorString(ret));
				return ret;
			}
			printf("Successfully destroyed compute instance ID %2u from GPU %2u GPU instance ID %2u\n", ci,
			       device->index, ids[i]);
		}
	}
	return found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

int change_instances(const struct selection *selection, const struct options *options)
{
	const char *gis = option(options, "-gi"), *what = "";
	int ret = NVML_SUCCESS;

	for (unsigned int i = 0; i < selection->count && ret == NVML_SUCCESS; i++) {
		const struct device *device = &selection->devices[i];

		if (has_option(options, "-cgi")) {
			char text[256], *rest = text, *one;

			what = "create GPU instances";
			snprintf(text, sizeof(text), "%s", option(options, "-cgi") ?: "");
			while (ret == NVML_SUCCESS && (one = strsep(&rest, ",")))
				ret = create_gpu_instance(device, one,
							  has_option(options, "-C"));
		} else if (has_option(options, "-dgi")) {
			what = "destroy GPU instances";
			ret = destroy_gpu_instances(device, gis);
		} else if (has_option(options, "-dci")) {
			what = "destroy compute instances";
			ret = destroy_compute_instances(device, gis, option(options, "-ci"));
		} else {
			puts("Invalid combination of input arguments. Please run 'nvidia-smi mig -h' for help.");
			return NVML_ERROR_INVALID_ARGUMENT;
		}
	}
	if (ret)
		printf("Failed to %s: %s\n", what, nvmlErrorString(ret));
	return ret;
}
