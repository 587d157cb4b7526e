/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi vgpu -s` and `-c`, with `-v` (reference 6.1). */
#include <stdio.h>
#include <string.h>

#include "smi.h"

#define MOST_TYPES 128
#define MOST_PLACEMENTS 128

static void tell_flag(unsigned int type, const char *label, unsigned int capability)
{
	unsigned int answer = 0;

	nvmlVgpuTypeGetCapabilities(type, capability, &answer);
	tell(8, label, "%s", answer ? "True" : "False");
}

/* In mixed-size mode a type has places. */
static void tell_placements(const struct device *device, unsigned int type, bool only_creatable)
{
	unsigned int ids[MOST_PLACEMENTS];
	nvmlVgpuPlacementList_v2_t list = {
		.version = NVML_STRUCT_VERSION(nvmlVgpuPlacementList_v2_t, 2), .count = MOST_PLACEMENTS, .placementIds = ids
	};
	char text[1024] = "";
	nvmlReturn_t ret = only_creatable ? nvmlDeviceGetVgpuTypeCreatablePlacements(device->handle, type, &list)
					  : nvmlDeviceGetVgpuTypeSupportedPlacements(device->handle, type, &list);

	if (ret == NVML_SUCCESS)
		for (unsigned int i = 0; i < list.count; i++)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%u", i ? " " : "", ids[i]);
	else
		strcpy(text, "N/A");
	if (only_creatable && ret == NVML_SUCCESS)
		tell(8, "Placement Size", "%u", list.placementSize);
	tell(8, only_creatable ? "Creatable Placement IDs" : "Supported Placement IDs", "%s", text);
}

static void describe(const struct device *device, unsigned int type, bool only_creatable)
{
	char name[64] = "", class[64] = "N/A", license[128] = "N/A";
	unsigned int size = sizeof(name), class_size = sizeof(class), profile = NVML_NO_GPU_INSTANCE, most = 0, per_vm = 0;
	unsigned int heads = 0, width = 0, height = 0, limit = 0;
	nvmlVgpuTypeMaxInstance_v1_t per_gi = { .version = NVML_STRUCT_VERSION(nvmlVgpuTypeMaxInstance_v1_t, 1),
						.vgpuTypeId = type };
	unsigned long long guest = 0, subsystem = 0, memory = 0;

	nvmlVgpuTypeGetName(type, name, &size);
	nvmlVgpuTypeGetClass(type, class, &class_size);
	nvmlVgpuTypeGetGpuInstanceProfileId(type, &profile);
	nvmlVgpuTypeGetMaxInstances(device->handle, type, &most);
	nvmlVgpuTypeGetMaxInstancesPerVm(type, &per_vm);
	nvmlVgpuTypeGetMaxInstancesPerGpuInstance(&per_gi);
	nvmlVgpuTypeGetDeviceID(type, &guest, &subsystem);
	nvmlVgpuTypeGetFramebufferSize(type, &memory);
	nvmlVgpuTypeGetNumDisplayHeads(type, &heads);
	nvmlVgpuTypeGetResolution(type, 0, &width, &height);
	nvmlVgpuTypeGetFrameRateLimit(type, &limit);
	nvmlVgpuTypeGetLicense(type, license, sizeof(license));

	tell(4, "vGPU Type ID", "%#x", type);
	tell(8, "Name", "%s", name);
	tell(8, "Class", "%s", class);
	if (profile == NVML_NO_GPU_INSTANCE)
		tell(8, "GPU Instance Profile ID", "N/A");
	else
		tell(8, "GPU Instance Profile ID", "%u", profile);
	tell(8, "Max Instances", "%u", most);
	tell(8, "Max Instances Per VM", "%u", per_vm);
	if (per_gi.maxInstancePerGI)
		tell(8, "Max Instances Per GI", "%u", per_gi.maxInstancePerGI);
	else
		tell(8, "Max Instances Per GI", "N/A");
	tell_flag(type, "Multi vGPU Exclusive", 2);
	tell_flag(type, "vGPU Exclusive Type", 3);
	tell_flag(type, "vGPU Exclusive Size", 4);
	tell(8, "Device ID", "%#llx", guest);
	tell(8, "Sub System ID", "%#llx", subsystem);
	tell(8, "FB Memory", "%llu MiB", memory >> 20);
	tell(8, "Display Heads", "%u", heads);
	tell(8, "Maximum X Resolution", "%u", width);
	tell(8, "Maximum Y Resolution", "%u", height);
	tell(8, "Frame Rate Limit", "%u FPS", limit);
	tell(8, "GRID License", "%s", license);
	tell_placements(device, type, only_creatable);
}

int describe_vgpu_types(const struct selection *selection, bool only_creatable, bool verbose)
{
	for (unsigned int i = 0; i < selection->count; i++) {
		const struct device *device = &selection->devices[i];
		unsigned int types[MOST_TYPES], count = MOST_TYPES;
		nvmlReturn_t ret = device->lost;

		if (!ret)
			ret = only_creatable ? nvmlDeviceGetCreatableVgpus(device->handle, &count, types)
					     : nvmlDeviceGetSupportedVgpus(device->handle, &count, types);
		printf("GPU %s\n", device->bus_id);
		if (ret) {
			printf("    vGPU types: %s\n", nvmlErrorString(ret));
			continue;
		}
		for (unsigned int type = 0; type < count; type++) {
			char name[64] = "";
			unsigned int size = sizeof(name);

			if (verbose) {
				describe(device, types[type], only_creatable);
				continue;
			}
			nvmlVgpuTypeGetName(types[type], name, &size);
			printf("    %s\n", name);
		}
	}
	return NVML_SUCCESS;
}
