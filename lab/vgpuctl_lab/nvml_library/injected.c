/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codes that somebody wants functions to return, whatever the GPU says: the file nvml_codes has a line
 * `nvmlDeviceGetMemoryInfo 999` for each. A version at the end of a name does not count. Read by nvmlInit.
 */
#include <stdio.h>
#include <string.h>

#include "lab.h"

#define MOST_CODES 32
#define NAME_SIZE 96
#define CODES_FOLDER "/etc/vgpulab"

static struct {
	char function[NAME_SIZE];
	nvmlReturn_t code;
} codes[MOST_CODES];
static unsigned int code_count;

/* The length of a function's name without `_v2`. */
static size_t plain_length(const char *name)
{
	size_t length = strlen(name), digits = strspn(name + length - (length > 0), "0123456789");

	if (length > 3 && digits == 1 && !strncmp(name + length - 3, "_v", 2))
		length -= 3;
	return length;
}

void lab_injected_read(bool is_real)
{
	char path[4096];
	unsigned int code;
	FILE *file;

	code_count = 0;
	snprintf(path, sizeof(path), "%s/nvml_codes", is_real ? CODES_FOLDER : lab_folder);
	file = fopen(path, "re");
	if (!file)
		return;
	while (code_count < MOST_CODES && fscanf(file, "%95s %u", codes[code_count].function, &code) == 2)
		codes[code_count++].code = code;
	fclose(file);
}

nvmlReturn_t lab_injected(const char *function)
{
	size_t length = plain_length(function);

	for (unsigned int i = 0; i < code_count; i++)
		if (plain_length(codes[i].function) == length && !strncmp(codes[i].function, function, length))
			return codes[i].code;
	return NVML_SUCCESS;
}
