/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi vgpu`: the vGPUs of running VMs, and mixed-size mode (reference 3.3, 6.1). */
#include <stdio.h>
#include <string.h>

#include "smi.h"

#define MOST_VGPUS 128

static unsigned int list_active(const struct device *device, nvmlVgpuInstance_t *instances)
{
	unsigned int count = MOST_VGPUS;

	return nvmlDeviceGetActiveVgpus(device->handle, &count, instances) == NVML_SUCCESS ? count : 0;
}

/* Without MIG NVML tells a load, an emulated GPU's is 0. */
static const char *load_of(const struct device *device)
{
	nvmlUtilization_t load;

	return nvmlDeviceGetUtilizationRates(device->handle, &load) == NVML_SUCCESS ? "0 %" : "N/A";
}

static void tell_loads(const char *load)
{
	static const char *const engines[] = { "GPU", "Memory", "Encoder", "Decoder", "Jpeg", "Ofa" };

	puts("        Utilization");
	for (size_t i = 0; i < sizeof(engines) / sizeof(*engines); i++)
		tell(12, engines[i], "%s", load);
}

static void tell_sessions(const char *title)
{
	printf("        %s\n", title);
	tell(12, "Active Sessions", "0");
	tell(12, "Average FPS", "0");
	tell(12, "Average Latency", "0");
}

static void describe_vgpu(const struct device *device, nvmlVgpuInstance_t instance)
{
	nvmlVgpuPlacementId_v1_t placement = { .version = NVML_STRUCT_VERSION(nvmlVgpuPlacementId_v1_t, 1) };
	char vm[96] = "N/A", vm_name[256] = "N/A", name[64] = "", uuid[96] = "N/A", mdev[96] = "N/A";
	unsigned int kind, type = 0, gi = NVML_NO_GPU_INSTANCE, limit = 0, ecc = 0, size = sizeof(name);
	unsigned long long total = 0, used = 0;

	nvmlVgpuInstanceGetVmID(instance, vm, sizeof(vm), &kind);
	labVgpuInstanceGetVmName(instance, vm_name, sizeof(vm_name));
	nvmlVgpuInstanceGetType(instance, &type);
	nvmlVgpuTypeGetName(type, name, &size);
	nvmlVgpuInstanceGetUUID(instance, uuid, sizeof(uuid));
	nvmlVgpuInstanceGetMdevUUID(instance, mdev, sizeof(mdev));
	nvmlVgpuInstanceGetGpuInstanceId(instance, &gi);
	placement.placementId = NVML_INVALID_VGPU_PLACEMENT_ID;
	nvmlVgpuInstanceGetPlacementId(instance, &placement);
	nvmlVgpuInstanceGetFrameRateLimit(instance, &limit);
	nvmlVgpuInstanceGetEccMode(instance, &ecc);
	nvmlVgpuTypeGetFramebufferSize(type, &total);
	nvmlVgpuInstanceGetFbUsage(instance, &used);

	tell(4, "vGPU ID", "%u", instance);
	tell(8, "VM UUID", "%s", vm);
	tell(8, "VM Name", "%s", vm_name);
	tell(8, "vGPU Name", "%s", name);
	tell(8, "vGPU Type", "%u", type);
	tell(8, "vGPU UUID", "%s", uuid);
	tell(8, "MDEV UUID", "%s", mdev);
	tell(8, "Guest Driver Version", "N/A");
	tell(8, "License Status", "N/A (Expiry: N/A)");
	if (gi == NVML_NO_GPU_INSTANCE)
		tell(8, "GPU Instance ID", "N/A");
	else
		tell(8, "GPU Instance ID", "%u", gi);
	if (placement.placementId == NVML_INVALID_VGPU_PLACEMENT_ID)
		tell(8, "Placement ID", "N/A");
	else
		tell(8, "Placement ID", "%u", placement.placementId);
	tell(8, "Accounting Mode", "Disabled");
	tell(8, "ECC Mode", "%s", ecc ? "Enabled" : "Disabled");
	tell(8, "Accounting Buffer Size", "4000");
	tell(8, "Frame Rate Limit", "%u FPS", limit);
	puts("        PCI");
	tell(12, "Bus Id", "00000000:00:00.0");
	puts("        FB Memory Usage");
	tell(12, "Total", "%llu MiB", total >> 20);
	tell(12, "Used", "%llu MiB", used >> 20);
	tell(12, "Free", "%llu MiB", (total - used) >> 20);
	tell_loads(load_of(device));
	tell_sessions("Encoder Stats");
	tell_sessions("FBC Stats");
}

static int query(const struct selection *selection)
{
	nvmlVgpuInstance_t instances[MOST_VGPUS];

	for (unsigned int i = 0; i < selection->count; i++) {
		const struct device *device = &selection->devices[i];
		unsigned int count;

		if (device->lost) {
			printf("Unable to determine the device handle for gpu %u: %s\n", device->index,
			       nvmlErrorString(device->lost));
			continue;
		}
		count = list_active(device, instances);
		printf("GPU %s\n", device->bus_id);
		tell(4, "Active vGPUs", "%u", count);
		for (unsigned int vgpu = 0; vgpu < count; vgpu++)
			describe_vgpu(device, instances[vgpu]);
		putchar('\n');
	}
	return NVML_SUCCESS;
}

static void shorten(char *name, size_t room)
{
	if (strlen(name) > room)
		strcpy(name + room - 3, "...");
}

static void print_row(const struct device *device)
{
	nvmlVgpuInstance_t instances[MOST_VGPUS];
	unsigned int count = list_active(device, instances);
	bool has_load = strcmp(load_of(device), "N/A") != 0;
	char name[96] = "";

	nvmlDeviceGetName(device->handle, name, sizeof(name));
	shorten(name, 25);
	printf("|%4u  %-25s  | %-28s | %-10s |\n", device->index, name, device->bus_id, has_load ? "  0%" : " N/A");
	for (unsigned int i = 0; i < count; i++) {
		char vm[96] = "N/A", vm_name[256] = "N/A", type_name[64] = "";
		unsigned int kind, type = 0, size = sizeof(type_name);

		nvmlVgpuInstanceGetVmID(instances[i], vm, sizeof(vm), &kind);
		labVgpuInstanceGetVmName(instances[i], vm_name, sizeof(vm_name));
		nvmlVgpuInstanceGetType(instances[i], &type);
		nvmlVgpuTypeGetName(type, type_name, &size);
		shorten(vm, 7);
		shorten(vm_name, 19);
		shorten(type_name, 14);
		printf("|      %-10u  %-14s | %-7s  %-19s | %-10s |\n", instances[i], type_name, vm, vm_name,
		       has_load ? "     0%" : "    N/A");
	}
	puts("+---------------------------------+------------------------------+------------+");
}

static int show_table(const struct selection *selection)
{
	char driver[80] = "N/A";

	nvmlSystemGetDriverVersion(driver, sizeof(driver));
	puts("+-----------------------------------------------------------------------------+");
	printf("| NVIDIA-SMI %-22s Driver Version: %-25s |\n", driver, driver);
	puts("|---------------------------------+------------------------------+------------+");
	puts("| GPU  Name                       | Bus-Id                       | GPU-Util   |");
	puts("|      vGPU ID     Name           | VM ID     VM Name            | vGPU-Util  |");
	puts("|=================================+==============================+============|");
	for (unsigned int i = 0; i < selection->count; i++)
		if (!selection->devices[i].lost)
			print_row(&selection->devices[i]);
	return NVML_SUCCESS;
}

/* gi: text of `-gi`, or NULL for the GPU itself. */
static nvmlReturn_t write_mode(const struct device *device, const char *gi, nvmlVgpuHeterogeneousMode_v1_t *mode)
{
	nvmlGpuInstance_t instance;
	unsigned int id;
	nvmlReturn_t ret;

	if (device->lost)
		return device->lost;
	if (!gi)
		return nvmlDeviceSetVgpuHeterogeneousMode(device->handle, mode);
	ret = read_number(gi, &id);
	if (ret == NVML_SUCCESS)
		ret = nvmlDeviceGetGpuInstanceById(device->handle, id, &instance);
	return ret == NVML_SUCCESS ? nvmlGpuInstanceSetVgpuHeterogeneousMode(instance, mode) : ret;
}

static int change_mode(const struct selection *selection, const char *gi, const char *text)
{
	nvmlVgpuHeterogeneousMode_v1_t mode = { .version = NVML_STRUCT_VERSION(nvmlVgpuHeterogeneousMode_v1_t, 1) };
	char where[32] = "";

	if (read_number(text, &mode.mode) || mode.mode > 1) {
		puts("Invalid value for vGPU heterogeneous mode: 0 or 1 is wanted.");
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	if (gi)
		snprintf(where, sizeof(where), " GPU Instance %s", gi);
	for (unsigned int i = 0; i < selection->count; i++) {
		const struct device *device = &selection->devices[i];
		nvmlReturn_t ret = write_mode(device, gi, &mode);

		if (ret) {
			printf("Unable to %s vGPU heterogeneous mode for GPU %s%s: %s\n",
			       mode.mode ? "enable" : "disable", device->bus_id, where, nvmlErrorString(ret));
			return ret;
		}
		printf("%s vGPU heterogeneous mode for GPU %s%s\n", mode.mode ? "Enabled" : "Disabled", device->bus_id,
		       where);
	}
	return NVML_SUCCESS;
}

int vgpu_command(const struct options *options)
{
	static const char *const known[] = { "-i", "-gi", "-q", "-s", "-c", "-v", "-shm", "-ss", NULL };
	const char *strange = unknown_option(options, known);
	struct selection selection;
	int ret;

	if (strange) {
		printf("Invalid option %s. Please run 'nvidia-smi vgpu -h' for help.\n", strange);
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	ret = select_devices(&selection, option(options, "-i"));
	if (ret)
		return ret;
	if (has_option(options, "-shm"))
		return change_mode(&selection, option(options, "-gi"), option(options, "-shm"));
	if (has_option(options, "-ss"))
		return show_scheduler_state(&selection);
	if (has_option(options, "-s") || has_option(options, "-c"))
		return describe_vgpu_types(&selection, has_option(options, "-c"),
					   has_option(options, "-v"));
	return has_option(options, "-q") ? query(&selection) : show_table(&selection);
}
