/* SPDX-License-Identifier: Apache-2.0 */
/* GPM: samples of GPU instances from Hopper on. A sample is what the instance's sensors say at its moment. */
#include <stdlib.h>
#include <string.h>

#include "lab.h"

#define METRICS 5
#define APART_S 0.1
#define GPM_VERSION 1

static const struct {
	unsigned int id;
	const char *measure;
	double part;	/* of the utilisation, where no curve plays it */
} metrics[METRICS] = {
	{ 1, "utilization_ratio", 1 },	    { 2, "sm_activity_ratio", 0.8 },	 { 3, "sm_occupancy_ratio", 0.4 },
	{ 5, "tensor_activity_ratio", 0.3 }, { 10, "memory_activity_ratio", 0.5 },
};

struct nvmlGpmSample {
	bool is_taken;
	double at, values[METRICS];
};

/* The device ids of Hopper begin at 0x2300; Ada's lie between them and Blackwell's. */
static bool has_gpm(const struct gpu *gpu)
{
	unsigned int id = gpu_device_id(gpu);

	return (id >= 0x2300 && id < 0x2400) || id >= 0x2900;
}

API nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
	VIEW(view);
	nvmlReturn_t ret = support ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (support->version != GPM_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	support->isSupportedDevice = has_gpm(view.gpu);
	return NVML_SUCCESS;
}

API nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!sample)
		return NVML_ERROR_INVALID_ARGUMENT;
	*sample = calloc(1, sizeof(**sample));
	return *sample ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

API nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
	free(sample);
	return sample ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample)
{
	VIEW(view);
	nvmlReturn_t ret = sample ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	double used;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!has_gpm(view.gpu) || !mig_is_enabled(&view))
		return NVML_ERROR_NOT_SUPPORTED;
	if (!view_gi(&view, gi))
		return NVML_ERROR_INVALID_ARGUMENT;
	used = instance_share(&view, gi);
	for (size_t i = 0; i < METRICS; i++) {
		sample->values[i] = used * metrics[i].part;
		if (i)
			instance_curve(&view, gi, metrics[i].measure, &sample->values[i]);
	}
	sample->at = lab_now();
	sample->is_taken = true;
	return NVML_SUCCESS;
}

/* Between two samples that are more than 100 ms apart. */
API nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *wanted)
{
	const struct nvmlGpmSample *first, *second;

	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!wanted || !wanted->sample1 || !wanted->sample2 || wanted->numMetrics > NVML_GPM_METRIC_MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (wanted->version != GPM_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	first = wanted->sample1;
	second = wanted->sample2;
	if (!first->is_taken || !second->is_taken || second->at - first->at < APART_S)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < wanted->numMetrics; i++) {
		nvmlGpmMetric_t *metric = &wanted->metrics[i];

		metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		for (size_t known = 0; known < METRICS; known++) {
			if (metrics[known].id != metric->metricId)
				continue;
			metric->nvmlReturn = NVML_SUCCESS;
			metric->value = (first->values[known] + second->values[known]) / 2 * 100;
		}
	}
	return NVML_SUCCESS;
}
