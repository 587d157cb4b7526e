/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel module's text files: lines `KIND FIRST key=value ... name=REST OF THE LINE`. */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

/* A file of /proc has no size; it is read until it ends. */
static char *read_whole(const char *path)
{
	size_t size = 0, room = 16384;
	char *buffer = malloc(room);
	int descriptor = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = -1;

	while (descriptor >= 0 && buffer) {
		got = read(descriptor, buffer + size, room - size - 1);
		if (got <= 0)
			break;
		size += got;
		if (room - size < 4096) {
			char *larger = realloc(buffer, room *= 2);

			if (!larger) {
				got = -1;
				break;
			}
			buffer = larger;
		}
	}
	if (descriptor >= 0)
		close(descriptor);
	if (got < 0) {
		free(buffer);
		return NULL;
	}
	buffer[size] = '\0';
	return buffer;
}

/* Cut a line into its parts, in place. */
static void cut(struct lab_line *line, char *text)
{
	char *rest = text, *name;

	line->kind = strsep(&rest, " ");
	line->first = rest ? strsep(&rest, " ") : "";
	line->keys = rest ? rest : "";
	name = strstr(line->keys, "name=");
	while (name && name != line->keys && name[-1] != ' ')
		name = strstr(name + 1, "name=");
	line->keys_length = name ? (size_t)(name - line->keys) : strlen(line->keys);
	line->name = name ? name + strlen("name=") : "";
}

/* Read FOLDER/FILE. False when it is not there or memory is short; errno says which. */
bool lab_text_read(struct lab_text *text, const char *folder, const char *file)
{
	char path[4096], *rest, *line;
	size_t lines = 1;

	memset(text, 0, sizeof(*text));
	if (snprintf(path, sizeof(path), "%s/%s", folder, file) >= (int)sizeof(path))
		return false;
	text->buffer = read_whole(path);
	if (!text->buffer)
		return false;
	for (const char *at = text->buffer; *at; at++)
		lines += *at == '\n';
	text->lines = calloc(lines, sizeof(*text->lines));
	if (!text->lines) {
		lab_text_free(text);
		return false;
	}
	rest = text->buffer;
	while ((line = strsep(&rest, "\n")))
		if (*line && *line != '#')
			cut(&text->lines[text->count++], line);
	return true;
}

void lab_text_free(struct lab_text *text)
{
	free(text->buffer);
	free(text->lines);
	memset(text, 0, sizeof(*text));
}

static const char *find_value(const struct lab_line *line, const char *key)
{
	size_t length = strlen(key);
	const char *at = line ? line->keys : NULL, *end = line ? line->keys + line->keys_length : NULL;

	while (at && at < end) {
		if (!strncmp(at, key, length) && at[length] == '=')
			return at + length + 1;
		at = strchr(at, ' ');
		if (at)
			at++;
	}
	return NULL;
}

/* Copy a key's value. False, and an empty value, when the line has no such key. */
bool lab_word(const struct lab_line *line, const char *key, char *value, size_t size)
{
	const char *found = find_value(line, key);

	snprintf(value, size, "%.*s", found ? (int)strcspn(found, " ") : 0, found ? found : "");
	return found != NULL;
}

/* A key's number; `missing` when the line has no such key or `-` there. */
unsigned int lab_number(const struct lab_line *line, const char *key, unsigned int missing)
{
	const char *found = find_value(line, key);

	return found && isdigit((unsigned char)*found) ? strtoul(found, NULL, 0) : missing;
}

/* A key's numbers, `0,8,16`. Returns how many there are, which may be more than `most`. */
unsigned int lab_numbers(const struct lab_line *line, const char *key, unsigned int *values, unsigned int most)
{
	const char *at = find_value(line, key);
	unsigned int count = 0;

	while (at && isdigit((unsigned char)*at)) {
		char *end;
		unsigned int value = strtoul(at, &end, 10);

		if (count < most)
			values[count] = value;
		count++;
		at = *end == ',' ? end + 1 : NULL;
	}
	return count;
}

/* The line `card ADDRESS ...`; NULL when there is none. */
const struct lab_line *lab_card_line(const struct lab_text *text, const char *address)
{
	for (size_t i = 0; i < text->count; i++)
		if (!strcmp(text->lines[i].kind, "card") && !strcmp(text->lines[i].first, address))
			return &text->lines[i];
	return NULL;
}

/* The next line of a kind below the same card; `line` is the card's, or the one before. */
const struct lab_line *lab_next_below(const struct lab_text *text, const struct lab_line *line, const char *kind)
{
	if (!line)
		return NULL;
	while (++line < text->lines + text->count && strcmp(line->kind, "card"))
		if (!strcmp(line->kind, kind))
			return line;
	return NULL;
}

/* The line `KIND ID ...` below a card. */
const struct lab_line *lab_line_below(const struct lab_text *text, const struct lab_line *card, const char *kind,
				      unsigned int id)
{
	const struct lab_line *line = card;

	while ((line = lab_next_below(text, line, kind)))
		if (isdigit((unsigned char)*line->first) && strtoul(line->first, NULL, 0) == id)
			return line;
	return NULL;
}

/* 64-bit FNV-1a. */
static unsigned long long hash(const char *text, unsigned long long start)
{
	unsigned long long value = 0xcbf29ce484222325ULL ^ start;

	for (; *text; text++)
		value = (value ^ (unsigned char)*text) * 0x100000001b3ULL;
	return value ^ value >> 29;
}

/* Write 36 characters and a zero: always the same UUID for the same seed. */
void lab_uuid(char *uuid, const char *seed)
{
	unsigned long long high = hash(seed, 0), low = hash(seed, 0x9e3779b97f4a7c15ULL);

	snprintf(uuid, 37, "%08llx-%04llx-5%03llx-%04llx-%012llx", high >> 32, high >> 16 & 0xffff, high & 0xfff,
		 (low >> 48 & 0x3fff) | 0x8000, low & 0xffffffffffffULL);
}
