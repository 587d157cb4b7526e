/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric Manager's configuration and its state file, which every process of the host shares: `fabric` has a line
 * `manager - stopped= starting_until= window_ends= restarted=`, and `active ID modules=` for each active partition;
 * `fabric_links` has a line `links ADDRESS failed=` for each GPU with failed NVLinks. No file: nothing has happened.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fabric_state.h"
#include "lab.h"

#define STATE_FOLDER "/run/vgpulab"
#define CONFIG "/usr/share/nvidia/nvswitch/fabricmanager.cfg"

/* A test has everything in one folder. */
const char *fabric_folder(void)
{
	return getenv("VGPULAB_PROC") ?: STATE_FOLDER;
}

/* A key's value; the last one counts. */
void fabric_config(const char *key, const char *missing, char *value, size_t size)
{
	char path[4096], line[1024];
	FILE *file;

	snprintf(value, size, "%s", missing);
	snprintf(path, sizeof(path), "%s/fabricmanager.cfg", fabric_folder());
	file = fopen(getenv("VGPULAB_PROC") ? path : CONFIG, "re");
	while (file && fgets(line, sizeof(line), file)) {
		char *at = line + strspn(line, " \t"), *equals = strchr(at, '=');
		size_t length = equals ? equals - at : 0;

		while (length && isspace((unsigned char)at[length - 1]))
			length--;
		if (!equals || length != strlen(key) || strncmp(at, key, length))
			continue;
		at = equals + 1 + strspn(equals + 1, " \t");
		snprintf(value, size, "%.*s", (int)strcspn(at, " \t\r\n"), at);
	}
	if (file)
		fclose(file);
}

unsigned int fabric_mode(void)
{
	char value[16];

	fabric_config("FABRIC_MODE", "0", value, sizeof(value));
	return strtoul(value, NULL, 10);
}

unsigned int fabric_now(void)
{
	return time(NULL);
}

/* A restarted Fabric Manager that nobody told its partitions in time has ended, and knows none any more. */
void fabric_read(struct fabric_state *state)
{
	struct lab_text text;

	memset(state, 0, sizeof(*state));
	if (!lab_text_read(&text, fabric_folder(), "fabric"))
		return;
	for (size_t i = 0; i < text.count; i++) {
		const struct lab_line *line = &text.lines[i];
		unsigned int modules[32], count;

		if (!strcmp(line->kind, "manager")) {
			state->is_stopped = lab_number(line, "stopped", 0);
			state->was_restarted = lab_number(line, "restarted", 0);
			state->starting_until = lab_number(line, "starting_until", 0);
			state->window_ends = lab_number(line, "window_ends", 0);
		} else if (!strcmp(line->kind, "active") && state->count < MOST_PARTITIONS) {
			struct fabric_partition *active = &state->active[state->count++];

			active->id = strtoul(line->first, NULL, 10);
			active->modules = 0;
			count = lab_numbers(line, "modules", modules, 32);
			for (unsigned int m = 0; m < count && m < 32; m++)
				active->modules |= 1U << (modules[m] - 1);
		}
	}
	lab_text_free(&text);
	if (state->window_ends && fabric_now() >= state->window_ends) {
		state->is_stopped = true;
		state->window_ends = state->count = 0;
	}
}

/* Replace the state as a whole; the caller holds the lock. */
bool fabric_write(const struct fabric_state *state)
{
	char path[4096], temporary[4096];
	bool is_written;
	FILE *file;

	mkdir(fabric_folder(), 0755);
	snprintf(path, sizeof(path), "%s/fabric", fabric_folder());
	snprintf(temporary, sizeof(temporary), "%s/fabric.new", fabric_folder());
	file = fopen(temporary, "we");
	if (!file)
		return false;
	fprintf(file, "manager - stopped=%d starting_until=%u window_ends=%u restarted=%d\n", state->is_stopped,
		state->starting_until, state->window_ends, state->was_restarted);
	for (unsigned int i = 0; i < state->count; i++) {
		char comma = '=';

		fprintf(file, "active %u modules", state->active[i].id);
		for (unsigned int module = 1; module <= 32; module++)
			if (state->active[i].modules >> (module - 1) & 1) {
				fprintf(file, "%c%u", comma, module);
				comma = ',';
			}
		fputc('\n', file);
	}
	is_written = !ferror(file);
	return !fclose(file) && is_written && !rename(temporary, path);
}

/* How many NVLinks of a GPU have failed, its first ones. */
unsigned int fabric_failed_links(const char *address)
{
	struct lab_text text;
	unsigned int failed = 0;

	if (!lab_text_read(&text, fabric_folder(), "fabric_links"))
		return 0;
	for (size_t i = 0; i < text.count; i++)
		if (!strcmp(text.lines[i].kind, "links") && !strcmp(text.lines[i].first, address))
			failed = lab_number(&text.lines[i], "failed", 0);
	lab_text_free(&text);
	return failed;
}
