/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU's sensors and counters say: those of an idle GPU, but for memory, processes and ECC errors. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

#define IDLE_TEMPERATURE 34
#define HOTTEST 90
#define IDLE_PER_MILLE_OF_POWER 110

/* Framebuffer is handed out when a VM starts, not when its vGPU is created. */
static unsigned int vgpu_memory_mib(const struct view *view, unsigned int gi)
{
	const struct lab_line *vgpu = NULL;
	unsigned int sum = 0;

	while ((vgpu = view_next(view, vgpu, "vgpu")))
		if (lab_number(vgpu, "in_use", 0) && (gi == NO_NUMBER || vgpu_gi(vgpu) == gi))
			sum += lab_number(vgpu, "framebuffer", 0);
	return sum;
}

static nvmlReturn_t read_memory(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	VIEW(view);
	nvmlReturn_t ret = memory ? view_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	unsigned int size, told;

	if (ret != NVML_SUCCESS)
		return ret;
	if (view.target.ci != NO_NUMBER) {
		size = lab_number(view_gi(&view, view.target.gi), "profile", NO_NUMBER);
		size = told = gi_profile_number(view.gpu, size, "memory");
	} else {
		size = lab_number(view.gpu->card, "framebuffer", 0);
		told = lab_number(view.gpu->card, "memory", size);
	}
	memory->total = told * MIB;
	memory->reserved = (told / 128) * MIB;
	memory->used = vgpu_memory_mib(&view, view.target.gi) * MIB;
	if (memory->used + memory->reserved > memory->total)
		memory->used = memory->total - memory->reserved;
	memory->free = memory->total - memory->reserved - memory->used;
	return NVML_SUCCESS;
}

#define read_memory(device, memory) INJECTED(read_memory(device, memory))

/* Version 1 counts what the driver reserves as used. */
API nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_v2_t whole;
	nvmlReturn_t ret = memory ? read_memory(device, &whole) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*memory = (nvmlMemory_t){ whole.total, whole.free, whole.used + whole.reserved };
	return ret;
}

API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	if (memory && memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return read_memory(device, memory);
}

API nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	VIEW(view);
	nvmlReturn_t ret = memory ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	unsigned int size;

	if (ret != NVML_SUCCESS)
		return ret;
	size = lab_number(view.gpu->card, "bar1", 0);
	if (!size)
		return NVML_ERROR_NOT_SUPPORTED;
	*memory = (nvmlBAR1Memory_t){ size * MIB, (size - 1) * MIB, MIB };
	return NVML_SUCCESS;
}

/* Not to be had on a GPU in MIG mode, nor on a MIG device. */
API nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	VIEW(view);
	nvmlReturn_t ret = utilization ? view_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (mig_is_enabled(&view))
		return NVML_ERROR_NOT_SUPPORTED;
	*utilization = (nvmlUtilization_t){ 0, 0 };
	return NVML_SUCCESS;
}

static nvmlReturn_t read_power(nvmlDevice_t device, unsigned int per_mille, unsigned int *milliwatts)
{
	VIEW(view);
	nvmlReturn_t ret = milliwatts ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	*milliwatts = lab_number(view.gpu->card, "power", 0) * per_mille;
	return *milliwatts ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

#define read_power(device, per_mille, milliwatts) INJECTED(read_power(device, per_mille, milliwatts))

API nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
	return read_power(device, IDLE_PER_MILLE_OF_POWER, milliwatts);
}

API nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
	return read_power(device, 1000, milliwatts);
}

API nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
	return read_power(device, 1000, milliwatts);
}

API nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
	return read_power(device, 1000, milliwatts);
}

API nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *temperature)
{
	VIEW(view);
	nvmlReturn_t ret = temperature && !sensor ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*temperature = IDLE_TEMPERATURE;
	return ret;
}

API nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature)
{
	unsigned int found = 0;
	nvmlReturn_t ret;

	if (!temperature)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (temperature->version != NVML_STRUCT_VERSION(nvmlTemperature_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	ret = nvmlDeviceGetTemperature(device, temperature->sensorType, &found);
	temperature->temperature = found;
	return ret;
}

API nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int threshold, unsigned int *temperature)
{
	VIEW(view);
	nvmlReturn_t ret = temperature ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (threshold > 1)	/* shutdown, slowdown */
		return NVML_ERROR_NOT_SUPPORTED;
	*temperature = threshold ? HOTTEST : HOTTEST + 5;
	return NVML_SUCCESS;
}

API nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*mode = 0;
	return ret;
}

API nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*mode = 0;
	return ret;
}

API nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	VIEW(view);
	nvmlReturn_t ret = current && pending ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	*current = *pending = lab_number(view.gpu->card, "ecc", NO_NUMBER);
	return *current == NO_NUMBER ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* The injected errors are uncorrected ones of device memory. */
static nvmlReturn_t read_ecc_errors(nvmlDevice_t device, unsigned int type, unsigned long long *count)
{
	VIEW(view);
	nvmlReturn_t ret = count && type < 2 ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (lab_number(view.gpu->card, "ecc", 0) != 1)
		return NVML_ERROR_NOT_SUPPORTED;
	*count = type ? lab_number(view.card, "ecc_errors", 0) : 0;
	return NVML_SUCCESS;
}

#define read_ecc_errors(device, type, count) INJECTED(read_ecc_errors(device, type, count))

API nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter,
				unsigned long long *count)
{
	return counter > 1 ? NVML_ERROR_INVALID_ARGUMENT : read_ecc_errors(device, type, count);
}

API nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int type, unsigned int counter,
				    unsigned int location, unsigned long long *count)
{
	nvmlReturn_t ret = counter > 1 ? NVML_ERROR_INVALID_ARGUMENT : read_ecc_errors(device, type, count);

	if (ret == NVML_SUCCESS && location != 2)	/* device memory */
		*count = 0;
	return ret;
}

API nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter,
				   nvmlEccErrorCounts_t *counts)
{
	nvmlReturn_t ret = counts ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS) {
		memset(counts, 0, sizeof(*counts));
		ret = nvmlDeviceGetTotalEccErrors(device, type, counter, &counts->deviceMemory);
	}
	return ret;
}

/* Who has /dev/nvidiaN open, without this process, which is only a watcher. */
static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
	VIEW(view);
	nvmlReturn_t ret = count ? view_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	const struct lab_line *line = NULL;
	unsigned int found = 0;

	if (ret != NVML_SUCCESS)
		return ret;
	while ((line = view_next(&view, line, "process"))) {
		unsigned int pid = lab_number(line, "pid", 0), gi = lab_number(line, "gi", NO_NUMBER);

		if (pid == (unsigned int)getpid() || (view.target.gi != NO_NUMBER && gi != view.target.gi))
			continue;
		if (processes && found < *count)
			processes[found] = (nvmlProcessInfo_t){ pid, 0, gi, gi == NO_NUMBER ? gi : 0 };
		found++;
	}
	ret = found > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	*count = found;
	return ret;
}

#define list_processes(device, count, processes) INJECTED(list_processes(device, count, processes))

API nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
	return list_processes(device, count, processes);
}

API nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
	return list_processes(device, count, processes);
}

/* A vGPU of a running VM is a process with compute and graphics: its QEMU, called `vgpu`. */
static nvmlReturn_t list_vgpu_processes(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
	VIEW(view);
	nvmlReturn_t ret = count ? view_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	const struct lab_line *vgpu = NULL;
	unsigned int found = 0;

	if (ret != NVML_SUCCESS)
		return ret;
	while ((vgpu = view_next(&view, vgpu, "vgpu"))) {
		unsigned int pid = lab_number(vgpu, "vm_pid", 0), gi = vgpu_gi(vgpu);

		if (!pid || (view.target.gi != NO_NUMBER && gi != view.target.gi))
			continue;
		if (processes && found < *count)
			processes[found] = (nvmlProcessInfo_t){ pid, lab_number(vgpu, "framebuffer", 0) * MIB, gi,
								NO_NUMBER };
		found++;
	}
	ret = found > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	*count = found;
	return ret;
}

#define list_vgpu_processes(device, count, processes) INJECTED(list_vgpu_processes(device, count, processes))

API nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
	return list_vgpu_processes(device, count, processes);
}

API nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
	return list_vgpu_processes(device, count, processes);
}
