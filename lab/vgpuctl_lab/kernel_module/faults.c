// SPDX-License-Identifier: GPL-2.0-only
/* Faults on demand, by the words of /proc/vgpulab/control. */
#include <linux/jiffies.h>

#include "vgpulab.h"

static void log_xid(struct vgpulab_card *card, unsigned int xid, const char *text)
{
	card->faults.last_xid = xid;
	pr_err("NVRM: Xid (PCI:%04x:%02x:%02x): %u, pid='<unknown>', name=<unknown>, %s\n", card->domain,
	       card->bus, PCI_SLOT(card->identity.devfn), xid, text);
}

#define DEFAULT_STATE_MIB	1

#define MOVE_FAULT(kind, field)	{ kind, offsetof(struct vgpulab_move_faults, field) }

static const struct {
	const char *kind;
	size_t offset;
} move_faults[] = {
	MOVE_FAULT("move-unsupported", unsupported),
	MOVE_FAULT("move-untracked", untracked),
	MOVE_FAULT("move-no-precopy", no_pre_copy),
	MOVE_FAULT("move-refused", refuses_stop_copy),
	MOVE_FAULT("move-read-error", read_error),
	MOVE_FAULT("move-header-refused", refuses_header),
	MOVE_FAULT("move-checked-early", checks_early),
	MOVE_FAULT("move-load-refused", refuses_load),
	MOVE_FAULT("move-state", state_mib),
	MOVE_FAULT("move-bandwidth", bandwidth_mib),
	MOVE_FAULT("move-dirty", dirty_mib),
	MOVE_FAULT("move-sleep", sleep_ms),
};

static bool set_move_fault(struct vgpulab_move_faults *faults, const char *kind, unsigned int value)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(move_faults); i++) {
		if (strcmp(kind, move_faults[i].kind))
			continue;
		WRITE_ONCE(*(unsigned int *)((u8 *)faults + move_faults[i].offset), value);
		return true;
	}
	return false;
}

/* How large the state of each of its vGPUs is for a move. */
unsigned int vgpulab_state_mib(const struct vgpulab_card *card)
{
	return READ_ONCE(card->faults.moves.state_mib) ?: DEFAULT_STATE_MIB;
}

/* 0, or -EINVAL for a kind there is not. */
int vgpulab_set_fault_locked(struct vgpulab_card *card, const char *kind, unsigned int value)
{
	struct vgpulab_faults *faults = &card->faults;

	lockdep_assert_held(&card->lock);
	if (!strcmp(kind, "refuse")) {
		faults->refusal = value;
	} else if (!strcmp(kind, "unbind-lock")) {
		faults->holds_unbind_lock = value;
	} else if (!strcmp(kind, "busy")) {
		faults->is_busy = value;
	} else if (!strcmp(kind, "lock-busy")) {
		faults->has_holder = value;
		faults->held_until = jiffies + value * HZ;
	} else if (!strcmp(kind, "vfs-unregistered")) {
		/* Read without the lock where a VF is probed. */
		WRITE_ONCE(faults->unregistered, value);
	} else if (!strcmp(kind, "removal-delay")) {
		faults->removal_delay_ms = value;
	} else if (!strcmp(kind, "fallen")) {
		if (value && !faults->is_fallen)
			log_xid(card, 79, "GPU has fallen off the bus.");
		/* Read without the lock where configuration space is. */
		WRITE_ONCE(faults->is_fallen, value);
	} else if (!strcmp(kind, "vf-wedged")) {
		faults->wedged_vf = value;
	} else if (!strcmp(kind, "xid")) {
		faults->last_xid = 0;
		if (value)
			log_xid(card, value, "Ch 00000000");
	} else if (!strcmp(kind, "ecc")) {
		faults->ecc_errors = value;
		if (value)
			log_xid(card, 48, "DBE (double bit error) ECC Error");
	} else if (!set_move_fault(&faults->moves, kind, value)) {
		return -EINVAL;
	}
	return 0;
}
