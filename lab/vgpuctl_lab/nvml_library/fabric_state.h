/* SPDX-License-Identifier: Apache-2.0 */
/* What Fabric Manager of an emulated host has done, for libnvfm and for NVML; ../fabric_library/README.md. */
#ifndef FABRIC_STATE_H
#define FABRIC_STATE_H

#include <stdbool.h>
#include <stddef.h>

#define MOST_PARTITIONS 64

struct fabric_partition {
	unsigned int id, modules;	/* a bit for each module, the first is 1 */
};

/* starting_until, window_ends: seconds since the epoch, 0 for none. */
struct fabric_state {
	bool is_stopped, was_restarted;
	unsigned int starting_until, window_ends, count;
	struct fabric_partition active[MOST_PARTITIONS];
};

enum { FABRIC_BARE, FABRIC_SHARED, FABRIC_VGPU };

const char *fabric_folder(void);
void fabric_config(const char *key, const char *missing, char *value, size_t size);
unsigned int fabric_mode(void);
unsigned int fabric_now(void);
void fabric_read(struct fabric_state *state);
bool fabric_write(const struct fabric_state *state);
unsigned int fabric_failed_links(const char *address);

#endif /* FABRIC_STATE_H */
