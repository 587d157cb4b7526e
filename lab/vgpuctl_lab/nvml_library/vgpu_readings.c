/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML tells of a running vGPU: its use of the GPU, its encoder, its licence, its guest's driver, its runlist. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lab.h"

#define VALUE_IS_UNSIGNED_INT 1
#define BEST_EFFORT 1
#define FRAME_RATE_LIMIT 60
#define LEASE_S 86400
#define EXPIRY_VALID 2
#define SLICE_NS 2000000ULL
#define PREEMPTED_PART 0.5	/* of the time that the neighbours ran */
/* No guest driver runs in an emulated vGPU: the version that such a host's guests would have. */
#define GUEST_DRIVER "550.127.05"

static const char *const license_states[] = { "unknown", "uninitialized", "unlicensed-unrestricted",
					      "unlicensed-restricted", "unlicensed", "licensed" };
enum { LICENSED = 5 };

static unsigned int percent(struct view *view, const struct lab_line *vgpu, const char *measure)
{
	return nearest(vgpu_share(view, vgpu, measure) * 100);
}

/* The line of the first running vGPU after another one. */
static const struct lab_line *next_active(const struct view *view, const struct lab_line *vgpu)
{
	while ((vgpu = view_next(view, vgpu, "vgpu")) && !vgpu_is_active(vgpu))
		;
	return vgpu;
}

static nvmlReturn_t view_samples(struct view *view, nvmlDevice_t device, const void *wanted)
{
	nvmlReturn_t ret = wanted ? view_gpu(view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	return gpu_has_types(view->gpu) && !mig_is_enabled(view) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetVgpuUtilization(nvmlDevice_t device, unsigned long long last_seen, unsigned int *value_type,
				 unsigned int *count, nvmlVgpuInstanceUtilizationSample_t *samples)
{
	unsigned int ids[MOST_VGPUS], found, room;
	const struct lab_line *vgpu = NULL;
	VIEW(view);
	nvmlReturn_t ret = view_samples(&view, device, count && value_type ? count : NULL);

	(void)last_seen;
	if (ret != NVML_SUCCESS)
		return ret;
	found = list_active(&view, ids);
	room = *count;
	*count = found;
	*value_type = VALUE_IS_UNSIGNED_INT;
	if (room < found || (found && !samples))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < found && (vgpu = next_active(&view, vgpu)); i++) {
		samples[i] = (nvmlVgpuInstanceUtilizationSample_t){ .vgpuInstance = ids[i],
								     .timeStamp = nearest(lab_now() * 1e6) };
		samples[i].smUtil.uiVal = percent(&view, vgpu, "utilization_ratio");
		samples[i].memUtil.uiVal = percent(&view, vgpu, "memory_activity_ratio");
		samples[i].encUtil.uiVal = percent(&view, vgpu, "encoder_utilization_ratio");
		samples[i].decUtil.uiVal = percent(&view, vgpu, "decoder_utilization_ratio");
	}
	return NVML_SUCCESS;
}

API nvmlDeviceGetVgpuInstancesUtilizationInfo(nvmlDevice_t device, nvmlVgpuInstancesUtilizationInfo_v1_t *info)
{
	unsigned int ids[MOST_VGPUS], found, room;
	const struct lab_line *vgpu = NULL;
	VIEW(view);
	nvmlReturn_t ret = view_samples(&view, device, info);

	if (ret != NVML_SUCCESS)
		return ret;
	if (info->version != NVML_STRUCT_VERSION(nvmlVgpuInstancesUtilizationInfo_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	found = list_active(&view, ids);
	room = info->vgpuInstanceCount;
	info->vgpuInstanceCount = found;
	info->sampleValType = VALUE_IS_UNSIGNED_INT;
	if (room < found || (found && !info->vgpuUtilArray))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < found && (vgpu = next_active(&view, vgpu)); i++) {
		nvmlVgpuInstanceUtilizationInfo_v1_t *told = &info->vgpuUtilArray[i];

		*told = (nvmlVgpuInstanceUtilizationInfo_v1_t){ .timeStamp = nearest(lab_now() * 1e6),
								.vgpuInstance = ids[i] };
		told->smUtil.uiVal = percent(&view, vgpu, "utilization_ratio");
		told->memUtil.uiVal = percent(&view, vgpu, "memory_activity_ratio");
		told->encUtil.uiVal = percent(&view, vgpu, "encoder_utilization_ratio");
		told->decUtil.uiVal = percent(&view, vgpu, "decoder_utilization_ratio");
		told->jpgUtil.uiVal = percent(&view, vgpu, "jpeg_utilization_ratio");
		told->ofaUtil.uiVal = percent(&view, vgpu, "ofa_utilization_ratio");
	}
	return NVML_SUCCESS;
}

/* A guest without load holds little. */
API nvmlVgpuInstanceGetFbUsage(nvmlVgpuInstance_t instance, unsigned long long *usage)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = usage ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;
	unsigned long long size;
	double told;

	if (ret != NVML_SUCCESS)
		return ret;
	size = lab_number(vgpu, "framebuffer", 0) * MIB;
	*usage = vgpu_curve(&view, vgpu, "framebuffer_used_bytes", &told) ? nearest(told) : size / 32;
	*usage = *usage < size ? *usage : size;
	return NVML_SUCCESS;
}

API nvmlVgpuInstanceGetEncoderStats(nvmlVgpuInstance_t instance, unsigned int *sessions, unsigned int *fps,
				    unsigned int *latency)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = sessions && fps && latency ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	*sessions = nearest(vgpu_curve_or(&view, vgpu, "encoder_sessions", 0));
	*fps = nearest(vgpu_curve_or(&view, vgpu, "encoder_frame_rate_hertz", 0));
	*latency = nearest(vgpu_curve_or(&view, vgpu, "encoder_latency_seconds", 0) * 1e6);
	return NVML_SUCCESS;
}

/* Only the lower half of pynvml's 64 bits is written, as the real call does. */
API nvmlVgpuInstanceGetEncoderCapacity(nvmlVgpuInstance_t instance, unsigned int *capacity)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = capacity ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*capacity = nearest(vgpu_curve_or(&view, vgpu, "encoder_capacity_ratio", 1) * 100);
	return ret;
}

/* 0 where the scheduler is equal or fixed share. */
API nvmlVgpuInstanceGetFrameRateLimit(nvmlVgpuInstance_t instance, unsigned int *limit)
{
	const struct lab_line *vgpu, *type;
	VIEW(view);
	nvmlReturn_t ret = limit ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;
	double told;

	if (ret != NVML_SUCCESS)
		return ret;
	type = find_type(lab_number(vgpu, "type", 0));
	if (lab_number(view.card, "sched_policy", BEST_EFFORT) != BEST_EFFORT)
		*limit = 0;
	else if (vgpu_curve(&view, vgpu, "frame_rate_limit_hertz", &told))
		*limit = nearest(told);
	else
		*limit = lab_number(type, "frl", FRAME_RATE_LIMIT);
	return NVML_SUCCESS;
}

API nvmlVgpuInstanceGetVmDriverVersion(nvmlVgpuInstance_t instance, char *version, unsigned int size)
{
	const struct lab_line *vgpu;
	char told[80] = GUEST_DRIVER;
	VIEW(view);
	nvmlReturn_t ret = view_vgpu(&view, instance, &vgpu);

	if (ret != NVML_SUCCESS)
		return ret;
	vgpu_curve_state(&view, vgpu, "guest_driver_info", told, sizeof(told));
	return copy_text(version, size, told);
}

/* Licensed for a day, always renewed, unless a scenario says otherwise. */
API nvmlVgpuInstanceGetLicenseInfo_v2(nvmlVgpuInstance_t instance, nvmlVgpuLicenseInfo_t *info)
{
	const struct lab_line *vgpu;
	VIEW(view);
	nvmlReturn_t ret = info ? view_vgpu(&view, instance, &vgpu) : NVML_ERROR_INVALID_ARGUMENT;
	char name[64];
	double told;
	time_t end;
	struct tm date;

	if (ret != NVML_SUCCESS)
		return ret;
	memset(info, 0, sizeof(*info));
	info->currentState = LICENSED;
	if (vgpu_curve_state(&view, vgpu, "license_state", name, sizeof(name)))
		for (unsigned int i = 0; i <= LICENSED; i++)
			if (!strcmp(name, license_states[i]))
				info->currentState = i;
	info->isLicensed = info->currentState == LICENSED;
	end = (time_t)lab_now() / 3600 * 3600 + LEASE_S;
	if (vgpu_curve(&view, vgpu, "license_expiry_timestamp_seconds", &told))
		end = (time_t)told;
	gmtime_r(&end, &date);
	info->licenseExpiry = (nvmlVgpuLicenseExpiry_t){
		.year = date.tm_year + 1900, .month = date.tm_mon + 1, .day = date.tm_mday, .hour = date.tm_hour,
		.min = date.tm_min, .sec = date.tm_sec, .status = info->isLicensed ? EXPIRY_VALID : 0,
	};
	return NVML_SUCCESS;
}

API nvmlVgpuInstanceGetLicenseStatus(nvmlVgpuInstance_t instance, unsigned int *licensed)
{
	nvmlVgpuLicenseInfo_t info = { 0 };
	nvmlReturn_t ret = licensed ? nvmlVgpuInstanceGetLicenseInfo_v2(instance, &info) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*licensed = info.isLicensed;
	return ret;
}

/*
 * An entry for the runlist of each running vGPU, with its totals since the VM's start: of a GPU, or of one of its
 * instances. Returns their number.
 */
static unsigned int tell_log(struct view *view, unsigned int gi, nvmlVgpuSchedulerLogEntry_t *entries)
{
	const struct lab_line *vgpu = NULL;
	double times_s[MOST_VGPUS], all_s = 0;
	unsigned int count = 0;

	while ((vgpu = next_active(view, vgpu)) && count < MOST_VGPUS) {
		if (vgpu_gi(vgpu) != gi)
			continue;
		times_s[count] = vgpu_run_s(view, vgpu);
		all_s += times_s[count++];
	}
	for (unsigned int i = 0; i < count; i++) {
		char measure[64];
		unsigned long long run_ns = nearest(times_s[i] * 1e9);
		double waited_s = (all_s - times_s[i]) * PREEMPTED_PART;

		snprintf(measure, sizeof(measure), "scheduler_preempted_seconds/%u", i);
		entries[i] = (nvmlVgpuSchedulerLogEntry_t){
			.timestamp = nearest(lab_now() * 1e9),
			.timeRunTotal = run_ns,
			.timeRun = run_ns < SLICE_NS ? run_ns : SLICE_NS,
			.swRunlistId = i,
			.targetTimeSlice = SLICE_NS,
			.cumulativePreemptionTime = nearest(gpu_curve_or(view, measure, waited_s) * 1e9),
		};
	}
	return count;
}

static void tell_newer_log(struct view *view, unsigned int gi, nvmlVgpuSchedulerLogInfo_v2_t *log)
{
	nvmlVgpuSchedulerLogEntry_t entries[MOST_VGPUS];

	log->schedulerPolicy = lab_number(view->card, "sched_policy", BEST_EFFORT);
	log->entriesCount = tell_log(view, gi, entries);
	for (unsigned int i = 0; i < log->entriesCount; i++)
		log->logEntries[i] = (nvmlVgpuSchedulerLogEntry_v2_t){
			.timestamp = entries[i].timestamp,
			.timeRunTotal = entries[i].timeRunTotal,
			.timeRun = entries[i].timeRun,
			.swRunlistId = entries[i].swRunlistId,
			.targetTimeSlice = entries[i].targetTimeSlice,
			.cumulativePreemptionTime = entries[i].cumulativePreemptionTime,
		};
}

API nvmlDeviceGetVgpuSchedulerLog(nvmlDevice_t device, nvmlVgpuSchedulerLog_t *log)
{
	VIEW(view);
	nvmlReturn_t ret = view_samples(&view, device, log);

	if (ret != NVML_SUCCESS)
		return ret;
	memset(log, 0, sizeof(*log));
	log->schedulerPolicy = lab_number(view.card, "sched_policy", BEST_EFFORT);
	log->arrMode = lab_number(view.card, "sched_arr", 0);
	log->entriesCount = tell_log(&view, NVML_NO_GPU_INSTANCE, log->logEntries);
	return NVML_SUCCESS;
}

API nvmlDeviceGetVgpuSchedulerLog_v2(nvmlDevice_t device, nvmlVgpuSchedulerLogInfo_v2_t *log)
{
	VIEW(view);
	nvmlReturn_t ret = view_samples(&view, device, log);

	if (ret == NVML_SUCCESS)
		tell_newer_log(&view, NVML_NO_GPU_INSTANCE, log);
	return ret;
}

API nvmlGpuInstanceGetVgpuSchedulerLog(nvmlGpuInstance_t instance, nvmlVgpuSchedulerLogInfo_v1_t *log)
{
	VIEW(view);
	nvmlReturn_t ret = view_shared_instance(&view, instance, log);

	if (ret == NVML_SUCCESS && log->version != NVML_STRUCT_VERSION(nvmlVgpuSchedulerLogInfo_v1_t, 1))
		ret = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (ret != NVML_SUCCESS)
		return ret;
	log->schedulerPolicy = lab_number(view.card, "sched_policy", BEST_EFFORT);
	log->arrMode = lab_number(view.card, "sched_arr", 0);
	log->entriesCount = tell_log(&view, view.target.gi, log->logEntries);
	return NVML_SUCCESS;
}

API nvmlGpuInstanceGetVgpuSchedulerLog_v2(nvmlGpuInstance_t instance, nvmlVgpuSchedulerLogInfo_v2_t *log)
{
	VIEW(view);
	nvmlReturn_t ret = view_shared_instance(&view, instance, log);

	if (ret == NVML_SUCCESS)
		tell_newer_log(&view, view.target.gi, log);
	return ret;
}
