// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/driver/nvidia/ as NVIDIA's driver has it (version, gpus/<BDF>/{information,unbindLock}),
 * and the table of /proc/vgpulab/cards.
 */
#include <linux/capability.h>
#include <linux/module.h>
#include <linux/mm.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "vgpulab.h"

#define CARD_TABLE_MAX	(512 * 1024)
/* Drivers before this branch print question marks for a UUID they do not know; this one leaves the line out. */
#define FIRST_WITHOUT_UUID	590
#define UNKNOWN_UUID	"GPU-????" "????-????-????-????-????????????"

static struct proc_dir_entry *lab_folder;
static struct proc_dir_entry *driver_folder;
static struct proc_dir_entry *gpus_folder;

/* Serialises writers of the card table, and readers against the one writer that succeeds. */
DEFINE_MUTEX(vgpulab_table_lock);
static char *table_text;

static int cards_show(struct seq_file *file, void *unused)
{
	mutex_lock(&vgpulab_table_lock);
	seq_puts(file, table_text ?: "");
	mutex_unlock(&vgpulab_table_lock);
	return 0;
}

static int cards_open(struct inode *inode, struct file *file)
{
	return single_open(file, cards_show, NULL);
}

/* Parse, check and publish the table; *text becomes the published copy. */
static int take_cards(char **text)
{
	LIST_HEAD(cards);
	char *scratch;
	int ret;

	if (table_text)
		return -EBUSY;
	scratch = kvmalloc(strlen(*text) + 1, GFP_KERNEL);
	if (!scratch)
		return -ENOMEM;
	strcpy(scratch, *text);
	ret = vgpulab_parse_cards(scratch, &cards);
	kvfree(scratch);
	if (!ret)
		ret = vgpulab_check_devices(&cards);
	if (!ret)
		ret = vgpulab_publish_cards(&cards);
	if (ret) {
		vgpulab_free_cards(&cards);
		return ret;
	}
	table_text = *text;
	*text = NULL;
	return 0;
}

static ssize_t cards_write(struct file *file, const char __user *buffer, size_t count, loff_t *position)
{
	struct vgpulab_card *card;
	char *text;
	int ret;

	if (*position)
		return -EFBIG;	/* the table comes in one write, and once */
	if (!count || count > CARD_TABLE_MAX)
		return -EINVAL;
	text = kvmalloc(count + 1, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	if (copy_from_user(text, buffer, count)) {
		kvfree(text);
		return -EFAULT;
	}
	text[count] = '\0';

	mutex_lock(&vgpulab_table_lock);
	ret = take_cards(&text);
	if (!ret) {
		list_for_each_entry(card, vgpulab_cards(), node) {
			ret = vgpulab_overlay_install(card);
			if (ret)
				break;
		}
	}
	mutex_unlock(&vgpulab_table_lock);
	kvfree(text);
	if (ret)
		return ret;
	*position += count;
	return count;
}

static const struct proc_ops cards_operations = {
	.proc_open = cards_open,
	.proc_read = seq_read,
	.proc_write = cards_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int version_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  (vgpulab)\n",
		   vgpulab_driver_version);
	return 0;
}

static unsigned int driver_branch(void)
{
	unsigned int branch = 0;

	return sscanf(vgpulab_driver_version, "%u", &branch) == 1 ? branch : 0;
}

static int information_show(struct seq_file *file, void *unused)
{
	struct vgpulab_card *card = file->private;

	seq_printf(file, "Model: \t\t %s\n", card->name);
	/* The driver asks a GPU for it when somebody uses the GPU for the first time. */
	if (card->uuid && card->was_opened)
		seq_printf(file, "GPU UUID: \t %s\n", card->uuid);
	else if (card->uuid && driver_branch() < FIRST_WITHOUT_UUID)
		seq_printf(file, "GPU UUID: \t %s\n", UNKNOWN_UUID);
	seq_puts(file, "Bus Type: \t PCIe\nBus Location: \t ");
	vgpulab_print_address(file, card);
	seq_printf(file, "\nDevice Minor: \t %u\n", card->index);
	return 0;
}

static int unbind_lock_show(struct seq_file *file, void *unused)
{
	struct vgpulab_card *card = file->private;

	mutex_lock(&card->lock);
	seq_printf(file, "%d\n", card->has_unbind_lock);
	mutex_unlock(&card->lock);
	return 0;
}

static int unbind_lock_open(struct inode *inode, struct file *file)
{
	return single_open(file, unbind_lock_show, pde_data(inode));
}

/* A refused lock is no error of the write: the writer reads the value back. */
static ssize_t unbind_lock_write(struct file *file, const char __user *buffer, size_t count,
				 loff_t *position)
{
	struct vgpulab_card *card = pde_data(file_inode(file));
	unsigned int value;
	int ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	ret = kstrtouint_from_user(buffer, count, 0, &value);
	if (ret)
		return ret;
	mutex_lock(&card->lock);
	if (!value) {
		if (card->has_unbind_lock)
			pr_info("NVRM: UnbindLock released\n");
		card->has_unbind_lock = false;
	} else if (card->usage || vgpulab_is_busy_locked(card) || card->faults.holds_unbind_lock ||
		   card->faults.is_fallen) {
		pr_info("NVRM: Could not acquire UnbindLock\n");
	} else if (!card->has_unbind_lock) {
		card->has_unbind_lock = true;
		pr_info("NVRM: UnbindLock acquired\n");
	}
	mutex_unlock(&card->lock);
	return count;
}

static const struct proc_ops unbind_lock_operations = {
	.proc_open = unbind_lock_open,
	.proc_read = seq_read,
	.proc_write = unbind_lock_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

/* The files of one GPU, there while its PF is on the driver. */
int vgpulab_proc_add_card(struct vgpulab_card *card)
{
	char name[sizeof("0000:00:00.0")];

	snprintf(name, sizeof(name), "%04x:%02x:%02x.%u", card->domain & 0xffff, card->bus,
		 PCI_SLOT(card->identity.devfn), PCI_FUNC(card->identity.devfn) & 7);
	card->proc = proc_mkdir(name, gpus_folder);
	if (!card->proc)
		return -ENOMEM;
	if (!proc_create_single_data("information", 0444, card->proc, information_show, card) ||
	    !proc_create_data("unbindLock", 0644, card->proc, &unbind_lock_operations, card)) {
		proc_remove(card->proc);
		card->proc = NULL;
		return -ENOMEM;
	}
	return 0;
}

void vgpulab_proc_remove_card(struct vgpulab_card *card)
{
	proc_remove(card->proc);
	card->proc = NULL;
}

int vgpulab_proc_init(void)
{
	driver_folder = proc_mkdir("driver/nvidia", NULL);
	if (!driver_folder)
		return -ENOMEM;
	gpus_folder = proc_mkdir("gpus", driver_folder);
	lab_folder = proc_mkdir("vgpulab", NULL);
	if (!gpus_folder || !lab_folder ||
	    !proc_create_single("version", 0444, driver_folder, version_show) ||
	    !proc_create_single("state", 0444, lab_folder, vgpulab_state_show) ||
	    !proc_create("control", 0666, lab_folder, &vgpulab_control_operations) ||
	    !proc_create("cards", 0644, lab_folder, &cards_operations)) {
		vgpulab_proc_stop_cards();
		vgpulab_proc_exit();
		return -ENOMEM;
	}
	return 0;
}

/* proc_remove() waits for readers and writers inside, so a table being taken is finished first. */
void vgpulab_proc_stop_cards(void)
{
	proc_remove(lab_folder);
	lab_folder = NULL;
}

void vgpulab_proc_exit(void)
{
	proc_remove(driver_folder);
	driver_folder = NULL;
	kvfree(table_text);
	table_text = NULL;
}
