/* SPDX-License-Identifier: Apache-2.0 */
/* `nvidia-smi mig -lgip`, `-lgipp`, `-lgi`, `-lci` (reference 5.2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define MOST_INSTANCES 64

static bool is_in_mig_mode(const struct device *device)
{
	unsigned int current = 0, pending;

	return !device->lost && nvmlDeviceGetMigMode(device->handle, &current, &pending) == NVML_SUCCESS && current;
}

static bool read_profile(const struct device *device, unsigned int known, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	info->version = NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2);
	return nvmlDeviceGetGpuInstanceProfileInfoV(device->handle, known, info) == NVML_SUCCESS;
}

static void list_profiles(const struct device *device)
{
	/* In the order of their sizes: NVML's constants, the small ones before the large. */
	static const unsigned int order[NVML_GPU_INSTANCE_PROFILE_COUNT] = { 0,	 7, 9,	10, 13, 15, 1, 8, 11,
									     14, 16, 2, 17, 3,	12, 6, 4, 5 };
	nvmlGpuInstanceProfileInfo_v2_t info;

	for (unsigned int i = 0; i < NVML_GPU_INSTANCE_PROFILE_COUNT; i++) {
		char free_of_total[16], memory[16];
		unsigned int left = 0;

		if (!read_profile(device, order[i], &info))
			continue;
		nvmlDeviceGetGpuInstanceRemainingCapacity(device->handle, info.id, &left);
		snprintf(free_of_total, sizeof(free_of_total), "%u/%u", left, info.instanceCount);
		snprintf(memory, sizeof(memory), "%.2f", info.memorySizeMB / 1024.0);
		printf("|%4u  MIG %-14s%2u     %-11s%-8s   %-3s    %-3u %4u  %4u   |\n", device->index, info.name, info.id,
		       free_of_total, memory, info.isP2pSupported ? "Yes" : "No", info.multiprocessorCount,
		       info.decoderCount, info.encoderCount);
		printf("|%62u  %4u  %4u   |\n", info.copyEngineCount, info.jpegCount, info.ofaCount);
		puts("+-----------------------------------------------------------------------------+");
	}
}

static void list_profile_header(void)
{
	puts("+-----------------------------------------------------------------------------+");
	puts("| GPU instance profiles:                                                      |");
	puts("| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |");
	puts("|                              Free/Total   GiB              CE    JPEG  OFA  |");
	puts("|=============================================================================|");
}

static void list_placements(const struct device *device)
{
	nvmlGpuInstanceProfileInfo_v2_t info;

	for (unsigned int known = 0; known < NVML_GPU_INSTANCE_PROFILE_COUNT; known++) {
		nvmlPlacement_t placements[MOST_INSTANCES];
		unsigned int count = MOST_INSTANCES;

		if (!read_profile(device, known, &info) ||
		    nvmlDeviceGetGpuInstancePossiblePlacements_v2(device->handle, info.id, placements, &count))
			continue;
		printf("GPU %2u Profile ID %2u Placement%s: {", device->index, info.id, count == 1 ? " " : "s");
		for (unsigned int i = 0; i < count; i++)
			printf("%s%u", i ? "," : "", placements[i].start);
		printf("}:%u\n", count ? placements[0].size : 0);
	}
}

struct found {
	nvmlGpuInstance_t handle;
	nvmlGpuInstanceInfo_t info;
	char name[96];
};

static int by_profile_and_id(const void *left, const void *right)
{
	const nvmlGpuInstanceInfo_t *one = &((const struct found *)left)->info, *other = &((const struct found *)right)->info;

	if (one->profileId != other->profileId)
		return one->profileId < other->profileId ? -1 : 1;
	return one->id < other->id ? -1 : one->id > other->id;
}

static unsigned int find_instances(const struct device *device, struct found *found)
{
	nvmlGpuInstanceProfileInfo_v2_t profile;
	unsigned int count = 0;

	for (unsigned int known = 0; known < NVML_GPU_INSTANCE_PROFILE_COUNT; known++) {
		nvmlGpuInstance_t handles[MOST_INSTANCES];
		unsigned int some = 0;

		if (!read_profile(device, known, &profile) ||
		    nvmlDeviceGetGpuInstances(device->handle, profile.id, handles, &some))
			continue;
		for (unsigned int i = 0; i < some && count < MOST_INSTANCES; i++)
			if (nvmlGpuInstanceGetInfo(handles[i], &found[count].info) == NVML_SUCCESS) {
				found[count].handle = handles[i];
				strcpy(found[count++].name, profile.name);
			}
	}
	qsort(found, count, sizeof(*found), by_profile_and_id);
	return count;
}

static void place(char *text, size_t size, nvmlPlacement_t placement)
{
	snprintf(text, size, "%u:%u", placement.start, placement.size);
}

/* A table with a line below each row, whose header comes with its first row, if it has one. */
struct table {
	const char *line;
	const char *const *header;
	bool with_header;
	unsigned int rows;
};

static void begin_row(struct table *table)
{
	if (!table->rows++ && table->with_header) {
		puts(table->line);
		for (const char *const *text = table->header; *text; text++)
			puts(*text);
	}
}

static unsigned int list_instances(const struct device *device, bool with_header)
{
	static const char *const header[] = {
		"| GPU instances:                                        |",
		"| GPU   Name             Profile  Instance   Placement  |",
		"|                          ID       ID       Start:Size |",
		"|=======================================================|",
		NULL,
	};
	struct table table = { "+-------------------------------------------------------+", header, with_header, 0 };
	struct found found[MOST_INSTANCES];
	unsigned int count = find_instances(device, found);

	for (unsigned int i = 0; i < count; i++) {
		char where[16];

		begin_row(&table);
		place(where, sizeof(where), found[i].info.placement);
		printf("|%4u  MIG %-16s%2u       %2u          %-8s|\n", device->index, found[i].name,
		       found[i].info.profileId, found[i].info.id, where);
		puts(table.line);
	}
	return table.rows;
}

static void list_instances_of_profile(const struct device *device, const struct found *gi,
				      const nvmlComputeInstanceProfileInfo_v2_t *profile, struct table *table)
{
	nvmlComputeInstance_t handles[MOST_INSTANCES];
	unsigned int count = 0;

	if (nvmlGpuInstanceGetComputeInstances(gi->handle, profile->id, handles, &count))
		return;
	for (unsigned int i = 0; i < count; i++) {
		nvmlComputeInstanceInfo_t info;
		char where[16];

		if (nvmlComputeInstanceGetInfo_v2(handles[i], &info))
			continue;
		begin_row(table);
		place(where, sizeof(where), info.placement);
		printf("|%4u  %5u       MIG %-16s%2u        %2u          %-8s|\n", device->index, gi->info.id,
		       profile->name, info.profileId, info.id, where);
		puts(table->line);
	}
}

/* The compute instances of the wanted GPU instance; wanted: NULL for every GPU instance. */
static unsigned int list_compute_instances(const struct device *device, const char *wanted, bool with_header)
{
	static const char *const header[] = {
		"| Compute instances:                                                 |",
		"| GPU     GPU       Name             Profile   Instance   Placement  |",
		"|       Instance                       ID        ID       Start:Size |",
		"|         ID                                                         |",
		"|====================================================================|",
		NULL,
	};
	static const char line[] = "+--------------------------------------------------------------------+";

	struct table table = { line, header, with_header, 0 };
	struct found found[MOST_INSTANCES];
	unsigned int count = find_instances(device, found), gi = NVML_NO_GPU_INSTANCE;

	read_number(wanted, &gi);
	for (unsigned int i = 0; i < count; i++) {
		if (wanted && found[i].info.id != gi)
			continue;
		for (unsigned int known = 0; known < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; known++) {
			nvmlComputeInstanceProfileInfo_v2_t profile = {
				.version = NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2)
			};

			if (!nvmlGpuInstanceGetComputeInstanceProfileInfoV(found[i].handle, known, 0, &profile))
				list_instances_of_profile(device, &found[i], &profile, &table);
		}
	}
	return table.rows;
}

int mig_command(const struct options *options)
{
	static const char *const known[] = { "-i",   "-gi",  "-ci",  "-C",   "-lgip", "-lgipp",
					     "-lgi", "-lci", "-cgi", "-dgi", "-dci",  NULL };
	const char *strange = unknown_option(options, known);
	struct selection selection, chosen = { 0 };
	unsigned int listed = 0;
	int ret;

	if (strange || !options->count) {
		printf("Option \"%s\" is not recognized. Please run 'nvidia-smi mig -h' for help.\n", strange ? strange : "");
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	ret = select_devices(&selection, option(options, "-i"));
	if (ret)
		return ret;
	for (unsigned int i = 0; i < selection.count; i++)
		if (is_in_mig_mode(&selection.devices[i]))
			chosen.devices[chosen.count++] = selection.devices[i];
	if (!chosen.count) {
		puts("No MIG-enabled devices found.");
		return NVML_ERROR_NOT_FOUND;
	}
	if (has_option(options, "-lgip")) {
		list_profile_header();
		for (unsigned int i = 0; i < chosen.count; i++)
			list_profiles(&chosen.devices[i]);
		return NVML_SUCCESS;
	}
	if (has_option(options, "-lgipp")) {
		for (unsigned int i = 0; i < chosen.count; i++)
			list_placements(&chosen.devices[i]);
		return NVML_SUCCESS;
	}
	if (!has_option(options, "-lgi") && !has_option(options, "-lci"))
		return change_instances(&chosen, options);
	for (unsigned int i = 0; i < chosen.count; i++) {
		const struct device *device = &chosen.devices[i];

		if (has_option(options, "-lgi"))
			listed += list_instances(device, !listed);
		else
			listed += list_compute_instances(device, option(options, "-gi"), !listed);
	}
	if (!listed)
		puts("No MIG devices found");
	return listed ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
