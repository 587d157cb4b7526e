/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power limit, clocks, ECC and compute mode of a GPU: the file tuning-ADDRESS in /etc/vgpulab, of a test beside those
 * of the module. What another boot has written is lost, but ECC, whose pending mode counts after it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab.h"

#define TUNING_FOLDER "/etc/vgpulab"
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_LENGTH 36
#define CLOCK_STEP_MHZ 15
#define IDLE_MEMORY_MHZ 405
#define EXCLUSIVE_THREAD 1
#define LAST_COMPUTE_MODE 3

static void path_of(const struct gpu *gpu, const char *ending, char *path, size_t size)
{
	snprintf(path, size, "%s/tuning-%s%s", lab_is_real() ? TUNING_FOLDER : lab_folder, gpu->address, ending);
}

static void read_boot_id(char id[BOOT_ID_LENGTH + 1])
{
	FILE *file = fopen(BOOT_ID, "re");

	id[0] = '\0';
	if (!file)
		return;
	if (fscanf(file, "%36s", id) != 1)
		id[0] = '\0';
	fclose(file);
}

struct tuning tuning_of(const struct gpu *gpu)
{
	unsigned int ecc = lab_number(gpu->card, "ecc", NO_NUMBER);
	struct tuning tuning = { .ecc = ecc, .ecc_pending = ecc }, found = tuning;
	char path[4096], boot_id[BOOT_ID_LENGTH + 1], now[BOOT_ID_LENGTH + 1];
	FILE *file;

	path_of(gpu, "", path, sizeof(path));
	file = fopen(path, "re");
	if (!file)
		return tuning;
	read_boot_id(now);
	if (fscanf(file, "%36s %u %u %u %u %u %u %u %u", boot_id, &found.power_mw, &found.gpu.lowest_mhz,
		   &found.gpu.highest_mhz, &found.memory.lowest_mhz, &found.memory.highest_mhz, &found.compute_mode,
		   &found.ecc, &found.ecc_pending) == 9) {
		if (!strcmp(boot_id, now))
			tuning = found;
		else
			tuning.ecc = tuning.ecc_pending = found.ecc_pending;
	}
	fclose(file);
	return tuning;
}

static nvmlReturn_t keep(const struct gpu *gpu, const struct tuning *tuning)
{
	char path[4096], temporary[4096], boot_id[BOOT_ID_LENGTH + 1];
	FILE *file;
	int size;

	if (lab_is_real() && geteuid())
		return NVML_ERROR_NO_PERMISSION;
	if (lab_is_real())
		mkdir(TUNING_FOLDER, 0755);
	path_of(gpu, "", path, sizeof(path));
	path_of(gpu, ".new", temporary, sizeof(temporary));
	read_boot_id(boot_id);
	file = fopen(temporary, "we");
	if (!file)
		return NVML_ERROR_UNKNOWN;
	size = fprintf(file, "%s %u %u %u %u %u %u %u %u\n", boot_id, tuning->power_mw, tuning->gpu.lowest_mhz,
		       tuning->gpu.highest_mhz, tuning->memory.lowest_mhz, tuning->memory.highest_mhz,
		       tuning->compute_mode, tuning->ecc, tuning->ecc_pending);
	if (fclose(file) || size < 0 || rename(temporary, path))
		return NVML_ERROR_UNKNOWN;
	return NVML_SUCCESS;
}

void tuning_forget(const struct gpu *gpu)
{
	struct tuning tuning = tuning_of(gpu), fresh = { .ecc = tuning.ecc_pending, .ecc_pending = tuning.ecc_pending };
	char path[4096];

	path_of(gpu, "", path, sizeof(path));
	if (!access(path, F_OK))
		keep(gpu, &fresh);
}

unsigned int tuning_power_mw(const struct gpu *gpu)
{
	unsigned int limit = tuning_of(gpu).power_mw;

	return limit ? limit : lab_number(gpu->card, "power", 0) * 1000;
}

static nvmlReturn_t read_power(nvmlDevice_t device, bool is_limit, unsigned int *milliwatts)
{
	VIEW(view);
	nvmlReturn_t ret = milliwatts ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	*milliwatts = is_limit ? tuning_power_mw(view.gpu) : lab_number(view.gpu->card, "power", 0) * 1000;
	return *milliwatts ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

#define read_power(device, is_limit, milliwatts) INJECTED(read_power(device, is_limit, milliwatts))

API nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
	return read_power(device, true, milliwatts);
}

API nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
	return read_power(device, false, milliwatts);
}

API nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
	return read_power(device, true, milliwatts);
}

API nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least, unsigned int *most)
{
	nvmlReturn_t ret = least && most ? read_power(device, false, most) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*least = *most / 2;
	return ret;
}

API nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int milliwatts)
{
	VIEW(view);
	nvmlReturn_t ret = view_gpu(&view, device);
	struct tuning tuning;
	unsigned int most;

	if (ret != NVML_SUCCESS)
		return ret;
	most = lab_number(view.gpu->card, "power", 0) * 1000;
	if (!most)
		return NVML_ERROR_NOT_SUPPORTED;
	if (milliwatts < most / 2 || milliwatts > most)
		return NVML_ERROR_INVALID_ARGUMENT;
	tuning = tuning_of(view.gpu);
	tuning.power_mw = milliwatts == most ? 0 : milliwatts;
	return keep(view.gpu, &tuning);
}

/* The size that was asked for with too little room is told with the error, as NVML does. */
static nvmlReturn_t tell_clocks(unsigned int lowest, unsigned int highest, unsigned int step, unsigned int *count,
				unsigned int *clocks)
{
	unsigned int found = (highest - lowest) / step + 1, room = *count;

	*count = found;
	if (!clocks || room < found)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < found; i++)
		clocks[i] = highest - i * step;
	return NVML_SUCCESS;
}

API nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *clocks)
{
	VIEW(view);
	nvmlReturn_t ret = count ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	return tell_clocks(IDLE_MEMORY_MHZ, MEMORY_MHZ, MEMORY_MHZ - IDLE_MEMORY_MHZ, count, clocks);
}

API nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory, unsigned int *count,
					 unsigned int *clocks)
{
	VIEW(view);
	nvmlReturn_t ret = count ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret != NVML_SUCCESS)
		return ret;
	if (memory == IDLE_MEMORY_MHZ)
		return tell_clocks(IDLE_MEMORY_MHZ, IDLE_MEMORY_MHZ, 1, count, clocks);
	if (memory != MEMORY_MHZ)
		return NVML_ERROR_NOT_FOUND;
	return tell_clocks(IDLE_SM_MHZ, SM_MHZ, CLOCK_STEP_MHZ, count, clocks);
}

static bool is_clock(unsigned int mhz)
{
	return mhz >= IDLE_SM_MHZ && mhz <= SM_MHZ && (mhz - IDLE_SM_MHZ) % CLOCK_STEP_MHZ == 0;
}

static bool is_memory_clock(unsigned int mhz)
{
	return mhz == IDLE_MEMORY_MHZ || mhz == MEMORY_MHZ;
}

/* Lock one of the two clocks to a range, or unlock it with 0 and 0. Those of the memory are locked from Ampere on. */
static nvmlReturn_t lock_clocks(nvmlDevice_t device, bool of_memory, unsigned int lowest, unsigned int highest)
{
	VIEW(view);
	nvmlReturn_t ret = view_gpu(&view, device);
	bool (*is_known)(unsigned int mhz) = of_memory ? is_memory_clock : is_clock;
	struct tuning tuning;

	if (ret != NVML_SUCCESS)
		return ret;
	if (of_memory && !gpu_is_ampere(view.gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	if (highest && (lowest > highest || !is_known(lowest) || !is_known(highest)))
		return NVML_ERROR_INVALID_ARGUMENT;
	tuning = tuning_of(view.gpu);
	*(of_memory ? &tuning.memory : &tuning.gpu) = (struct clocks){ lowest, highest };
	return keep(view.gpu, &tuning);
}

API nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int lowest, unsigned int highest)
{
	return highest ? lock_clocks(device, false, lowest, highest) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device)
{
	return lock_clocks(device, false, 0, 0);
}

API nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int lowest, unsigned int highest)
{
	return highest ? lock_clocks(device, true, lowest, highest) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device)
{
	return lock_clocks(device, true, 0, 0);
}

API nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	VIEW(view);
	nvmlReturn_t ret = current && pending ? view_gpu(&view, device) : NVML_ERROR_INVALID_ARGUMENT;
	struct tuning tuning;

	if (ret != NVML_SUCCESS)
		return ret;
	tuning = tuning_of(view.gpu);
	*current = tuning.ecc;
	*pending = tuning.ecc_pending;
	return *current == NO_NUMBER ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

API nvmlDeviceSetEccMode(nvmlDevice_t device, unsigned int mode)
{
	VIEW(view);
	nvmlReturn_t ret = view_gpu(&view, device);
	struct tuning tuning;

	if (ret != NVML_SUCCESS)
		return ret;
	tuning = tuning_of(view.gpu);
	if (tuning.ecc == NO_NUMBER)
		return NVML_ERROR_NOT_SUPPORTED;
	if (mode > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	tuning.ecc_pending = mode;
	return keep(view.gpu, &tuning);
}

API nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
	VIEW(view);
	nvmlReturn_t ret = mode ? view_device(&view, device) : NVML_ERROR_INVALID_ARGUMENT;

	if (ret == NVML_SUCCESS)
		*mode = tuning_of(view.gpu).compute_mode;
	return ret;
}

/* A GPU in MIG mode has the default alone. */
API nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
	VIEW(view);
	nvmlReturn_t ret = view_gpu(&view, device);
	struct tuning tuning;

	if (ret != NVML_SUCCESS)
		return ret;
	if (mig_is_enabled(&view))
		return NVML_ERROR_NOT_SUPPORTED;
	if (mode > LAST_COMPUTE_MODE || mode == EXCLUSIVE_THREAD)
		return NVML_ERROR_INVALID_ARGUMENT;
	tuning = tuning_of(view.gpu);
	tuning.compute_mode = mode;
	return keep(view.gpu, &tuning);
}
