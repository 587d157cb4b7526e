/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What GPUs, GPU instances and vGPUs measure: a scenario's curves, else plausible values of the running VMs. The
 * simulated hosts have the same in simulated/machine/sensors.py, and tests/lab/agreement compares them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"

#define IDLE_C 34
#define SLOWDOWN_C 92
#define IDLE_SHARE 0.11
#define UTILIZATION "utilization_ratio"
#define TARGET_SIZE 80
#define FIRST_OF_AMPERE 0x2000
#define SLOWING_EVENTS 0x68	/* slowdown by hardware, and both kinds of heat */

static const char *const with_hbm[] = { "A100", "A30", "H100", "H200", "H20", "H800", "B200", "B300" };

static const struct {
	const char *name;
	unsigned int bit;
} clock_events_known[] = {
	{ "gpu_idle", 0x1 },	{ "applications_clocks", 0x2 }, { "sw_power_cap", 0x4 },    { "hw_slowdown", 0x8 },
	{ "sync_boost", 0x10 }, { "sw_thermal", 0x20 },		{ "hw_thermal", 0x40 },	    { "hw_power_brake", 0x80 },
	{ "display_clocks", 0x100 },
};

/* To the nearest whole number, a half to the even one, as Python rounds. */
unsigned long long nearest(double value)
{
	unsigned long long whole;

	if (value <= 0)
		return 0;
	whole = (unsigned long long)value;
	value -= whole;
	return whole + (value > 0.5 || (value == 0.5 && whole & 1));
}

static double clamp(double share)
{
	return share < 0 ? 0 : share > 1 ? 1 : share;
}

bool gpu_curve(struct view *view, const char *measure, double *value)
{
	char target[TARGET_SIZE];

	snprintf(target, sizeof(target), "gpu:%s", view->gpu->address);
	return view_curve(view, target, measure, value);
}

double gpu_curve_or(struct view *view, const char *measure, double missing)
{
	gpu_curve(view, measure, &missing);
	return missing;
}

bool gpu_curve_state(struct view *view, const char *measure, char *label, size_t size)
{
	char target[TARGET_SIZE];

	snprintf(target, sizeof(target), "gpu:%s", view->gpu->address);
	return view_curve_state(view, target, measure, label, size);
}

/* As curves and the agent name a vGPU: the mdev's UUID, else the VF. */
void vgpu_device(const struct lab_line *vgpu, char *device, size_t size)
{
	if (!lab_word(vgpu, "uuid", device, size) || !strcmp(device, "-"))
		lab_word(vgpu, "function", device, size);
}

static void vgpu_target(const struct lab_line *vgpu, char *target)
{
	char device[64];

	vgpu_device(vgpu, device, sizeof(device));
	snprintf(target, TARGET_SIZE, "vgpu:%s", device);
}

bool vgpu_curve(struct view *view, const struct lab_line *vgpu, const char *measure, double *value)
{
	char target[TARGET_SIZE];

	vgpu_target(vgpu, target);
	return view_curve(view, target, measure, value);
}

double vgpu_curve_or(struct view *view, const struct lab_line *vgpu, const char *measure, double missing)
{
	vgpu_curve(view, vgpu, measure, &missing);
	return missing;
}

bool vgpu_curve_state(struct view *view, const struct lab_line *vgpu, const char *measure, char *label, size_t size)
{
	char target[TARGET_SIZE];

	vgpu_target(vgpu, target);
	return view_curve_state(view, target, measure, label, size);
}

static unsigned int crc32_of(const char *text)
{
	unsigned int value = ~0U;

	for (; *text; text++) {
		value ^= (unsigned char)*text;
		for (int bit = 0; bit < 8; bit++)
			value = value >> 1 ^ (value & 1 ? 0xedb88320U : 0);
	}
	return ~value;
}

/* The compute time that a vGPU would take of an empty GPU: 10 to 49 per cent, by its VM's UUID. */
static double wish(const struct lab_line *vgpu)
{
	char uuid[64] = "";

	if (!vgpu_is_active(vgpu))
		return 0;
	vm_option(lab_number(vgpu, "vm_pid", 0), "-uuid", "", uuid, sizeof(uuid));
	return (10 + crc32_of(uuid) % 40) / 100.0;
}

/* The compute time of a vGPU without a curve: its wish, cut where all wishes are more than what is left. */
static double unplayed_share(struct view *view, const struct lab_line *vgpu)
{
	const struct lab_line *other = NULL;
	double left = 1, wishes = 0, played;

	while ((other = view_next(view, other, "vgpu"))) {
		if (vgpu_gi(other) != vgpu_gi(vgpu))
			continue;
		if (vgpu_curve(view, other, UTILIZATION, &played))
			left -= played;
		else
			wishes += wish(other);
	}
	left = left < 0 ? 0 : left;
	return wishes > 0 ? wish(vgpu) * (left < wishes ? left / wishes : 1) : 0;
}

/* How busy a vGPU keeps an engine of the whole GPU; the video engines idle unless a scenario says otherwise. */
double vgpu_share(struct view *view, const struct lab_line *vgpu, const char *measure)
{
	double share;

	if (!vgpu_is_active(vgpu))
		return 0;
	if (vgpu_curve(view, vgpu, measure, &share))
		return clamp(share);
	if (!strcmp(measure, "memory_activity_ratio"))
		return vgpu_share(view, vgpu, UTILIZATION) / 2;
	return strcmp(measure, UTILIZATION) ? 0 : unplayed_share(view, vgpu);
}

double gpu_share(struct view *view, const char *measure)
{
	const struct lab_line *vgpu = NULL;
	double share;

	if (gpu_curve(view, measure, &share))
		return clamp(share);
	share = 0;
	while ((vgpu = view_next(view, vgpu, "vgpu")))
		share += vgpu_share(view, vgpu, measure);
	return clamp(share);
}

bool instance_curve(struct view *view, unsigned int gi, const char *measure, double *value)
{
	char target[TARGET_SIZE];

	snprintf(target, sizeof(target), "gpu_instance:%s/%u", view->gpu->address, gi);
	return view_curve(view, target, measure, value);
}

/* How busy a GPU instance is, as a part of itself. */
double instance_share(struct view *view, unsigned int gi)
{
	const struct lab_line *vgpu = NULL;
	double share;

	if (instance_curve(view, gi, UTILIZATION, &share))
		return clamp(share);
	share = 0;
	while ((vgpu = view_next(view, vgpu, "vgpu")))
		if (vgpu_gi(vgpu) == gi)
			share += vgpu_share(view, vgpu, UTILIZATION);
	return clamp(share);
}

double gpu_power_w(struct view *view)
{
	double most = lab_number(view->gpu->card, "power", 0), limit = tuning_power_mw(view->gpu) / 1000.0, drawn;

	if (!most)
		return 0;
	drawn = most * (IDLE_SHARE + (1 - IDLE_SHARE) * gpu_share(view, UTILIZATION));
	return gpu_curve_or(view, "power_watts", drawn < limit ? drawn : limit);
}

static double uptime_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* Since the host's start: of its curve, before that at the mean of idle and full power, so that it never falls. */
double gpu_energy_j(struct view *view)
{
	double mean_w = lab_number(view->gpu->card, "power", 0) * 0.5, told, played, before;
	char target[TARGET_SIZE];

	if (gpu_curve(view, "energy_joules", &told))
		return told;
	snprintf(target, sizeof(target), "gpu:%s", view->gpu->address);
	if (!view_curve_integral(view, target, "power_watts", &played))
		return mean_w * uptime_s();
	before = view_curves_start(view) - (lab_now() - uptime_s());
	return mean_w * (before > 0 ? before : 0) + played;
}

/* Seconds since a process began, by its start in clock ticks since the boot: field 22 of its stat file. */
static double age_s(unsigned int pid)
{
	char path[64], text[1024], *at;
	unsigned long long ticks;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	/* The name stands in brackets and may hold anything; it is field 2. */
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			  &ticks) != 1)
		return 0;
	return uptime_s() - (double)ticks / sysconf(_SC_CLK_TCK);
}

/* How long a vGPU has had the compute engine since its VM's start. */
double vgpu_run_s(struct view *view, const struct lab_line *vgpu)
{
	char target[TARGET_SIZE];
	double played, age;

	if (!vgpu_is_active(vgpu))
		return 0;
	vgpu_target(vgpu, target);
	if (view_curve_integral(view, target, UTILIZATION, &played))
		return played;
	age = age_s(lab_number(vgpu, "vm_pid", 0));
	return wish(vgpu) * (age > 0 ? age : 0);
}

unsigned int gpu_temperature_c(struct view *view)
{
	return nearest(gpu_curve_or(view, "temperature_celsius", IDLE_C + gpu_share(view, UTILIZATION) * 45));
}

unsigned int gpu_slowdown_c(struct view *view)
{
	double told;

	return gpu_curve(view, "slowdown_temperature_celsius", &told) && told ? nearest(told) : SLOWDOWN_C;
}

/* False on a board whose memory has no sensor: one without HBM. */
bool gpu_memory_temperature_c(struct view *view, unsigned int *temperature)
{
	double told;
	bool has_sensor = gpu_curve(view, "memory_temperature_celsius", &told);

	*temperature = has_sensor ? nearest(told) : gpu_temperature_c(view) + 8;
	for (size_t i = 0; i < sizeof(with_hbm) / sizeof(with_hbm[0]); i++)
		has_sensor = has_sensor || strstr(view->gpu->card->name, with_hbm[i]);
	return has_sensor;
}

/* Idle, power at its limit, heat; a scenario sets and clears each. */
unsigned int gpu_clock_events(struct view *view)
{
	unsigned int bits = gpu_share(view, UTILIZATION) > 0 ? 0 : 0x1, limit_mw = tuning_power_mw(view->gpu);

	if (limit_mw && gpu_power_w(view) * 1000 >= limit_mw)
		bits |= 0x4;
	if (gpu_temperature_c(view) >= gpu_slowdown_c(view))
		bits |= 0x8 | 0x40;
	for (size_t i = 0; i < sizeof(clock_events_known) / sizeof(clock_events_known[0]); i++) {
		char measure[64];
		double told;

		snprintf(measure, sizeof(measure), "clock_event/%s", clock_events_known[i].name);
		if (gpu_curve(view, measure, &told))
			bits = told >= 0.5 ? bits | clock_events_known[i].bit : bits & ~clock_events_known[i].bit;
	}
	return bits;
}

unsigned int gpu_sm_clock_mhz(struct view *view)
{
	struct tuning tuning = tuning_of(view->gpu);
	unsigned int highest;
	double told;

	if (gpu_curve(view, "sm_clock_hertz", &told))
		return nearest(told / 1e6);
	highest = tuning.gpu.highest_mhz ? tuning.gpu.highest_mhz : SM_MHZ;
	if (gpu_clock_events(view) & SLOWING_EVENTS)
		return highest < SM_MHZ / 2 ? highest : SM_MHZ / 2;
	return gpu_share(view, UTILIZATION) > 0 ? highest : tuning.gpu.highest_mhz ? tuning.gpu.lowest_mhz : IDLE_SM_MHZ;
}

unsigned int gpu_memory_clock_mhz(struct view *view)
{
	unsigned int highest = tuning_of(view->gpu).memory.highest_mhz;

	return nearest(gpu_curve_or(view, "memory_clock_hertz", (highest ? highest : MEMORY_MHZ) * 1e6) / 1e6);
}

/* The device ids of Ampere begin at 0x2000; those before are lower, those after higher. */
unsigned int gpu_device_id(const struct gpu *gpu)
{
	char pair[16];

	lab_word(gpu->card, "device", pair, sizeof(pair));
	return strchr(pair, ':') ? strtoul(strchr(pair, ':') + 1, NULL, 16) : 0;
}

bool gpu_is_ampere(const struct gpu *gpu)
{
	return gpu_device_id(gpu) >= FIRST_OF_AMPERE;
}

bool gpu_has_types(const struct gpu *gpu)
{
	return lab_next_below(lab_boards(), gpu->card, "type") != NULL;
}
