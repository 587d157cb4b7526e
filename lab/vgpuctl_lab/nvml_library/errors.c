/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of a GPU's memory and links, repairs that wait for a reset, and single values by field. */
#include <stdio.h>
#include <string.h>

#include "lab.h"

#define UNSIGNED_INT 1
#define UNSIGNED_LONG_LONG 3
#define ALL_LINKS 0xffffffffU
#define MOST_FIELDS 1024

enum { MEMORY_TEMPERATURE = 82, LINK_TX = 138, LINK_RX = 139, RECOVERY_ACTION = 230 };

static const char *const recovery_actions[] = { "none",		"gpu-reset",	   "node-reboot",
						"drain-p2p",	"drain-and-reset", "recover-imex-domain" };

/* The injected errors are uncorrected ones of device memory. */
static nvmlReturn_t read_ecc_errors(nvmlDevice_t device, unsigned int type, unsigned long long *count)
{
	VIEW(view);
	nvmlReturn_t ret = count && type < 2 ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (lab_number(view.gpu->card, "ecc", 0) != 1)
		return NVML_ERROR_NOT_SUPPORTED;
	*count = (unsigned long long)gpu_curve_or(&view, type ? "ecc_errors/uncorrected" : "ecc_errors/corrected",
						  type ? lab_number(view.card, "ecc_errors", 0) : 0);
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

/* 1 where a scenario plays the state, or where the GPU has it already. */
static unsigned int flag(struct view *view, const char *measure, unsigned int otherwise)
{
	double told;

	return gpu_curve(view, measure, &told) ? told >= 0.5 : otherwise;
}

/* Boards since Ampere with ECC remap rows, and tell it while they have no MIG instances. */
API nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
			      unsigned int *is_pending, unsigned int *has_failed)
{
	VIEW(view);
	nvmlReturn_t ret = corrected && uncorrected && is_pending && has_failed ? view_gpu(&view, device) :
										  NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!gpu_has_types(view.gpu) || !gpu_is_ampere(view.gpu) || view_next(&view, NULL, "gi"))
		return NVML_ERROR_NOT_SUPPORTED;
	*corrected = gpu_curve_or(&view, "remapped_rows/corrected", 0);
	*uncorrected = gpu_curve_or(&view, "remapped_rows/uncorrected", 0);
	*is_pending = flag(&view, "row_remap_pending", 0);
	*has_failed = flag(&view, "row_remap_failed", 0);
	return NVML_SUCCESS;
}

API nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_v1_t *status)
{
	VIEW(view);
	nvmlReturn_t ret = status ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!gpu_has_types(view.gpu) || !gpu_is_ampere(view.gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	if (status->version != NVML_STRUCT_VERSION(nvmlEccSramErrorStatus_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*status = (nvmlEccSramErrorStatus_v1_t){ .version = status->version };
	status->bThresholdExceeded = flag(&view, "sram_threshold_exceeded", 0);
	return NVML_SUCCESS;
}

API nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *status)
{
	VIEW(view);
	nvmlReturn_t ret = status ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (!gpu_is_ampere(view.gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	if (status->version != NVML_STRUCT_VERSION(nvmlRepairStatus_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	status->bChannelRepairPending = flag(&view, "repair_pending/channel", 0);
	status->bTpcRepairPending = flag(&view, "repair_pending/tpc", 0);
	return NVML_SUCCESS;
}

API nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *replays)
{
	VIEW(view);
	nvmlReturn_t ret = replays ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*replays = gpu_curve_or(&view, "pcie_replays", 0);
	return ret;
}

static unsigned int recovery_action(struct view *view)
{
	char name[64];

	if (gpu_curve_state(view, "recovery_action", name, sizeof(name)))
		for (size_t i = 0; i < sizeof(recovery_actions) / sizeof(recovery_actions[0]); i++)
			if (!strcmp(name, recovery_actions[i]))
				return i;
	return 0;
}

static nvmlReturn_t read_field(struct view *view, nvmlFieldValue_t *field)
{
	unsigned long long bytes;

	field->valueType = UNSIGNED_INT;
	field->value.ullVal = 0;
	switch (field->fieldId) {
	case MEMORY_TEMPERATURE:
		return gpu_memory_temperature_c(view, &field->value.uiVal) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
	case RECOVERY_ACTION:
		field->value.uiVal = recovery_action(view);
		return NVML_SUCCESS;
	case LINK_TX:
	case LINK_RX:
		field->valueType = UNSIGNED_LONG_LONG;
		if (field->scopeId != ALL_LINKS || !links_bytes(view, field->fieldId == LINK_TX ? "tx" : "rx", &bytes))
			return NVML_ERROR_NOT_SUPPORTED;
		field->value.ullVal = bytes / 1024;
		return NVML_SUCCESS;
	default:
		return NVML_ERROR_NOT_SUPPORTED;
	}
}

/* Each field has its own return code. */
API nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	VIEW(view);
	nvmlReturn_t ret = values && count > 0 && count <= MOST_FIELDS ? view_gpu(&view, device) :
									 NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	for (int i = 0; i < count; i++) {
		values[i].timestamp = nearest(lab_now() * 1e6);
		values[i].latencyUsec = 0;
		values[i].nvmlReturn = read_field(&view, &values[i]);
	}
	return NVML_SUCCESS;
}
