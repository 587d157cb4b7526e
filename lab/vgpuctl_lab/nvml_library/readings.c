/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU's sensors and counters say; the values are those of sensors.c. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

#define SAMPLE_US 166000
#define SM_CLOCK 1
#define MEMORY_CLOCK 2

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

/* What processes use of a GPU instance: an eighth each, unless a scenario says otherwise. */
static unsigned long long instance_memory(struct view *view, const nvmlMemory_v2_t *memory)
{
	const struct lab_line *process = NULL;
	unsigned long long used = memory->used;
	double told;

	while ((process = view_next(view, process, "process")))
		if (lab_number(process, "gi", NO_NUMBER) == view->target.gi)
			used += memory->total / 8;
	if (instance_curve(view, view->target.gi, "framebuffer_used_bytes", &told))
		used = nearest(told);
	return used < memory->total ? used : memory->total;
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
	memory->reserved = view.target.ci == NO_NUMBER ? (told / 128) * MIB : 0;
	memory->used = vgpu_memory_mib(&view, view.target.gi) * MIB;
	if (view.target.ci != NO_NUMBER)
		memory->used = instance_memory(&view, memory);
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
	utilization->gpu = nearest(gpu_share(&view, "utilization_ratio") * 100);
	utilization->memory = nearest(gpu_share(&view, "memory_activity_ratio") * 100);
	return NVML_SUCCESS;
}

/* The use of a media engine, in per cent. since_ampere: older boards do not know the question. */
static nvmlReturn_t read_engine(nvmlDevice_t device, const char *measure, bool since_ampere, unsigned int *percent,
				unsigned int *period_us)
{
	VIEW(view);
	nvmlReturn_t ret = percent && period_us ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (mig_is_enabled(&view) || (since_ampere && !gpu_is_ampere(view.gpu)))
		return NVML_ERROR_NOT_SUPPORTED;
	*percent = nearest(gpu_share(&view, measure) * 100);
	*period_us = SAMPLE_US;
	return NVML_SUCCESS;
}

#define read_engine(device, measure, since_ampere, percent, period_us) \
	INJECTED(read_engine(device, measure, since_ampere, percent, period_us))

API nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us)
{
	return read_engine(device, "encoder_utilization_ratio", false, percent, period_us);
}

API nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us)
{
	return read_engine(device, "decoder_utilization_ratio", false, percent, period_us);
}

API nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us)
{
	return read_engine(device, "jpeg_utilization_ratio", true, percent, period_us);
}

API nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us)
{
	return read_engine(device, "ofa_utilization_ratio", true, percent, period_us);
}

API nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts)
{
	VIEW(view);
	nvmlReturn_t ret = milliwatts ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	*milliwatts = nearest(gpu_power_w(&view) * 1000);
	return *milliwatts ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules)
{
	VIEW(view);
	nvmlReturn_t ret = millijoules ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	*millijoules = nearest(gpu_energy_j(&view) * 1000);
	return lab_number(view.gpu->card, "power", 0) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *temperature)
{
	VIEW(view);
	nvmlReturn_t ret = temperature && !sensor ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*temperature = gpu_temperature_c(&view);
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
	*temperature = gpu_slowdown_c(&view) + (threshold ? 0 : 5);
	return NVML_SUCCESS;
}

API nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int clock, unsigned int *mhz)
{
	VIEW(view);
	nvmlReturn_t ret = mhz ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (clock != SM_CLOCK && clock != MEMORY_CLOCK)
		return NVML_ERROR_INVALID_ARGUMENT;
	*mhz = clock == SM_CLOCK ? gpu_sm_clock_mhz(&view) : gpu_memory_clock_mhz(&view);
	return NVML_SUCCESS;
}

API nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	VIEW(view);
	nvmlReturn_t ret = reasons ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*reasons = gpu_clock_events(&view);
	return ret;
}

/* The name of drivers before branch 535. */
API nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

API nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*mode = 0;
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
