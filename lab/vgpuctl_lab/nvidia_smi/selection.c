/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs a command is for, and the words of a command line. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

int read_number(const char *text, unsigned int *value)
{
	char *end;

	if (!text || !isdigit((unsigned char)*text))
		return NVML_ERROR_INVALID_ARGUMENT;
	*value = strtoul(text, &end, 0);
	return *end ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

static void add(struct selection *selection, unsigned int index)
{
	struct device *device = &selection->devices[selection->count++];
	nvmlPciInfo_t info;

	*device = (struct device){ .index = index };
	device->lost = nvmlDeviceGetHandleByIndex_v2(index, &device->handle);
	if (device->lost == NVML_SUCCESS)
		device->lost = nvmlDeviceGetPciInfo_v3(device->handle, &info);
	if (device->lost == NVML_SUCCESS)
		snprintf(device->bus_id, sizeof(device->bus_id), "%s", info.busId);
}

/* By index, UUID, serial or PCI address. */
static nvmlReturn_t find(const char *name, unsigned int *index)
{
	nvmlDevice_t device;
	unsigned int count = 0;
	nvmlReturn_t ret;

	nvmlDeviceGetCount_v2(&count);
	if (strlen(name) < 4 && read_number(name, index) == NVML_SUCCESS)
		return *index < count ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
	ret = nvmlDeviceGetHandleByUUID(name, &device);
	if (ret == NVML_ERROR_NOT_FOUND)
		ret = nvmlDeviceGetHandleBySerial(name, &device);
	if (ret == NVML_ERROR_NOT_FOUND)
		ret = nvmlDeviceGetHandleByPciBusId_v2(name, &device);
	return ret == NVML_SUCCESS ? nvmlDeviceGetIndex(device, index) : ret;
}

/* wanted: a list with commas, or NULL for every GPU. Says what is wrong and returns the exit code. */
int select_devices(struct selection *selection, const char *wanted)
{
	char text[1024], *rest = text, *name;
	unsigned int count = 0, index;

	selection->count = 0;
	nvmlDeviceGetCount_v2(&count);
	if (!wanted) {
		for (index = 0; index < count && index < MOST_GPUS; index++)
			add(selection, index);
		if (!selection->count)
			puts("No devices were found");
		return selection->count ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
	}
	snprintf(text, sizeof(text), "%s", wanted);
	while ((name = strsep(&rest, ",")) && selection->count < MOST_GPUS) {
		if (find(name, &index) != NVML_SUCCESS) {
			puts("No devices were found");
			return NVML_ERROR_NOT_FOUND;
		}
		add(selection, index);
	}
	return NVML_SUCCESS;
}

static bool find_option(const struct options *options, const char *name, const char **value)
{
	size_t length = strlen(name);

	*value = NULL;
	for (int i = 0; i < options->count; i++) {
		char *word = options->words[i];

		if (!strncmp(word, name, length) && word[length] == '=') {
			*value = word + length + 1;
			return true;
		}
		if (!strcmp(word, name)) {
			if (i + 1 < options->count && options->words[i + 1][0] != '-')
				*value = options->words[i + 1];
			return true;
		}
	}
	return false;
}

/* The value of an option, after `=` or a blank; NULL when the option or its value is not there. */
const char *option(const struct options *options, const char *name)
{
	const char *value;

	find_option(options, name, &value);
	return value;
}

bool has_option(const struct options *options, const char *name)
{
	const char *value;

	return find_option(options, name, &value);
}

/* The first option that is none of the known ones, whose list ends with NULL. */
const char *unknown_option(const struct options *options, const char *const *known)
{
	for (int i = 0; i < options->count; i++) {
		size_t length = strcspn(options->words[i], "=");
		const char *const *name = known;

		if (options->words[i][0] != '-')
			continue;
		while (*name && (strlen(*name) != length || strncmp(*name, options->words[i], length)))
			name++;
		if (!*name)
			return options->words[i];
	}
	return NULL;
}
