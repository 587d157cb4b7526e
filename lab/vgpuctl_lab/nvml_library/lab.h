/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library's files share. There is no cache of what the kernel module knows: every call reads
 * /proc/vgpulab/state anew, every question of a rule and every change goes to /proc/vgpulab/control. Only the
 * boards, which never change while the host is up, are read once by nvmlInit.
 */
#ifndef LAB_H
#define LAB_H

#include <stdbool.h>
#include <stddef.h>

#include "nvml.h"

#define API __attribute__((visibility("default"))) nvmlReturn_t
#define MAX_GPUS 64
#define MOST_VGPUS 128
#define MIB (1ULL << 20)
#define NO_NUMBER 0xffffffffU
#define IDLE_SM_MHZ 210
#define SM_MHZ 1740
#define MEMORY_MHZ 7251

/* lab_text.c: files of lines `KIND FIRST key=value ... name=REST OF THE LINE`. */
struct lab_line {
	const char *kind, *first, *keys, *name;
	size_t keys_length;
};

struct lab_text {
	char *buffer;
	struct lab_line *lines;
	size_t count;
};

bool lab_text_read(struct lab_text *text, const char *folder, const char *file);
void lab_text_free(struct lab_text *text);
bool lab_word(const struct lab_line *line, const char *key, char *value, size_t size);
unsigned int lab_number(const struct lab_line *line, const char *key, unsigned int missing);
unsigned int lab_numbers(const struct lab_line *line, const char *key, unsigned int *values, unsigned int most);
const struct lab_line *lab_card_line(const struct lab_text *text, const char *address);
const struct lab_line *lab_line_below(const struct lab_text *text, const struct lab_line *card, const char *kind,
				      unsigned int id);
const struct lab_line *lab_next_below(const struct lab_text *text, const struct lab_line *line, const char *kind);
void lab_uuid(char *uuid, const char *seed);

/* lab_control.c */
struct lab_answer {
	char text[2048];
};

nvmlReturn_t lab_control(struct lab_answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));
unsigned int lab_answer_number(const struct lab_answer *answer, const char *key, unsigned int missing);
unsigned int lab_answer_numbers(const struct lab_answer *answer, const char *key, unsigned int *values,
				unsigned int most);

/* session.c */
struct gpu {
	char address[16];		/* 0000:01:00.0 */
	unsigned int domain, bus, slot;
	const struct lab_line *card;	/* of the table that the kernel module was given */
};

/* What a handle points at: a GPU, one of its instances, or a MIG device; NO_NUMBER where there is none. */
struct target {
	unsigned int gpu, gi, ci;
};

/* One look at the kernel module's state, held while a call is answered. */
struct view {
	struct target target;
	const struct gpu *gpu;
	struct lab_text state;
	const struct lab_line *card;	/* the GPU's line of the state */
	const char *function;		/* that looks */
	struct lab_text curves;
	bool has_read_curves;
};

#define VIEW(name) struct view name __attribute__((cleanup(view_close))) = { .function = __func__ }

extern const char *lab_folder;

API nvmlSystemGetDriverVersion(char *version, unsigned int length);
bool lab_is_open(void);
bool lab_is_real(void);
unsigned int lab_gpu_count(void);
const struct gpu *lab_gpu(unsigned int index);
const struct lab_text *lab_boards(void);
void lab_nodes_release(unsigned int gpu);
void lab_nodes_hold(unsigned int gpu);
unsigned int lab_minor(unsigned int gpu);
nvmlReturn_t copy_text(char *to, unsigned int size, const char *from);

/* injected.c: a code that somebody wants a function to return, 0 without. */
void lab_injected_read(bool is_real);
nvmlReturn_t lab_injected(const char *function);

/* For a function that several of NVML's share: it is asked for under the caller's name, too. */
#define INJECTED(call) ({ nvmlReturn_t injected = lab_injected(__func__); injected ? injected : (call); })

/* handles.c */
nvmlDevice_t gpu_handle(unsigned int gpu);
nvmlDevice_t mig_device_handle(struct target target);
nvmlGpuInstance_t gpu_instance_handle(struct target target);
nvmlComputeInstance_t compute_instance_handle(struct target target);
nvmlReturn_t view_gpu(struct view *view, nvmlDevice_t device);
nvmlReturn_t view_device(struct view *view, nvmlDevice_t device);
nvmlReturn_t view_gpu_instance(struct view *view, nvmlGpuInstance_t instance);
nvmlReturn_t view_compute_instance(struct view *view, nvmlComputeInstance_t instance);
nvmlReturn_t view_index(struct view *view, unsigned int gpu);
void view_close(struct view *view);
const struct lab_line *view_next(const struct view *view, const struct lab_line *line, const char *kind);
const struct lab_line *view_gi(const struct view *view, unsigned int id);
const struct lab_line *view_ci(const struct view *view, unsigned int gi, unsigned int id);

/* gpu_instances.c, compute_instances.c, mig_devices.c */
const struct lab_line *gi_profile(const struct gpu *gpu, unsigned int id);
unsigned int gi_profile_number(const struct gpu *gpu, unsigned int id, const char *key);
nvmlReturn_t tell_placements(const struct lab_line *profile, const char *size_key, nvmlPlacement_t *placements,
			     unsigned int *count);
nvmlReturn_t create_instance(const char *command, const char *parent, const struct lab_line *profile,
			     const char *size_key, const nvmlPlacement_t *placement, unsigned int *id);
bool mig_is_enabled(const struct view *view);
bool mig_is_supported(const struct gpu *gpu);
const struct lab_line *ci_profile(const struct gpu *gpu, unsigned int gi_profile, unsigned int id);
void mig_uuid(const struct gpu *gpu, unsigned int gi, unsigned int ci, char *uuid);

/* vgpu_types.c, vgpu_instances.c */
const struct lab_line *find_type(unsigned int id);
const struct lab_line *find_type_of(const struct gpu *gpu, unsigned int id);
unsigned int vgpu_gi(const struct lab_line *vgpu);
bool vgpu_is_active(const struct lab_line *vgpu);
nvmlReturn_t view_vgpu(struct view *view, nvmlVgpuInstance_t instance, const struct lab_line **vgpu);
unsigned int list_active(const struct view *view, unsigned int *instances);
bool vm_option(unsigned int pid, const char *option, const char *key, char *value, size_t size);
nvmlReturn_t tell_ids(const unsigned int *ids, unsigned int found, unsigned int *count, unsigned int *told);

/* vgpu_readings.c */
API nvmlVgpuInstanceGetVmDriverVersion(nvmlVgpuInstance_t instance, char *version, unsigned int size);

/* tuning.c: power_mw is 0 for the board's own, the clocks are 0 where they are not locked. */
struct clocks {
	unsigned int lowest_mhz, highest_mhz;
};

struct tuning {
	unsigned int power_mw, compute_mode, ecc, ecc_pending;
	struct clocks gpu, memory;
};

struct tuning tuning_of(const struct gpu *gpu);
unsigned int tuning_power_mw(const struct gpu *gpu);
void tuning_forget(const struct gpu *gpu);

/* vgpu_scheduler.c */
nvmlReturn_t view_shared_instance(struct view *view, nvmlGpuInstance_t instance, const void *wanted);

/* curves.c */
double lab_now(void);
double view_curves_start(struct view *view);
bool view_curve(struct view *view, const char *target, const char *measure, double *value);
bool view_curve_integral(struct view *view, const char *target, const char *measure, double *value);
bool view_curve_state(struct view *view, const char *target, const char *measure, char *label, size_t size);

/* sensors.c; `_or`: the value to take without a curve. */
unsigned long long nearest(double value);
bool gpu_curve(struct view *view, const char *measure, double *value);
double gpu_curve_or(struct view *view, const char *measure, double missing);
bool gpu_curve_state(struct view *view, const char *measure, char *label, size_t size);
void vgpu_device(const struct lab_line *vgpu, char *device, size_t size);
bool vgpu_curve(struct view *view, const struct lab_line *vgpu, const char *measure, double *value);
double vgpu_curve_or(struct view *view, const struct lab_line *vgpu, const char *measure, double missing);
bool vgpu_curve_state(struct view *view, const struct lab_line *vgpu, const char *measure, char *label, size_t size);
double vgpu_share(struct view *view, const struct lab_line *vgpu, const char *measure);
double vgpu_run_s(struct view *view, const struct lab_line *vgpu);
double gpu_share(struct view *view, const char *measure);
bool instance_curve(struct view *view, unsigned int gi, const char *measure, double *value);
double instance_share(struct view *view, unsigned int gi);
double gpu_power_w(struct view *view);
double gpu_energy_j(struct view *view);
unsigned int gpu_temperature_c(struct view *view);
unsigned int gpu_slowdown_c(struct view *view);
bool gpu_memory_temperature_c(struct view *view, unsigned int *temperature);
unsigned int gpu_clock_events(struct view *view);
unsigned int gpu_sm_clock_mhz(struct view *view);
unsigned int gpu_memory_clock_mhz(struct view *view);
unsigned int gpu_device_id(const struct gpu *gpu);
bool gpu_is_ampere(const struct gpu *gpu);
bool gpu_has_types(const struct gpu *gpu);

/* links.c */
bool links_bytes(struct view *view, const char *direction, unsigned long long *bytes);

#endif /* LAB_H */
