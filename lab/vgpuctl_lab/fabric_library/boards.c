/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The partitions of the HGX boards (Fabric Manager user guide, chapter "GPU Partitions"), a bit for each module.
 * An A100 board without its second half keeps the ids of the rest; from H100 on the list is always whole.
 */
#include "fabric.h"

static const struct fabric_partition a100[] = {
	{ 0, 0xffff }, { 1, 0x00ff }, { 2, 0xff00 }, { 3, 0x0f0f }, { 4, 0xf0f0 }, { 5, 0xf00f }, { 6, 0x0ff0 },
	{ 7, 0x000f }, { 8, 0x00f0 }, { 9, 0x0f00 }, { 10, 0xf000 },
	{ 11, 0x0003 }, { 12, 0x000c }, { 13, 0x0030 }, { 14, 0x00c0 },
	{ 15, 0x0300 }, { 16, 0x0c00 }, { 17, 0x3000 }, { 18, 0xc000 },
	{ 19, 0x0001 }, { 20, 0x0002 }, { 21, 0x0004 }, { 22, 0x0008 }, { 23, 0x0010 }, { 24, 0x0020 }, { 25, 0x0040 },
	{ 26, 0x0080 }, { 27, 0x0100 }, { 28, 0x0200 }, { 29, 0x0400 }, { 30, 0x0800 }, { 31, 0x1000 }, { 32, 0x2000 },
	{ 33, 0x4000 }, { 34, 0x8000 },
};
/* Pairs are 1 and 3, 2 and 4, 5 and 7, 6 and 8. */
static const struct fabric_partition h100[] = {
	{ 0, 0xff }, { 1, 0x0f }, { 2, 0xf0 }, { 3, 0x05 }, { 4, 0x0a }, { 5, 0x50 }, { 6, 0xa0 }, { 7, 0x01 }, { 8, 0x02 },
	{ 9, 0x04 }, { 10, 0x08 }, { 11, 0x10 }, { 12, 0x20 }, { 13, 0x40 }, { 14, 0x80 },
};
static const struct fabric_partition b200[] = {
	{ 1, 0xff }, { 2, 0x0f }, { 3, 0xf0 }, { 4, 0x03 }, { 5, 0x0c }, { 6, 0x30 }, { 7, 0xc0 }, { 8, 0x01 }, { 9, 0x02 },
	{ 10, 0x04 }, { 11, 0x08 }, { 12, 0x10 }, { 13, 0x20 }, { 14, 0x40 }, { 15, 0x80 },
};

#define TABLE(of) of, sizeof(of) / sizeof(of[0])

/* By the generation of NVLink. The line rates are nvidia-smi's, as remembered: nobody has seen them in a list. */
static const struct board boards[] = {
	{ 3, TABLE(a100), .names_gpus = true, .needs_gpus = true, .line_rate = 25781 },
	{ 4, TABLE(h100), .line_rate = 26562 },
	{ 5, TABLE(b200), .line_rate = 53125 },
};

const struct board *board_of(unsigned int generation)
{
	for (size_t i = 0; i < sizeof(boards) / sizeof(boards[0]); i++)
		if (boards[i].generation == generation)
			return &boards[i];
	return NULL;
}
