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
#include <linux/vfio.h>
#include <linux/wait.h>

/* Status codes of NVIDIA's resource manager (RM), as its log lines print them. */
#define RM_OK				0x00
#define RM_INSUFFICIENT_RESOURCES	0x1a
#define RM_INVALID_OPERATION		0x38
#define RM_INVALID_STATE		0x40
#define RM_NOT_SUPPORTED		0x56
#define RM_OBJECT_NOT_FOUND		0x57
#define RM_BUSY_RETRY			0x66

#define VGPULAB_MAX_TYPES		128	/* per GPU, as in NVIDIA's manager */
#define VGPULAB_MAX_VGPU_PARAMS		1024
#define VGPULAB_MAX_FUNCTIONS		8	/* of one card, companions included */
#define VGPULAB_MAX_CARDS		64
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
	unsigned int framebuffer_mib;
	unsigned int max_instances;
	unsigned int heads;
	unsigned int frame_rate_limit;
	unsigned int width;
	unsigned int height;
	u16 guest_device;
	u16 guest_subsystem;
	const char *name;
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
	struct vgpulab_type *types;
	unsigned int type_count;
	struct vgpulab_overlay *overlay;

	/* Guards everything below, and the mutable fields of this card's vGPUs. */
	struct mutex lock;
	struct list_head vgpus;
	unsigned int vgpu_count;
	unsigned int usage;		/* open /dev/nvidiaN and open VFIO devices */
	bool is_bound;			/* the PF is on its vendor's driver */
	bool has_unbind_lock;
	wait_queue_head_t idle;		/* woken when usage falls to 0 */
	struct proc_dir_entry *proc;
};

struct vgpulab_vgpu {
	struct list_head node;
	struct vgpulab_card *card;
	struct pci_dev *pdev;
	const struct vgpulab_type *type;
	unsigned int placement;
	bool is_in_use;
	bool was_used;
	unsigned long closed_at;	/* jiffies, valid if was_used */
	char uuid[UUID_STRING_LEN + 1];	/* of the mdev, empty for vf-profile */
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

/* A VFIO device: of an mdev (vgpu is fixed) or of a VF (vgpu is what the VF holds when opened). */
struct vgpulab_vfio {
	struct vfio_device vdev;
	struct vgpulab_function *function;
	struct vgpulab_vgpu *vgpu;
	struct mutex config_lock;
	u8 config[PCI_CFG_SPACE_SIZE];
};

/* card_table.c */
int vgpulab_parse_cards(char *text, struct list_head *cards);
void vgpulab_free_cards(struct list_head *cards);
int vgpulab_publish_cards(struct list_head *cards);
void vgpulab_forget_cards(void);
struct vgpulab_card *vgpulab_card_of(struct pci_dev *pdev);
struct vgpulab_card *vgpulab_card_by_index(unsigned int index);
struct list_head *vgpulab_cards(void);
const struct vgpulab_type *vgpulab_find_type(const struct vgpulab_card *card, unsigned int id);
const char *vgpulab_interface_name(enum vgpulab_interface interface);
const char *vgpulab_driver_name(const struct vgpulab_card *card);

/* config_overlay.c */
int vgpulab_check_devices(struct list_head *cards);
int vgpulab_overlay_install(struct vgpulab_card *card);
void vgpulab_overlay_remove(struct vgpulab_card *card);

/* vgpu_rules.c */
unsigned int vgpulab_available(struct vgpulab_card *card, struct pci_dev *pdev,
			       const struct vgpulab_type *type);
unsigned int vgpulab_available_locked(struct vgpulab_card *card, struct pci_dev *pdev,
				      const struct vgpulab_type *type);
struct vgpulab_vgpu *vgpulab_vgpu_create_locked(struct vgpulab_card *card, struct pci_dev *pdev,
						const struct vgpulab_type *type);
void vgpulab_vgpu_destroy_locked(struct vgpulab_vgpu *vgpu);
int vgpulab_vgpu_set_params_locked(struct vgpulab_vgpu *vgpu, const char *text, size_t length);
int vgpulab_card_use_locked(struct vgpulab_card *card);
void vgpulab_card_unuse_locked(struct vgpulab_card *card);

/* pci_functions.c */
extern struct pci_driver vgpulab_pci_driver;

/* intel_functions.c */
extern struct pci_driver vgpulab_intel_pci_driver;

/* mdev_interface.c */
extern struct mdev_driver vgpulab_mdev_driver;
int vgpulab_mdev_add(struct vgpulab_function *function);
void vgpulab_mdev_remove(struct vgpulab_function *function);

/* profile_interface.c */
int vgpulab_profile_add(struct vgpulab_function *function);
void vgpulab_profile_remove(struct vgpulab_function *function);

/* vfio_emulation.c */
struct vgpulab_vfio *vgpulab_vfio_alloc(struct device *dev, struct vgpulab_function *function);

/* proc_files.c */
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
