// SPDX-License-Identifier: GPL-2.0-only
/*
 * The state of a device as a stream of bytes, which leaves it or enters another.
 *
 * The stream is a header with the type, as much payload as the card's faults ask for, and a trailer with
 * what the guest wrote. While the guest runs (PRE_COPY) the payload is read, and again what it dirties.
 */
#include <linux/anon_inodes.h>
#include <linux/compat.h>
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "vgpulab.h"

#define MIB		(1024ULL * 1024)
#define MAGIC		"VGPULAB"
#define VERSION		1

struct header {
	char magic[8];
	u32 version;
	u32 type;
};

struct trailer {
	char magic[8];
	u64 payload;
	struct vgpulab_guest_state state;
};

struct vgpulab_stream {
	struct file *file;
	struct vgpulab_card *card;
	struct mutex lock;
	bool is_dead;
	u64 passed;		/* bytes, of the header, the payload and the trailer */
	u64 payload;		/* of those, the payload's */
	struct header header;
	struct trailer trailer;
	u32 type;		/* of the device that the stream enters */

	/* Of a stream that leaves a device: bytes to come, and since when `dirty` is counted. */
	bool is_final;
	u64 initial;
	u64 dirty;
	u64 trailer_left;
	ktime_t since;

	/* Of one that enters: the last bytes so far, which are the trailer if nothing follows. */
	u64 held;
};

static const struct vgpulab_move_faults *faults_of(const struct vgpulab_card *card)
{
	return &card->faults.moves;
}

/* Bytes of payload of a whole state. */
static u64 state_bytes(const struct vgpulab_card *card)
{
	return vgpulab_state_mib(card) * MIB;
}

/* Take the time that so many bytes need, where the bandwidth is limited. */
static int pace(const struct vgpulab_stream *stream, size_t count)
{
	unsigned int limit = READ_ONCE(faults_of(stream->card)->bandwidth_mib);

	return limit && msleep_interruptible(div64_u64(count * 1000ULL, limit * MIB)) ? -EINTR : 0;
}

/* Count what the guest has dirtied since this was asked last; it dirties no more than there is. */
static void count_dirty(struct vgpulab_stream *stream)
{
	ktime_t now = ktime_get();
	u64 rate = READ_ONCE(faults_of(stream->card)->dirty_mib) * MIB;
	u64 more = div64_u64(rate * ktime_ms_delta(now, stream->since), 1000);

	if (stream->is_final)
		return;
	stream->since = now;
	stream->dirty = min(stream->dirty + more, state_bytes(stream->card) - stream->initial);
}

static u64 header_left(const struct vgpulab_stream *stream)
{
	return stream->passed < sizeof(struct header) ? sizeof(struct header) - stream->passed : 0;
}

/* The next bytes of the stream: how many, 0 at its end, ENOMSG where it goes on later. */
static ssize_t next_bytes(struct vgpulab_stream *stream, char __user *buffer, size_t count)
{
	u64 *payload = stream->initial ? &stream->initial : &stream->dirty;
	const u8 *source = NULL;

	count_dirty(stream);
	if (header_left(stream)) {
		count = min_t(u64, count, header_left(stream));
		source = (u8 *)&stream->header + stream->passed;
	} else if (*payload) {
		count = min_t(u64, count, *payload);
	} else if (stream->is_final) {
		count = min_t(u64, count, stream->trailer_left);
		source = (u8 *)&stream->trailer + sizeof(struct trailer) - stream->trailer_left;
	} else {
		return -ENOMSG;
	}
	if (source ? copy_to_user(buffer, source, count) : clear_user(buffer, count))
		return -EFAULT;
	if (!source) {
		*payload -= count;
		stream->payload += count;
		stream->trailer.payload = stream->payload;
	} else if (stream->passed >= sizeof(struct header)) {
		stream->trailer_left -= count;
	}
	stream->passed += count;
	return count;
}

static ssize_t stream_read(struct file *file, char __user *buffer, size_t count, loff_t *position)
{
	struct vgpulab_stream *stream = file->private_data;
	u64 most = READ_ONCE(faults_of(stream->card)->read_error);
	ssize_t ret;

	mutex_lock(&stream->lock);
	if (stream->is_dead) {
		ret = -ENODEV;
	} else if (most && stream->passed >= most) {
		pr_err("NVRM: vGPU migration: reading the state failed after %llu bytes\n", stream->passed);
		ret = -EIO;
	} else {
		ret = next_bytes(stream, buffer, most ? min_t(u64, count, most - stream->passed) : count);
	}
	mutex_unlock(&stream->lock);
	return ret > 0 ? pace(stream, ret) ?: ret : ret;
}

/* 0 if a state with this header can be loaded. */
static int check_header(const struct vgpulab_stream *stream)
{
	const struct header *header = &stream->header;

	if (memcmp(header->magic, MAGIC, sizeof(header->magic)) || header->version != VERSION) {
		pr_err("NVRM: vGPU migration: this is not a state of a vGPU\n");
		return -EINVAL;
	}
	if (header->type != stream->type) {
		pr_err("NVRM: vGPU migration: source type 0x%x, destination 0x%x\n", header->type, stream->type);
		return -EINVAL;
	}
	return 0;
}

/* The header is complete. What is wrong with it is noticed now only where a fault asks for that. */
static int header_arrived(const struct vgpulab_stream *stream)
{
	const struct vgpulab_move_faults *faults = faults_of(stream->card);

	if (READ_ONCE(faults->refuses_header)) {
		pr_err("NVRM: vGPU migration: the state's header was refused\n");
		return -EINVAL;
	}
	return READ_ONCE(faults->checks_early) ? check_header(stream) : 0;
}

/* Keep the last bytes of what follows the header. */
static void keep_tail(struct vgpulab_stream *stream, const u8 *bytes, size_t count)
{
	u8 *tail = (u8 *)&stream->trailer;
	size_t kept = min_t(size_t, stream->held, sizeof(struct trailer) - min(count, sizeof(struct trailer)));

	memmove(tail, tail + stream->held - kept, kept);
	if (count > sizeof(struct trailer)) {
		bytes += count - sizeof(struct trailer);
		count = sizeof(struct trailer);
	}
	memcpy(tail + kept, bytes, count);
	stream->held = kept + count;
}

static ssize_t take_bytes(struct vgpulab_stream *stream, const char __user *buffer, size_t count)
{
	u8 bytes[512];
	size_t done = 0;
	int ret;

	while (done < count) {
		bool is_header = header_left(stream);
		size_t part = min_t(size_t, count - done, header_left(stream) ?: sizeof(bytes));

		if (copy_from_user(bytes, buffer + done, part))
			return -EFAULT;
		if (is_header)
			memcpy((u8 *)&stream->header + stream->passed, bytes, part);
		else
			keep_tail(stream, bytes, part);
		stream->passed += part;
		done += part;
		if (is_header && !header_left(stream)) {
			ret = header_arrived(stream);
			if (ret)
				return ret;
		}
	}
	return count;
}

static ssize_t stream_write(struct file *file, const char __user *buffer, size_t count, loff_t *position)
{
	struct vgpulab_stream *stream = file->private_data;
	ssize_t ret;

	mutex_lock(&stream->lock);
	ret = stream->is_dead ? -ENODEV : take_bytes(stream, buffer, count);
	mutex_unlock(&stream->lock);
	return ret > 0 ? pace(stream, ret) ?: ret : ret;
}

static long stream_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	const unsigned long minimum = offsetofend(struct vfio_precopy_info, dirty_bytes);
	struct vgpulab_stream *stream = file->private_data;
	struct vfio_precopy_info info;
	int ret = 0;

	if (command != VFIO_MIG_GET_PRECOPY_INFO)
		return -ENOTTY;
	if (copy_from_user(&info, (void __user *)argument, minimum))
		return -EFAULT;
	if (info.argsz < minimum)
		return -EINVAL;
	mutex_lock(&stream->lock);
	if (stream->is_dead) {
		ret = -ENODEV;
	} else if (stream->is_final) {
		ret = -EINVAL;
	} else {
		count_dirty(stream);
		info.flags = 0;
		info.initial_bytes = header_left(stream) + stream->initial;
		info.dirty_bytes = stream->dirty;
	}
	mutex_unlock(&stream->lock);
	if (ret)
		return ret;
	return copy_to_user((void __user *)argument, &info, minimum) ? -EFAULT : 0;
}

static int stream_release(struct inode *inode, struct file *file)
{
	struct vgpulab_stream *stream = file->private_data;

	mutex_destroy(&stream->lock);
	kfree(stream);
	return 0;
}

static const struct file_operations leaving = {
	.owner = THIS_MODULE,
	.read = stream_read,
	.unlocked_ioctl = stream_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = stream_release,
};

static const struct file_operations entering = {
	.owner = THIS_MODULE,
	.write = stream_write,
	.release = stream_release,
};

/* Open a stream; the caller's file is given to user space, ours lives until vgpulab_stream_kill(). */
struct file *vgpulab_stream_open(struct vgpulab_migration *migration, bool is_leaving)
{
	struct vgpulab_stream *stream = kzalloc(sizeof(*stream), GFP_KERNEL);

	if (!stream)
		return ERR_PTR(-ENOMEM);
	stream->file = anon_inode_getfile("vgpulab-migration", is_leaving ? &leaving : &entering, stream,
					  is_leaving ? O_RDONLY : O_WRONLY);
	if (IS_ERR(stream->file)) {
		struct file *error = stream->file;

		kfree(stream);
		return error;
	}
	stream_open(file_inode(stream->file), stream->file);
	mutex_init(&stream->lock);
	stream->card = migration->card;
	stream->type = migration->type;
	if (is_leaving) {
		memcpy(stream->header.magic, MAGIC, sizeof(stream->header.magic));
		stream->header.version = VERSION;
		stream->header.type = migration->type;
		stream->initial = state_bytes(migration->card);
		stream->trailer_left = sizeof(struct trailer);
		stream->since = ktime_get();
	}
	migration->stream = stream;
	return get_file(stream->file);
}

void vgpulab_stream_kill(struct vgpulab_migration *migration)
{
	struct vgpulab_stream *stream = migration->stream;

	if (!stream)
		return;
	mutex_lock(&stream->lock);
	stream->is_dead = true;
	mutex_unlock(&stream->lock);
	migration->stream = NULL;
	fput(stream->file);
}

/* The guest stands: what it wrote is the stream's end. */
void vgpulab_stream_finish(struct vgpulab_migration *migration)
{
	struct vgpulab_stream *stream = migration->stream;

	mutex_lock(&stream->lock);
	count_dirty(stream);
	stream->is_final = true;
	memcpy(stream->trailer.magic, MAGIC, sizeof(stream->trailer.magic));
	mutex_lock(&migration->state_lock);
	stream->trailer.state = migration->state;
	mutex_unlock(&migration->state_lock);
	mutex_unlock(&stream->lock);
}

/* Everything has arrived. Only here a wrong type is noticed, as long as nobody asks for more (README.md). */
int vgpulab_stream_load(struct vgpulab_migration *migration)
{
	struct vgpulab_stream *stream = migration->stream;
	u64 overhead = sizeof(struct header) + sizeof(struct trailer);
	int ret = check_header(stream);

	if (ret)
		return ret;
	if (READ_ONCE(faults_of(migration->card)->refuses_load)) {
		pr_err("NVRM: vGPU migration: %s: the state was refused\n", dev_name(migration->vdev->dev));
		return -EINVAL;
	}
	if (stream->held < sizeof(struct trailer) || memcmp(stream->trailer.magic, MAGIC, sizeof(stream->trailer.magic)) ||
	    stream->passed != stream->trailer.payload + overhead) {
		pr_err("NVRM: vGPU migration: %s: the state is incomplete\n", dev_name(migration->vdev->dev));
		return -EINVAL;
	}
	mutex_lock(&migration->state_lock);
	migration->state = stream->trailer.state;
	migration->state.generation++;
	mutex_unlock(&migration->state_lock);
	dev_info(migration->vdev->dev, "vGPU migration: loaded %llu bytes\n", stream->passed);
	return 0;
}

/* How many bytes would still be read if the guest stopped now: of a whole state while none leaves. */
u64 vgpulab_stream_left(struct vgpulab_migration *migration)
{
	struct vgpulab_stream *stream = migration->stream;
	u64 size;

	if (!stream || !(stream->file->f_mode & FMODE_READ))
		return sizeof(struct header) + state_bytes(migration->card) + sizeof(struct trailer);
	mutex_lock(&stream->lock);
	count_dirty(stream);
	size = header_left(stream) + stream->initial + stream->dirty + stream->trailer_left;
	mutex_unlock(&stream->lock);
	return size;
}
