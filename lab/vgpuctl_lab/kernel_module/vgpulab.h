/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vgpulab - emulated PCI devices that behave like NVIDIA boards under the vGPU host driver,
 *           and like Intel's boards with plain SR-IOV
 *
 * Life times, because everything else follows from them:
 * - cards are read once from /proc/vgpulab/cards and live until the module goes;
 * - functions (a bound PF or VF) live from probe to remove of the PCI driver;
 * - vGPUs live from creation to deletion, and never longer than their function.
 */
#ifndef VGPULAB_H
#define VGPULAB_H

#include <linux/list.h>
#include <linux/mdev.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uuid.h>
#include <linux/vfio.h>
#include <linux/wait.h>

#include "kernel_versions.h"
#include "rules.h"

/* NVML's return codes, as /proc/vgpulab/control answers them. */
#define NVML_SUCCESS			0
#define NVML_INVALID_ARGUMENT		2
#define NVML_NOT_SUPPORTED		3
#define NVML_NO_PERMISSION		4
#define NVML_NOT_FOUND			6
#define NVML_GPU_IS_LOST		15
#define NVML_IN_USE			19
#define NVML_INSUFFICIENT_RESOURCES	23
#define NVML_GPU_NOT_FOUND		28

#define VGPULAB_MAX_TYPES		128	/* per GPU, as in NVIDIA's manager */
#define VGPULAB_MAX_VGPU_PARAMS		1024
#define VGPULAB_MAX_FUNCTIONS		8	/* of one card, companions included */
#define VGPULAB_MAX_CARDS		64
#define VGPULAB_MAX_GI_PROFILES		20
#define VGPULAB_MAX_CI_PROFILES		8	/* of one GPU-instance profile */
/* What RM uses for "no GPU instance"; the value on a GPU without MIG is not published. */
#define VGPULAB_NO_GPU_INSTANCE		0xffffffffU

enum vgpulab_interface {
	VGPULAB_NONE,		/* whole card only */
	VGPULAB_MDEV_PF,	/* mdev types on the physical function */
	VGPULAB_MDEV_VF,	/* mdev types on every virtual function */
	VGPULAB_VF_PROFILE,	/* vendor-specific VFIO: nvidia/current_vgpu_type on the VF */
	VGPULAB_VF,		/* Intel's: plain virtual functions by sriov_numvfs, no types */
};

/* What configuration space says about a function. */
struct vgpulab_identity {
	unsigned int devfn;
	u16 vendor;
	u16 device;
	u16 subsystem_vendor;
	u16 subsystem_device;
	u32 class;
	u8 revision;
};

struct vgpulab_type {
	unsigned int id;
	struct rules_type rules;
	unsigned int heads;
	unsigned int frame_rate_limit;
	unsigned int width;
	unsigned int height;
	u16 guest_device;
	u16 guest_subsystem;
	const char *name;
};

/* A compute instance, in an array of its GPU instance. */
struct vgpulab_compute_instance {
	unsigned int id;
	unsigned int start;
	const struct mig_profile *profile;
};

struct vgpulab_gpu_instance {
	struct list_head node;
	unsigned int id;
	unsigned int start;
	const struct mig_profile *profile;
	bool is_heterogeneous;
	unsigned int compute_count;
	struct vgpulab_compute_instance compute[MIG_MAX_INSTANCES];
};

/* MIG of one card; what is below `mode` is guarded by the card's lock. */
struct vgpulab_mig {
	unsigned int slots;
	unsigned int slices;
	bool needs_reset;		/* Ampere: a new mode waits for a reset of the GPU */
	struct mig_profile profiles[VGPULAB_MAX_GI_PROFILES];
	unsigned int profile_count;
	struct mig_profile compute[VGPULAB_MAX_GI_PROFILES][VGPULAB_MAX_CI_PROFILES];
	unsigned int compute_count[VGPULAB_MAX_GI_PROFILES];

	bool mode;
	bool pending;
	struct list_head instances;	/* by rising id */
	unsigned int instance_count;
};

/* Faults of moves, read without a lock. */
struct vgpulab_move_faults {
	unsigned int unsupported;	/* the three hold for devices opened afterwards */
	unsigned int untracked;
	unsigned int no_pre_copy;
	unsigned int refuses_stop_copy;
	unsigned int read_error;	/* after so many bytes */
	unsigned int refuses_header;
	unsigned int checks_early;
	unsigned int refuses_load;
	unsigned int state_mib;
	unsigned int bandwidth_mib;	/* of each stream, a second */
	unsigned int dirty_mib;		/* a second */
	unsigned int sleep_ms;
};

/* Faults that somebody asked for; 0 is none. */
struct vgpulab_faults {
	unsigned int refusal;		/* RM's code */
	bool holds_unbind_lock;
	bool is_busy;
	unsigned int removal_delay_ms;
	bool is_fallen;			/* off the bus */
	unsigned int unregistered;	/* how many more times its VFs come without types */
	bool has_holder;		/* until: */
	unsigned long held_until;	/* jiffies */
	unsigned int wedged_vf;		/* that no VM can use, from 1 */
	unsigned int last_xid;
	unsigned int ecc_errors;
	struct vgpulab_move_faults moves;
};

struct vgpulab_scheduler {
	unsigned int policy;		/* NVML's: 1 best effort, 2 equal share, 3 fixed share */
	unsigned int arr;		/* adaptive round robin: 0 default, 1 off, 2 on */
	unsigned int slice_us;
	unsigned int frequency;
};

/* Who has /dev/nvidiaN open, or who uses a GPU instance. */
struct vgpulab_process {
	struct list_head node;
	struct vgpulab_card *card;
	pid_t pid;
	int gi;				/* -1: the whole GPU */
};

struct vgpulab_overlay;

struct vgpulab_card {
	struct list_head node;
	unsigned int index;		/* minor of /dev/nvidiaN; of no meaning for Intel's */
	int domain;
	u8 bus;
	struct vgpulab_identity identity;
	struct vgpulab_identity functions[VGPULAB_MAX_FUNCTIONS];
	unsigned int function_count;	/* functions[0] is the card itself */
	enum vgpulab_interface interface;
	unsigned int framebuffer_mib;
	unsigned int total_vfs;
	const char *name;
	const char *uuid;
	enum placement_layout layout;
	bool has_heterogeneous;		/* the board has mixed-size mode */
	struct vgpulab_type *types;
	unsigned int type_count;
	struct vgpulab_mig *mig;	/* NULL without */
	struct vgpulab_overlay *overlay;
	struct vgpulab_intel_admin *admin;	/* of Intel's, while its driver has it */

	/* Guards everything below, and the mutable fields of this card's vGPUs. */
	struct mutex lock;
	struct pci_dev *pdev;		/* the PF while is_bound */
	struct list_head vgpus;
	unsigned int vgpu_count;
	struct list_head processes;
	unsigned int usage;		/* processes and open VFIO devices */
	bool is_bound;			/* the PF is on its vendor's driver */
	bool has_unbind_lock;
	bool was_opened;		/* somebody has used it since the driver took it */
	bool is_heterogeneous;		/* mixed-size mode is on */
	struct vgpulab_scheduler scheduler;
	struct vgpulab_faults faults;
	struct rules_gpu rules;		/* a view of the above for the rules: vgpulab_rules_locked() */
	wait_queue_head_t idle;		/* woken when usage falls to 0 */
	struct proc_dir_entry *proc;
};

struct vgpulab_vgpu {
	struct list_head node;
	struct vgpulab_card *card;
	struct pci_dev *pdev;
	const struct vgpulab_type *type;
	unsigned int id;		/* never given twice */
	int gi;				/* of a MIG-backed one, else -1 */
	unsigned int placement;
	bool is_in_use;
	pid_t vm_pid;			/* while in use */
	bool was_used;
	unsigned long closed_at;	/* jiffies, valid if was_used */
	char uuid[UUID_STRING_LEN + 1];	/* of the mdev, empty for vf-profile */
	struct vgpulab_migration *migration;	/* while in use */
	bool has_wrong_placement;	/* vgpu_params ask for a place that it cannot have */
	char params[VGPULAB_MAX_VGPU_PARAMS + 1];
};

struct vgpulab_mdev_type {
	struct mdev_type mdev;
	const struct vgpulab_type *type;
	char sysfs_name[12];
};

struct vgpulab_vfio;

/* Driver data of a PCI function bound to nvidia. */
struct vgpulab_function {
	struct pci_dev *pdev;
	struct vgpulab_card *card;
	/* mdev-pf, mdev-vf */
	struct mdev_parent parent;
	struct vgpulab_mdev_type *mdev_types;
	struct mdev_type **mdev_type_pointers;
	/* vf-profile; vgpu is guarded by card->lock */
	struct vgpulab_vfio *vfio;
	struct vgpulab_vgpu *vgpu;
};

/* What moves with a VM. */
struct vgpulab_guest_state {
	u8 config[PCI_CFG_SPACE_SIZE];
	uuid_t id;			/* another after every reset */
	u64 generation;			/* how many times it was loaded */
};

struct vgpulab_stream;

/* The migration of one VFIO device. */
struct vgpulab_migration {
	struct vfio_device *vdev;
	struct vgpulab_card *card;
	u32 type;			/* what a state must be of to be loaded */
	unsigned int resets;		/* since it was opened */
	struct mutex lock;		/* guards the next two */
	enum vfio_device_mig_state now;
	struct vgpulab_stream *stream;
	struct mutex state_lock;	/* inside every other lock */
	struct vgpulab_guest_state state;
};

/* A VFIO device: of an mdev (vgpu is fixed) or of a VF (vgpu is what the VF holds when opened). */
struct vgpulab_vfio {
	struct vfio_device vdev;
	struct vgpulab_function *function;
	struct vgpulab_vgpu *vgpu;
	struct vgpulab_migration migration;
};

/* card_table.c */
int vgpulab_parse_cards(char *text, struct list_head *cards);
void vgpulab_free_cards(struct list_head *cards);
int vgpulab_publish_cards(struct list_head *cards);
void vgpulab_forget_cards(void);
struct vgpulab_card *vgpulab_card_of(struct pci_dev *pdev);
struct vgpulab_card *vgpulab_card_by_index(unsigned int index);
struct vgpulab_card *vgpulab_card_by_name(const char *address);
struct list_head *vgpulab_cards(void);
const struct vgpulab_type *vgpulab_find_type(const struct vgpulab_card *card, unsigned int id);
const char *vgpulab_interface_name(enum vgpulab_interface interface);
const char *vgpulab_driver_name(const struct vgpulab_card *card);

/* table_lines.c */
bool vgpulab_next_pair(char **line, char **key, char **value);
int vgpulab_parse_address(const char *value, int *domain, u8 *bus, unsigned int *devfn);
int vgpulab_parse_card_keys(struct vgpulab_card *card, char *line);
int vgpulab_parse_companion_keys(struct vgpulab_identity *identity, char *line);
int vgpulab_parse_type_keys(struct vgpulab_type *type, char *line);
int vgpulab_parse_gi(struct vgpulab_card *card, char *line);
int vgpulab_parse_ci(struct vgpulab_card *card, char *line);

/* config_overlay.c */
int vgpulab_check_devices(struct list_head *cards);
int vgpulab_overlay_install(struct vgpulab_card *card);
void vgpulab_overlay_remove(struct vgpulab_card *card);

/* vgpus.c */
bool vgpulab_has_vfs(const struct vgpulab_card *card);
const struct rules_gpu *vgpulab_rules_locked(struct vgpulab_card *card);
unsigned int vgpulab_available(struct vgpulab_card *card, struct pci_dev *pdev,
			       const struct vgpulab_type *type);
unsigned int vgpulab_available_locked(struct vgpulab_card *card, struct pci_dev *pdev,
				      const struct vgpulab_type *type);
struct vgpulab_vgpu *vgpulab_vgpu_create_locked(struct vgpulab_card *card, struct pci_dev *pdev,
						const struct vgpulab_type *type);
void vgpulab_vgpu_destroy_locked(struct vgpulab_vgpu *vgpu);
int vgpulab_vgpu_set_params_locked(struct vgpulab_vgpu *vgpu, const char *text, size_t length);
int vgpulab_vgpu_set_instance_locked(struct vgpulab_vgpu *vgpu, const char *text);
int vgpulab_vgpu_set_placement_locked(struct vgpulab_vgpu *vgpu, const char *text);
bool vgpulab_vms_run_locked(const struct vgpulab_card *card);

/* usage.c */
int vgpulab_card_use_locked(struct vgpulab_card *card);
void vgpulab_card_unuse_locked(struct vgpulab_card *card);
struct vgpulab_process *vgpulab_process_add(struct vgpulab_card *card, int gi);
void vgpulab_process_remove(struct vgpulab_process *process);
bool vgpulab_used_by_others_locked(const struct vgpulab_card *card);
bool vgpulab_is_busy_locked(const struct vgpulab_card *card);

/* mig_instances.c: every int is NVML's return code */
struct vgpulab_gpu_instance *vgpulab_find_instance_locked(const struct vgpulab_card *card, unsigned int id);
void vgpulab_instance_space(const struct vgpulab_mig *mig, const struct vgpulab_gpu_instance *instance,
			    struct mig_space *space);
void vgpulab_gpu_space_locked(const struct vgpulab_mig *mig, struct mig_space *space);
const struct mig_profile *vgpulab_find_profile(const struct mig_space *space, unsigned int id);
bool vgpulab_instance_is_used_locked(const struct vgpulab_card *card, unsigned int id);
void vgpulab_forget_instances_locked(struct vgpulab_card *card);
int vgpulab_create_instance_locked(struct vgpulab_card *card, unsigned int profile, int start,
				   struct vgpulab_gpu_instance **created);
int vgpulab_destroy_instance_locked(struct vgpulab_card *card, unsigned int id);
int vgpulab_create_compute_locked(struct vgpulab_card *card, unsigned int gi, unsigned int profile,
				  int start, struct vgpulab_compute_instance **created);
int vgpulab_destroy_compute_locked(struct vgpulab_card *card, unsigned int gi, unsigned int id);

/* gpu_modes.c: every int is NVML's return code */
int vgpulab_set_mig_mode_locked(struct vgpulab_card *card, bool mode, int *activation);
int vgpulab_reset_locked(struct vgpulab_card *card);
int vgpulab_set_heterogeneous_locked(struct vgpulab_card *card, bool mode, int gi);
int vgpulab_set_scheduler_locked(struct vgpulab_card *card, const struct vgpulab_scheduler *wanted);
void vgpulab_modes_lost_locked(struct vgpulab_card *card);

/* faults.c */
int vgpulab_set_fault_locked(struct vgpulab_card *card, const char *kind, unsigned int value);
unsigned int vgpulab_state_mib(const struct vgpulab_card *card);

/* migration.c */
extern const struct vfio_log_ops vgpulab_log_ops;
void vgpulab_migration_init(struct vgpulab_migration *migration, struct vfio_device *vdev, struct vgpulab_card *card);
void vgpulab_migration_destroy(struct vgpulab_migration *migration);
void vgpulab_migration_begin(struct vgpulab_migration *migration, u32 type);
void vgpulab_migration_end(struct vgpulab_migration *migration);
void vgpulab_migration_reset(struct vgpulab_migration *migration);
struct file *vgpulab_migration_set(struct vgpulab_migration *migration, enum vfio_device_mig_state wanted);
unsigned long vgpulab_migration_size(struct vgpulab_migration *migration);
void vgpulab_migration_show(struct seq_file *file, struct vgpulab_migration *migration);

/* migration_stream.c: under the migration's lock */
struct file *vgpulab_stream_open(struct vgpulab_migration *migration, bool is_leaving);
void vgpulab_stream_finish(struct vgpulab_migration *migration);
int vgpulab_stream_load(struct vgpulab_migration *migration);
u64 vgpulab_stream_left(struct vgpulab_migration *migration);
void vgpulab_stream_kill(struct vgpulab_migration *migration);

/* log_report.c */
int vgpulab_log_report_init(void);
void vgpulab_log_report_exit(void);

/* state_file.c */
int vgpulab_state_show(struct seq_file *file, void *unused);
void vgpulab_print_address(struct seq_file *file, const struct vgpulab_card *card);

/* control_file.c */
extern const struct proc_ops vgpulab_control_operations;

/* pci_functions.c */
extern struct pci_driver vgpulab_pci_driver;

/* intel_functions.c */
extern struct pci_driver vgpulab_intel_pci_driver;

/* intel_admin.c */
struct vgpulab_intel_admin;
struct vgpulab_intel_admin *vgpulab_intel_admin_add(struct vgpulab_card *card, struct pci_dev *pdev);
void vgpulab_intel_admin_enable(struct vgpulab_intel_admin *admin);
void vgpulab_intel_admin_reset(struct vgpulab_intel_admin *admin);
void vgpulab_intel_admin_remove(struct vgpulab_intel_admin *admin);

/* intel_vfio.c */
extern struct pci_driver vgpulab_intel_vfio_driver;

/* mdev_interface.c */
extern struct mdev_driver vgpulab_mdev_driver;
int vgpulab_mdev_add(struct vgpulab_function *function);
void vgpulab_mdev_remove(struct vgpulab_function *function);

/* profile_interface.c */
int vgpulab_profile_add(struct vgpulab_function *function);
void vgpulab_profile_remove(struct vgpulab_function *function);

/* vfio_emulation.c */
struct vgpulab_vfio *vgpulab_vfio_alloc(struct device *dev, struct vgpulab_function *function);
void vgpulab_vfio_announce(struct device *dev, struct vgpulab_card *card);

/* proc_files.c */
extern struct mutex vgpulab_table_lock;
int vgpulab_proc_init(void);
void vgpulab_proc_stop_cards(void);
void vgpulab_proc_exit(void);
int vgpulab_proc_add_card(struct vgpulab_card *card);
void vgpulab_proc_remove_card(struct vgpulab_card *card);

/* character_devices.c */
int vgpulab_character_devices_init(void);
void vgpulab_character_devices_exit(void);
void vgpulab_character_device_add(struct vgpulab_card *card);
void vgpulab_character_device_remove(struct vgpulab_card *card);

/* main.c */
extern unsigned int vgpulab_removal_delay_ms;
extern char *vgpulab_driver_version;

#endif /* VGPULAB_H */
