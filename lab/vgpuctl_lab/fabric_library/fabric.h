/* SPDX-License-Identifier: Apache-2.0 */
/* What the library's files share: the tables of the boards, and one look at the host, held while a call is answered. */
#ifndef FABRIC_H
#define FABRIC_H

#include <stdbool.h>
#include <stddef.h>

#include "fabric_state.h"
#include "lab.h"
#include "nvfm.h"

/* boards.c. names_gpus: UUID and address are told, and failed links listed. needs_gpus: a missing GPU takes its
 * partitions out of the list. */
struct board {
	unsigned int generation;
	const struct fabric_partition *partitions;
	size_t count;
	bool names_gpus, needs_gpus;
	unsigned int line_rate;
};

const struct board *board_of(unsigned int generation);

/* session.c. lock: of the state file, -1 without. */
struct call {
	struct lab_text cards;
	const struct board *board;
	struct fabric_state state;
	unsigned int mode;
	int lock;
};

#define CALL(name) struct call name __attribute__((cleanup(close_call))) = { .lock = -1 }

void close_call(struct call *call);
fmReturn_t begin(struct call *call, const char *function, fmHandle_t handle, const void *versioned, unsigned int version);
fmReturn_t begin_partitions(struct call *call, const char *function, fmHandle_t handle, const void *versioned,
			    unsigned int version);
fmReturn_t end(struct call *call);
const struct lab_line *next_gpu(const struct call *call, const struct lab_line *line);

#endif /* FABRIC_H */
