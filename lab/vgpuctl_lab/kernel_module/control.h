/* SPDX-License-Identifier: GPL-2.0-only */
/* What /proc/vgpulab/control (control_file.c) and its commands (control_commands.c) share. */
#ifndef VGPULAB_CONTROL_H
#define VGPULAB_CONTROL_H

#include "vgpulab.h"

#define CONTROL_MOST_WORDS	8

/* One open file. */
struct control {
	struct mutex lock;
	struct vgpulab_process *attached;
	size_t length;
	char answer[2048];
};

/* One command: words[0] is its name, words[1] the card's address. */
struct command {
	struct control *control;
	struct vgpulab_card *card;
	char *words[CONTROL_MOST_WORDS];
	unsigned int count;
};

struct control_command {
	const char *name;
	/* Under the card's lock. 0, NVML's return code, or a negative errno for a line that is no command. */
	int (*run)(struct command *command);
	bool changes;
	bool works_when_lost;	/* and without a driver */
};

extern const struct control_command control_commands[];

__printf(2, 3)
void control_say(struct control *control, const char *format, ...);
int control_number(const struct command *command, unsigned int index, unsigned int *value);

#endif /* VGPULAB_CONTROL_H */
