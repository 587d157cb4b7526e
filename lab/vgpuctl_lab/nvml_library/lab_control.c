/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/vgpulab/control: one command line is written, the answer is read from the same descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

static nvmlReturn_t code_of(int error)
{
	switch (error) {
	case EACCES:
	case EPERM:
		return NVML_ERROR_NO_PERMISSION;
	case EINVAL:
		return NVML_ERROR_INVALID_ARGUMENT;
	case ENODEV:
		return NVML_ERROR_GPU_IS_LOST;
	case ENOMEM:
		return NVML_ERROR_MEMORY;
	case ENOENT:
		return NVML_ERROR_NOT_SUPPORTED;	/* a kernel module without it */
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

/* Give the kernel module one command. answer: what follows `ok`; the code after `error` is what is returned. */
nvmlReturn_t lab_control(struct lab_answer *answer, const char *format, ...)
{
	char path[4096], command[256];
	nvmlReturn_t ret = NVML_ERROR_UNKNOWN;
	va_list arguments;
	ssize_t size;
	int file;

	answer->text[0] = '\0';
	va_start(arguments, format);
	size = vsnprintf(command, sizeof(command) - 1, format, arguments);
	va_end(arguments);
	if (size < 0 || size >= (ssize_t)sizeof(command) - 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	strcpy(command + size, "\n");
	snprintf(path, sizeof(path), "%s/control", lab_folder);
	file = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (file < 0)
		return code_of(errno);
	if (write(file, command, size + 1) != size + 1) {
		ret = code_of(errno);
		close(file);
		return ret;
	}
	size = read(file, answer->text, sizeof(answer->text) - 1);
	close(file);
	answer->text[size > 0 ? size : 0] = '\0';
	answer->text[strcspn(answer->text, "\n")] = '\0';
	if (!strcmp(answer->text, "ok") || !strncmp(answer->text, "ok ", 3))
		return NVML_SUCCESS;
	if (!strncmp(answer->text, "error ", 6))
		ret = strtoul(answer->text + 6, NULL, 10);
	return ret ? ret : NVML_ERROR_UNKNOWN;
}

static struct lab_line as_line(const struct lab_answer *answer)
{
	return (struct lab_line){ .keys = answer->text, .keys_length = strlen(answer->text) };
}

unsigned int lab_answer_number(const struct lab_answer *answer, const char *key, unsigned int missing)
{
	struct lab_line line = as_line(answer);

	return lab_number(&line, key, missing);
}

unsigned int lab_answer_numbers(const struct lab_answer *answer, const char *key, unsigned int *values,
				unsigned int most)
{
	struct lab_line line = as_line(answer);

	return lab_numbers(&line, key, values, most);
}
