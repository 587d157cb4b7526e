/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rules of NVIDIA's resource manager (RM) as arithmetic on plain values: no kernel, no locks, no memory.
 *
 * mig_rules.c, placement_rules.c and vgpu_rules.c are the specification of what the lab plays. They
 * build as a part of the module and as a user's library; the tests compare the latter with the
 * catalogue and with the planner.
 */
#ifndef VGPULAB_RULES_H
#define VGPULAB_RULES_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#endif

/* Status codes of RM, as its log lines print them. */
#define RM_OK				0x00
#define RM_GPU_IS_LOST			0x0f
#define RM_INSUFFICIENT_RESOURCES	0x1a
#define RM_INVALID_OPERATION		0x38
#define RM_INVALID_STATE		0x40
#define RM_NOT_SUPPORTED		0x56
#define RM_OBJECT_NOT_FOUND		0x57
#define RM_BUSY_RETRY			0x66

/* RM's limits. */
#define RM_MAX_VGPUS			32	/* per GPU without MIG */
#define RM_MAX_VGPUS_WITH_MIG		48
#define RM_MAX_VGPUS_PER_INSTANCE	12
#define RM_INVALID_PLACEMENT		0xffff

#define MIG_MAX_STARTS			16
#define MIG_MAX_INSTANCES		14	/* of one space */

/* A GPU-instance profile, or a compute-instance profile of one GPU-instance profile. */
struct mig_profile {
	unsigned int id;
	unsigned int slices;	/* compute slices */
	unsigned int size;	/* memory slots; of a compute instance: compute slices */
	unsigned int max;	/* of this profile alone */
	unsigned int base;	/* instance id = base + start / size */
	unsigned int start_count;
	unsigned int starts[MIG_MAX_STARTS];	/* rising */
	bool takes_media;	/* +me, +me.all: one instance of a GPU */
};

/* What instances lie in: a GPU (memory slots), or a GPU instance (compute slices). */
struct mig_space {
	unsigned int slices;	/* compute slices there are */
	const struct mig_profile *profiles;
	unsigned int profile_count;
	unsigned int count;
	struct {
		const struct mig_profile *profile;
		unsigned int start;
	} placed[MIG_MAX_INSTANCES];
};

/* mig_rules.c */
bool mig_fits_at(const struct mig_space *space, const struct mig_profile *profile, unsigned int start);
unsigned int mig_remaining(const struct mig_space *space, const struct mig_profile *profile);
int mig_first_start(const struct mig_space *space, const struct mig_profile *profile);
int mig_best_start(const struct mig_space *space, const struct mig_profile *profile);

/* How mixed-size placements are laid out. */
enum placement_layout {
	PLACEMENT_HALVES,	/* before Ada: halves of halves */
	PLACEMENT_HALVES_ADA,	/* Ada, Hopper: the same with fewer places for 1 GiB types */
	PLACEMENT_EVEN,		/* Blackwell: as many equal parts as the type has instances */
};

#define PLACEMENT_MAX_REGION	512	/* GiB */

struct placement_set {
	unsigned char bits[PLACEMENT_MAX_REGION / 8];
};

/* placement_rules.c */
bool placement_in(const struct placement_set *set, unsigned int placement);
void placement_supported(enum placement_layout layout, unsigned int region, unsigned int size,
			 unsigned int max, struct placement_set *set);

/* What the rules want to know of a vGPU type. */
struct rules_type {
	unsigned int framebuffer_mib;
	unsigned int max_instances;	/* per GPU in equal-size mode */
	unsigned int placement_size;	/* GiB */
	int gi_profile;			/* of a MIG-backed type, else -1 */
	unsigned int per_gi;		/* most in one GPU instance */
};

/* Where vGPUs lie side by side: the whole GPU, or one GPU instance. */
struct rules_pool {
	enum placement_layout layout;
	unsigned int region;		/* GiB */
	bool is_heterogeneous;		/* mixed-size mode */
	unsigned int count;
	struct {
		unsigned int framebuffer_mib;
		unsigned int placement;
		unsigned int size;
	} vgpus[RM_MAX_VGPUS];
};

struct rules_instance {
	unsigned int id;
	unsigned int profile;
	struct rules_pool pool;
};

/* One GPU. */
struct rules_gpu {
	bool has_mig;			/* MIG mode is on */
	struct rules_pool pool;		/* of time-sliced vGPUs */
	unsigned int instance_count;
	struct rules_instance instances[MIG_MAX_INSTANCES];	/* rising ids */
};

/* vgpu_rules.c */
unsigned int pool_status(const struct rules_pool *pool, const struct rules_type *type);
void pool_supported(const struct rules_pool *pool, const struct rules_type *type,
		    struct placement_set *set);
bool pool_placement_is_free(const struct rules_pool *pool, unsigned int placement, unsigned int size);
unsigned int pool_choose(const struct rules_pool *pool, const struct rules_type *type);
unsigned int gpu_status(const struct rules_gpu *gpu, const struct rules_type *type,
			const struct rules_instance **instance);

#endif /* VGPULAB_RULES_H */
