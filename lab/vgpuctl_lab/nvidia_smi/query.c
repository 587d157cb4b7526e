/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi --query-gpu=FIELDS --format=csv` (reference 6.2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define NOT_AVAILABLE "[N/A]"
#define MOST_FIELDS 64

struct row {
	const struct device *device;
	char *text;
	size_t size;
};

typedef nvmlReturn_t read_field(struct row *row);

static nvmlReturn_t put(struct row *row, nvmlReturn_t ret, const char *format, unsigned long long value)
{
	if (ret == NVML_SUCCESS)
		snprintf(row->text, row->size, format, value);
	return ret;
}

static nvmlReturn_t read_index(struct row *row)
{
	return put(row, NVML_SUCCESS, "%llu", row->device->index);
}

static nvmlReturn_t read_name(struct row *row)
{
	return nvmlDeviceGetName(row->device->handle, row->text, row->size);
}

static nvmlReturn_t read_uuid(struct row *row)
{
	return nvmlDeviceGetUUID(row->device->handle, row->text, row->size);
}

static nvmlReturn_t read_serial(struct row *row)
{
	return nvmlDeviceGetSerial(row->device->handle, row->text, row->size);
}

static nvmlReturn_t read_vbios(struct row *row)
{
	return nvmlDeviceGetVbiosVersion(row->device->handle, row->text, row->size);
}

static nvmlReturn_t read_bus_id(struct row *row)
{
	snprintf(row->text, row->size, "%s", row->device->bus_id);
	return NVML_SUCCESS;
}

static nvmlReturn_t read_device_id(struct row *row)
{
	nvmlPciInfo_t info = { .busId = "" };
	nvmlReturn_t ret = nvmlDeviceGetPciInfo_v3(row->device->handle, &info);

	return put(row, ret, "0x%08llX", info.pciDeviceId);
}

static nvmlReturn_t read_subsystem_id(struct row *row)
{
	nvmlPciInfo_t info = { .busId = "" };
	nvmlReturn_t ret = nvmlDeviceGetPciInfo_v3(row->device->handle, &info);

	return put(row, ret, "0x%08llX", info.pciSubSystemId);
}

static nvmlMemory_v2_t memory_of(struct row *row, nvmlReturn_t *ret)
{
	nvmlMemory_v2_t memory = { .version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2) };

	*ret = nvmlDeviceGetMemoryInfo_v2(row->device->handle, &memory);
	return memory;
}

static nvmlReturn_t read_memory_total(struct row *row)
{
	nvmlReturn_t ret;
	nvmlMemory_v2_t memory = memory_of(row, &ret);

	return put(row, ret, "%llu", memory.total >> 20);
}

static nvmlReturn_t read_memory_reserved(struct row *row)
{
	nvmlReturn_t ret;
	nvmlMemory_v2_t memory = memory_of(row, &ret);

	return put(row, ret, "%llu", memory.reserved >> 20);
}

static nvmlReturn_t read_memory_used(struct row *row)
{
	nvmlReturn_t ret;
	nvmlMemory_v2_t memory = memory_of(row, &ret);

	return put(row, ret, "%llu", memory.used >> 20);
}

static nvmlReturn_t read_memory_free(struct row *row)
{
	nvmlReturn_t ret;
	nvmlMemory_v2_t memory = memory_of(row, &ret);

	return put(row, ret, "%llu", memory.free >> 20);
}

static nvmlReturn_t read_gpu_load(struct row *row)
{
	nvmlUtilization_t load = { 0, 0 };
	nvmlReturn_t ret = nvmlDeviceGetUtilizationRates(row->device->handle, &load);

	return put(row, ret, "%llu", load.gpu);
}

static nvmlReturn_t read_memory_load(struct row *row)
{
	nvmlUtilization_t load = { 0, 0 };
	nvmlReturn_t ret = nvmlDeviceGetUtilizationRates(row->device->handle, &load);

	return put(row, ret, "%llu", load.memory);
}

static nvmlReturn_t read_temperature(struct row *row)
{
	unsigned int value = 0;
	nvmlReturn_t ret = nvmlDeviceGetTemperature(row->device->handle, 0, &value);

	return put(row, ret, "%llu", value);
}

static nvmlReturn_t put_watts(struct row *row, nvmlReturn_t ret, unsigned int milliwatts)
{
	if (ret == NVML_SUCCESS)
		snprintf(row->text, row->size, "%.2f", milliwatts / 1000.0);
	return ret;
}

static nvmlReturn_t read_power(struct row *row)
{
	unsigned int value = 0;
	nvmlReturn_t ret = nvmlDeviceGetPowerUsage(row->device->handle, &value);

	return put_watts(row, ret, value);
}

static nvmlReturn_t read_power_limit(struct row *row)
{
	unsigned int value = 0;
	nvmlReturn_t ret = nvmlDeviceGetPowerManagementLimit(row->device->handle, &value);

	return put_watts(row, ret, value);
}

static nvmlReturn_t put_mode(struct row *row, nvmlReturn_t ret, unsigned int mode)
{
	return put(row, ret, mode ? "Enabled" : "Disabled", 0);
}

static nvmlReturn_t read_persistence(struct row *row)
{
	unsigned int mode = 0;
	nvmlReturn_t ret = nvmlDeviceGetPersistenceMode(row->device->handle, &mode);

	return put_mode(row, ret, mode);
}

static nvmlReturn_t read_compute_mode(struct row *row)
{
	unsigned int mode = 0;
	nvmlReturn_t ret = nvmlDeviceGetComputeMode(row->device->handle, &mode);

	return put(row, ret, mode == 3 ? "Exclusive_Process" : mode ? "Prohibited" : "Default", 0);
}

static nvmlReturn_t read_mig(struct row *row)
{
	unsigned int current = 0, pending = 0;
	nvmlReturn_t ret = nvmlDeviceGetMigMode(row->device->handle, &current, &pending);

	return put_mode(row, ret, current);
}

static nvmlReturn_t read_mig_pending(struct row *row)
{
	unsigned int current = 0, pending = 0;
	nvmlReturn_t ret = nvmlDeviceGetMigMode(row->device->handle, &current, &pending);

	return put_mode(row, ret, pending);
}

static nvmlReturn_t read_ecc(struct row *row)
{
	unsigned int current = 0, pending = 0;
	nvmlReturn_t ret = nvmlDeviceGetEccMode(row->device->handle, &current, &pending);

	return put_mode(row, ret, current);
}

static nvmlReturn_t read_ecc_pending(struct row *row)
{
	unsigned int current = 0, pending = 0;
	nvmlReturn_t ret = nvmlDeviceGetEccMode(row->device->handle, &current, &pending);

	return put_mode(row, ret, pending);
}

static nvmlReturn_t read_ecc_errors(struct row *row)
{
	unsigned long long count = 0;
	nvmlReturn_t ret = nvmlDeviceGetTotalEccErrors(row->device->handle, 1, 0, &count);

	return put(row, ret, "%llu", count);
}

static nvmlReturn_t put_support(struct row *row, nvmlReturn_t ret, unsigned int is_supported)
{
	return put(row, ret, is_supported ? "Supported" : "Not Supported", 0);
}

static nvmlReturn_t read_driver_mixing(struct row *row)
{
	unsigned int answer = 0;
	nvmlReturn_t ret = nvmlGetVgpuDriverCapabilities(0, &answer);

	return put_support(row, ret, answer);
}

static nvmlReturn_t device_capability(struct row *row, unsigned int capability)
{
	unsigned int answer = 0;
	nvmlReturn_t ret = nvmlDeviceGetVgpuCapabilities(row->device->handle, capability, &answer);

	return put_support(row, ret, answer);
}

static nvmlReturn_t read_fractional(struct row *row)
{
	return device_capability(row, 0);
}

static nvmlReturn_t read_mixed_profiles(struct row *row)
{
	return device_capability(row, 1);
}

static nvmlReturn_t read_mixed_sizes(struct row *row)
{
	return device_capability(row, 2);
}

static nvmlReturn_t read_fabric_state(struct row *row)
{
	static const char *const states[] = { "N/A", "Not Started", "In Progress", "Completed" };
	nvmlGpuFabricInfo_t info = { .state = 0 };
	nvmlReturn_t ret = nvmlDeviceGetGpuFabricInfo(row->device->handle, &info);

	if (ret == NVML_SUCCESS)
		snprintf(row->text, row->size, "%s", states[info.state & 3]);
	return ret;
}

/* How the set-up ended, once it has ended. */
static nvmlReturn_t read_fabric_status(struct row *row)
{
	nvmlGpuFabricInfo_t info = { .state = 0 };
	nvmlReturn_t ret = nvmlDeviceGetGpuFabricInfo(row->device->handle, &info);

	if (ret == NVML_SUCCESS)
		snprintf(row->text, row->size, "%s", info.state == 3 && !info.status ? "Success" : "N/A");
	return ret;
}

static const struct field {
	const char *name, *unit;
	read_field *read;
} fields[] = {
	{ "index", "", read_index },
	{ "name", "", read_name },
	{ "uuid", "", read_uuid },
	{ "serial", "", read_serial },
	{ "vbios_version", "", read_vbios },
	{ "pci.bus_id", "", read_bus_id },
	{ "pci.device_id", "", read_device_id },
	{ "pci.sub_device_id", "", read_subsystem_id },
	{ "memory.total", "MiB", read_memory_total },
	{ "memory.reserved", "MiB", read_memory_reserved },
	{ "memory.used", "MiB", read_memory_used },
	{ "memory.free", "MiB", read_memory_free },
	{ "utilization.gpu", "%", read_gpu_load },
	{ "utilization.memory", "%", read_memory_load },
	{ "temperature.gpu", "", read_temperature },
	{ "power.draw", "W", read_power },
	{ "power.limit", "W", read_power_limit },
	{ "persistence_mode", "", read_persistence },
	{ "compute_mode", "", read_compute_mode },
	{ "mig.mode.current", "", read_mig },
	{ "mig.mode.pending", "", read_mig_pending },
	{ "ecc.mode.current", "", read_ecc },
	{ "ecc.mode.pending", "", read_ecc_pending },
	{ "ecc.errors.uncorrected.volatile.total", "", read_ecc_errors },
	{ "fabric.state", "", read_fabric_state },
	{ "fabric.status", "", read_fabric_status },
	{ "vgpu_driver_capability.heterogenous_multivGPU", "", read_driver_mixing },
	{ "vgpu_device_capability.fractional_multiVgpu", "", read_fractional },
	{ "vgpu_device_capability.heterogeneous_timeSlice_profile", "", read_mixed_profiles },
	{ "vgpu_device_capability.heterogeneous_timeSlice_sizes", "", read_mixed_sizes },
};

static const struct field *find_field(const char *name)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		if (!strcmp(fields[i].name, name))
			return &fields[i];
	return NULL;
}

/* A field's value and unit. */
nvmlReturn_t read_field_with_unit(const struct device *device, const char *name, char *text, size_t size)
{
	const struct field *field = find_field(name);
	struct row row = { device, text, size };
	nvmlReturn_t ret = field ? field->read(&row) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS && *field->unit)
		snprintf(text + strlen(text), size - strlen(text), " %s", field->unit);
	return ret;
}

static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, word, length) && (!at[length] || at[length] == ','))
			return true;
	return false;
}

int query_devices(const struct selection *selection, const char *wanted, const char *format)
{
	const struct field *chosen[MOST_FIELDS];
	char text[2048], value[256], *rest = text, *name;
	size_t count = 0;

	if (!wanted || !format || !has_word(format, "csv")) {
		puts(wanted ? "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help."
			    : "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.");
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	snprintf(text, sizeof(text), "%s", wanted);
	while ((name = strsep(&rest, ",")) && count < MOST_FIELDS) {
		chosen[count] = find_field(name + strspn(name, " "));
		if (!chosen[count++]) {
			printf("Field \"%s\" is not a valid field to query.\n\n", name);
			return NVML_ERROR_INVALID_ARGUMENT;
		}
	}
	for (size_t i = 0; i < count && !has_word(format, "noheader"); i++) {
		bool with_unit = *chosen[i]->unit && !has_word(format, "nounits");

		printf("%s%s%s%s%s%s", chosen[i]->name, with_unit ? " [" : "", with_unit ? chosen[i]->unit : "",
		       with_unit ? "]" : "", i + 1 < count ? ", " : "", i + 1 < count ? "" : "\n");
	}
	for (unsigned int gpu = 0; gpu < selection->count; gpu++) {
		const struct device *device = &selection->devices[gpu];

		if (device->lost) {
			printf("Unable to determine the device handle for gpu %u: %s\n", device->index,
			       nvmlErrorString(device->lost));
			continue;
		}
		for (size_t i = 0; i < count; i++) {
			struct row row = { device, value, sizeof(value) };
			bool is_known = chosen[i]->read(&row) == NVML_SUCCESS;
			bool with_unit = is_known && *chosen[i]->unit && !has_word(format, "nounits");

			printf("%s%s%s%s", is_known ? value : NOT_AVAILABLE, with_unit ? " " : "",
			       with_unit ? chosen[i]->unit : "", i + 1 < count ? ", " : "\n");
		}
	}
	return NVML_SUCCESS;
}
