/* SPDX-License-Identifier: Apache-2.0 */
/* nvmlInit and nvmlShutdown, the GPUs that were there at init, and what is known of the whole system. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

#define PROC_FOLDER "/proc/vgpulab"
#define FLAG_NO_GPUS 1U

const char *lab_folder = PROC_FOLDER;

static pthread_mutex_t session_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int users;
static struct lab_text boards;
static struct gpu gpus[MAX_GPUS];
static unsigned int minors[MAX_GPUS];
static int nodes[MAX_GPUS];
static unsigned int gpu_count;

bool lab_is_open(void)
{
	return users > 0;
}

/* False for a test's folder in place of the kernel module's. */
bool lab_is_real(void)
{
	return !strcmp(lab_folder, PROC_FOLDER);
}

unsigned int lab_gpu_count(void)
{
	return gpu_count;
}

const struct gpu *lab_gpu(unsigned int index)
{
	return index < gpu_count ? &gpus[index] : NULL;
}

const struct lab_text *lab_boards(void)
{
	return &boards;
}

/* N of the GPU's /dev/nvidiaN. */
unsigned int lab_minor(unsigned int gpu)
{
	return minors[gpu];
}

/* Like every NVML client this one uses /dev/nvidiaN, which keeps the GPU's driver from being taken away. */
void lab_nodes_hold(unsigned int gpu)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/nvidia%u", lab_is_real() ? "/dev" : lab_folder, minors[gpu]);
	nodes[gpu] = open(path, O_RDWR | O_CLOEXEC);
}

/* Let go of a GPU: for the calls that the driver answers only when nobody uses it. */
void lab_nodes_release(unsigned int gpu)
{
	if (nodes[gpu] >= 0)
		close(nodes[gpu]);
	nodes[gpu] = -1;
}

static bool is_nvidia(const struct lab_line *card)
{
	char interface[16];

	lab_word(card, "interface", interface, sizeof(interface));
	return strcmp(interface, "vf") != 0;
}

/* The GPUs on the driver nvidia, in the order of the table, which is that of their addresses. */
static void find_gpus(const struct lab_text *state)
{
	unsigned int minor = 0;

	gpu_count = 0;
	for (size_t i = 0; i < boards.count && gpu_count < MAX_GPUS; i++) {
		const struct lab_line *card = &boards.lines[i], *now;
		struct gpu *gpu = &gpus[gpu_count];
		char driver[16];

		if (strcmp(card->kind, "card") || !is_nvidia(card))
			continue;
		minors[gpu_count] = minor++;
		now = lab_card_line(state, card->first);
		lab_word(now, "driver", driver, sizeof(driver));
		if (strcmp(driver, "nvidia") || lab_number(now, "unbind_lock", 0))
			continue;
		memset(gpu, 0, sizeof(*gpu));
		snprintf(gpu->address, sizeof(gpu->address), "%s", card->first);
		sscanf(gpu->address, "%x:%x:%x", &gpu->domain, &gpu->bus, &gpu->slot);
		gpu->card = card;
		nodes[gpu_count++] = -1;
	}
}

static nvmlReturn_t open_session(unsigned int flags)
{
	struct lab_text state;

	if (getenv("VGPULAB_PROC"))
		lab_folder = getenv("VGPULAB_PROC");
	lab_injected_read(lab_is_real());
	if (!lab_text_read(&state, lab_folder, "state"))
		return errno == ENOMEM ? NVML_ERROR_MEMORY : NVML_ERROR_DRIVER_NOT_LOADED;
	if (!lab_text_read(&boards, lab_folder, "cards")) {
		lab_text_free(&state);
		return errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_DRIVER_NOT_LOADED;
	}
	find_gpus(&state);
	lab_text_free(&state);
	if (!(flags & FLAG_NO_GPUS))
		for (unsigned int i = 0; i < gpu_count; i++)
			lab_nodes_hold(i);
	return NVML_SUCCESS;
}

API nvmlInitWithFlags(unsigned int flags)
{
	nvmlReturn_t ret = NVML_SUCCESS;

	pthread_mutex_lock(&session_lock);
	if (!users)
		ret = open_session(flags);
	if (ret == NVML_SUCCESS)
		users++;
	pthread_mutex_unlock(&session_lock);
	return ret;
}

API nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

API nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

API nvmlShutdown(void)
{
	nvmlReturn_t ret = NVML_SUCCESS;

	pthread_mutex_lock(&session_lock);
	if (!users) {
		ret = NVML_ERROR_UNINITIALIZED;
	} else if (!--users) {
		for (unsigned int i = 0; i < gpu_count; i++)
			lab_nodes_release(i);
		lab_text_free(&boards);
		gpu_count = 0;
	}
	pthread_mutex_unlock(&session_lock);
	return ret;
}

nvmlReturn_t copy_text(char *to, unsigned int size, const char *from)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(from) >= size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, from);
	return NVML_SUCCESS;
}

/* The version that /proc/driver/nvidia/version tells: `... Kernel Module  550.127.06  (vgpulab)`. */
static bool read_driver_version(char *version, size_t size)
{
	const char *path = lab_is_real() ? "/proc/driver/nvidia" : lab_folder;
	const char *before = "Kernel Module  ";
	struct lab_text text;
	char *at = NULL;

	if (!lab_text_read(&text, path, "version"))
		return false;
	for (size_t i = 0; i < text.count && !at; i++) {
		/* The parts of a line lie one behind the other; the first two blanks were made zeros. */
		at = strstr(text.lines[i].keys, before);
		if (at)
			snprintf(version, size, "%.*s", (int)strcspn(at + strlen(before), " "), at + strlen(before));
	}
	lab_text_free(&text);
	return at != NULL;
}

API nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	char known[80];

	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!read_driver_version(known, sizeof(known)))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	return copy_text(version, length, known);
}

/* As NVML numbers itself: the branch's CUDA major version, then the driver's version. */
API nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char known[80], whole[96];

	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!read_driver_version(known, sizeof(known)))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	snprintf(whole, sizeof(whole), "%u.%s", atoi(known) >= 580 ? 13 : 12, known);
	return copy_text(version, length, whole);
}

API nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[64], program[256] = "";
	FILE *file;

	if (!lab_is_open())
		return NVML_ERROR_UNINITIALIZED;
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	file = fopen(path, "re");
	if (!file)
		return NVML_ERROR_NOT_FOUND;
	program[fread(program, 1, sizeof(program) - 1, file)] = '\0';
	fclose(file);
	return copy_text(name, length, program);
}

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result)
{
	switch ((int)result) {
	case 0: return "Success";
	case 1: return "Uninitialized";
	case 2: return "Invalid Argument";
	case 3: return "Not Supported";
	case 4: return "Insufficient Permissions";
	case 5: return "Already Initialized";
	case 6: return "Not Found";
	case 7: return "Insufficient Size";
	case 8: return "Insufficient External Power";
	case 9: return "Driver Not Loaded";
	case 10: return "Timeout";
	case 11: return "Interrupt Request Issue";
	case 12: return "NVML Shared Library Not Found";
	case 13: return "Function Not Found";
	case 14: return "Corrupted infoROM";
	case 15: return "GPU is lost";
	case 16: return "GPU requires reset";
	case 17: return "GPU access blocked by the operating system";
	case 18: return "Driver/library version mismatch";
	case 19: return "In use by another client";
	case 20: return "Insufficient Memory";
	case 21: return "No data";
	case 22: return "The requested vgpu operation is not available on target device, because ECC is enabled";
	case 23: return "Insufficient Resources";
	case 24: return "Frequency not supported";
	case 25: return "Argument version mismatch";
	case 26: return "Requested functionality has been deprecated";
	case 27: return "System is not ready for the request";
	case 28: return "No GPUs were found";
	case 29: return "Invalid state";
	case 30: return "Reset type not supported";
	default: return "Unknown Error";
	}
}
