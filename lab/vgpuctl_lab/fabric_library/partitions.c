/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls about partitions and failed links. There is no Fabric Manager: the library does what it would do, over the
 * card table of the kernel module and the state file that every process shares.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric.h"

static const struct lab_line *gpu_of(const struct call *call, unsigned int module)
{
	const struct lab_line *gpu = NULL;

	while ((gpu = next_gpu(call, gpu)))
		if (lab_number(gpu, "module", 0) == module)
			return gpu;
	return NULL;
}

static unsigned int present(const struct call *call)
{
	const struct lab_line *gpu = NULL;
	unsigned int modules = 0;

	while ((gpu = next_gpu(call, gpu)))
		modules |= 1U << (lab_number(gpu, "module", 1) - 1);
	return modules;
}

/* The modules of as many halves of the board as have a GPU. */
static unsigned int board_modules(const struct call *call)
{
	return present(call) >> 8 ? 0xffff : 0xff;
}

static bool is_supported(const struct call *call, const struct fabric_partition *partition)
{
	return !call->board->needs_gpus || !(partition->modules & ~present(call));
}

static const struct fabric_partition *find(const struct call *call, unsigned int id)
{
	for (size_t i = 0; i < call->board->count; i++) {
		const struct fabric_partition *partition = &call->board->partitions[i];

		if (partition->id == id && is_supported(call, partition))
			return partition;
	}
	return NULL;
}

static bool is_active(const struct fabric_state *state, unsigned int id)
{
	for (unsigned int i = 0; i < state->count; i++)
		if (state->active[i].id == id)
			return true;
	return false;
}

static void name_gpu(const struct call *call, const struct lab_line *gpu, char *uuid, char *bus_id)
{
	unsigned int domain, bus, slot;

	if (!gpu || !call->board->names_gpus || sscanf(gpu->first, "%x:%x:%x", &domain, &bus, &slot) != 3)
		return;
	lab_word(gpu, "uuid", uuid, FM_UUID_BUFFER_SIZE);
	snprintf(bus_id, FM_DEVICE_PCI_BUS_ID_BUFFER_SIZE, "%08X:%02X:%02X.0", domain, bus, slot);
}

static unsigned int minimum(unsigned int one, unsigned int other)
{
	return one < other ? one : other;
}

/* A GPU that is alone in its partition has no links there. */
static void describe(const struct call *call, const struct fabric_partition *partition, fmFabricPartitionInfo_t *info)
{
	bool is_single = !(partition->modules & (partition->modules - 1));

	memset(info, 0, sizeof(*info));
	info->partitionId = partition->id;
	info->isActive = is_active(&call->state, partition->id);
	for (unsigned int module = 1; module <= FM_MAX_NUM_GPUS; module++) {
		const struct lab_line *gpu = gpu_of(call, module), *any = gpu ?: next_gpu(call, NULL);
		unsigned int most = is_single ? 0 : lab_number(any, "nvlinks", 0);
		fmFabricPartitionGpuInfo_t *told;

		if (!(partition->modules >> (module - 1) & 1))
			continue;
		told = &info->gpuInfo[info->numGpus++];
		told->physicalId = module;
		name_gpu(call, gpu, told->uuid, told->pciBusId);
		told->maxNumNvLinks = most;
		told->numNvLinksAvailable = gpu ? most - minimum(most, fabric_failed_links(gpu->first)) : 0;
		told->nvlinkLineRateMBps = call->board->line_rate;
	}
}

fmReturn_t fmGetSupportedFabricPartitions(fmHandle_t handle, fmFabricPartitionList_t *list)
{
	CALL(call);
	fmReturn_t ret = begin_partitions(&call, __func__, handle, list, fmFabricPartitionList_version);

	if (ret != FM_ST_SUCCESS)
		return ret;
	list->numPartitions = list->maxNumPartitions = 0;
	for (size_t i = 0; i < call.board->count; i++) {
		const struct fabric_partition *partition = &call.board->partitions[i];

		list->maxNumPartitions += !(partition->modules & ~board_modules(&call));
		if (is_supported(&call, partition))
			describe(&call, partition, &list->partitionInfo[list->numPartitions++]);
	}
	return FM_ST_SUCCESS;
}

static fmReturn_t activate(struct call *call, const struct fabric_partition *partition)
{
	struct fabric_state *state = &call->state;

	if (partition->modules & ~present(call))
		return FM_ST_RESOURCE_BAD;
	if (is_active(state, partition->id))
		return FM_ST_PARTITION_ID_IN_USE;
	for (unsigned int i = 0; i < state->count; i++)
		if (state->active[i].modules & partition->modules)
			return FM_ST_RESOURCE_USED_IN_ANOTHER_PARTITION;
	state->active[state->count++] = *partition;
	return end(call);
}

fmReturn_t fmActivateFabricPartition(fmHandle_t handle, fmFabricPartitionId_t id)
{
	CALL(call);
	const struct fabric_partition *partition;
	fmReturn_t ret = begin_partitions(&call, __func__, handle, NULL, 0);

	if (ret != FM_ST_SUCCESS)
		return ret;
	if (call.mode != FABRIC_SHARED)
		return FM_ST_NOT_SUPPORTED;
	partition = find(&call, id);
	return partition ? activate(&call, partition) : FM_ST_BADPARAM;
}

/* True if sysfs says that the GPU is the physical function of a VF. */
static bool is_vf_of(const fmPciDevice_t *vf, const char *gpu)
{
	unsigned int devfn = vf->device * 8 + vf->function;
	char path[4096], target[4096], *name;
	ssize_t length;

	snprintf(path, sizeof(path), "%s/%04x:%02x:%02x.%x/physfn",
		 getenv("VGPULAB_PROC") ? fabric_folder() : "/sys/bus/pci/devices", vf->domain, vf->bus, devfn >> 3 & 0x1f,
		 devfn & 7);
	length = readlink(path, target, sizeof(target) - 1);
	target[length > 0 ? length : 0] = '\0';
	name = strrchr(target, '/');
	return name && !strcmp(name + 1, gpu);
}

/* One VF of each GPU, in the order of the GPUs. */
static bool are_vfs_of(const struct call *call, const struct fabric_partition *partition, const fmPciDevice_t *vfs,
		       unsigned int count)
{
	unsigned int number = 0;

	for (unsigned int module = 1; module <= FM_MAX_NUM_GPUS; module++) {
		const struct lab_line *gpu = gpu_of(call, module);

		if (!(partition->modules >> (module - 1) & 1))
			continue;
		if (!gpu || number == count || !is_vf_of(&vfs[number++], gpu->first))
			return false;
	}
	return number == count;
}

fmReturn_t fmActivateFabricPartitionWithVFs(fmHandle_t handle, fmFabricPartitionId_t id, fmPciDevice_t *vfs,
					    unsigned int count)
{
	CALL(call);
	const struct fabric_partition *partition;
	fmReturn_t ret = begin_partitions(&call, __func__, handle, NULL, 0);

	if (ret != FM_ST_SUCCESS)
		return ret;
	if (call.mode != FABRIC_VGPU)
		return FM_ST_NOT_SUPPORTED;
	partition = find(&call, id);
	if (!partition || !vfs || !are_vfs_of(&call, partition, vfs, count))
		return FM_ST_BADPARAM;
	return activate(&call, partition);
}

fmReturn_t fmDeactivateFabricPartition(fmHandle_t handle, fmFabricPartitionId_t id)
{
	CALL(call);
	struct fabric_state *state = &call.state;
	fmReturn_t ret = begin_partitions(&call, __func__, handle, NULL, 0);
	unsigned int kept = 0;

	if (ret != FM_ST_SUCCESS)
		return ret;
	if (!find(&call, id))
		return FM_ST_BADPARAM;
	if (!is_active(state, id))
		return FM_ST_UNINITIALIZED;
	for (unsigned int i = 0; i < state->count; i++)
		if (state->active[i].id != id)
			state->active[kept++] = state->active[i];
	state->count = kept;
	return end(&call);
}

/* Only for a Fabric Manager that was restarted and waits for it. */
fmReturn_t fmSetActivatedFabricPartitions(fmHandle_t handle, fmActivatedFabricPartitionList_t *list)
{
	CALL(call);
	struct fabric_state *state = &call.state;
	unsigned int used = 0;
	fmReturn_t ret = begin(&call, __func__, handle, list, fmActivatedFabricPartitionList_version);

	if (ret != FM_ST_SUCCESS)
		return ret;
	if (!state->window_ends)
		return FM_ST_NOT_SUPPORTED;
	if (list->numPartitions > FM_MAX_FABRIC_PARTITIONS)
		return FM_ST_BADPARAM;
	state->count = 0;
	for (unsigned int i = 0; i < list->numPartitions; i++) {
		const struct fabric_partition *partition = find(&call, list->partitionIds[i]);

		if (!partition || partition->modules & used)
			return FM_ST_BADPARAM;
		used |= partition->modules;
		state->active[state->count++] = *partition;
	}
	state->window_ends = 0;
	return end(&call);
}

/* From H100 on the links train without Fabric Manager, and the list is empty. */
fmReturn_t fmGetNvlinkFailedDevices(fmHandle_t handle, fmNvlinkFailedDevices_t *devices)
{
	CALL(call);
	const struct lab_line *gpu = NULL;
	fmReturn_t ret = begin(&call, __func__, handle, devices, fmNvlinkFailedDevices_version);

	if (ret != FM_ST_SUCCESS)
		return ret;
	if (call.board->names_gpus && call.state.was_restarted)
		return FM_ST_NOT_SUPPORTED;
	devices->numGpus = devices->numSwitches = 0;
	while (call.board->names_gpus && devices->numGpus < FM_MAX_NUM_GPUS && (gpu = next_gpu(&call, gpu))) {
		fmNvlinkFailedDeviceInfo_t *told = &devices->gpuInfo[devices->numGpus];
		unsigned int failed = minimum(fabric_failed_links(gpu->first), lab_number(gpu, "nvlinks", 0));

		if (!failed)
			continue;
		memset(told, 0, sizeof(*told));
		name_gpu(&call, gpu, told->uuid, told->pciBusId);
		while (told->numPorts < failed) {
			told->portNum[told->numPorts] = told->numPorts;
			told->numPorts++;
		}
		devices->numGpus++;
	}
	return FM_ST_SUCCESS;
}

/* Partitions that need a GPU that is missing on a half of the board that is there; from H100 on none is told. */
fmReturn_t fmGetUnsupportedFabricPartitions(fmHandle_t handle, fmUnsupportedFabricPartitionList_t *list)
{
	CALL(call);
	fmReturn_t ret = begin_partitions(&call, __func__, handle, list, fmUnsupportedFabricPartitionList_version);

	if (ret != FM_ST_SUCCESS)
		return ret;
	list->numPartitions = 0;
	for (size_t i = 0; i < call.board->count; i++) {
		const struct fabric_partition *partition = &call.board->partitions[i];
		fmUnsupportedFabricPartitionInfo_t *told = &list->partitionInfo[list->numPartitions];

		if (partition->modules & ~board_modules(&call) || is_supported(&call, partition))
			continue;
		memset(told, 0, sizeof(*told));
		told->partitionId = partition->id;
		for (unsigned int module = 1; module <= FM_MAX_NUM_GPUS; module++)
			if (partition->modules >> (module - 1) & 1)
				told->gpuPhysicalIds[told->numGpus++] = module;
		list->numPartitions++;
	}
	return FM_ST_SUCCESS;
}
