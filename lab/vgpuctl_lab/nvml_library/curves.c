/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Curves of measures over time that a scenario plays on the host (docs/lab.md): /etc/vgpulab/curves, of a test the
 * file `curves` beside those of the module. The simulated hosts read the same file (simulated/machine/curves.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lab.h"

#define CURVES_FOLDER "/etc/vgpulab"

double lab_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* Read once for a call of NVML's. */
static const struct lab_text *curves_of(struct view *view)
{
	if (!view->has_read_curves) {
		view->has_read_curves = true;
		lab_text_read(&view->curves, lab_is_real() ? CURVES_FOLDER : lab_folder, "curves");
	}
	return &view->curves;
}

double view_curves_start(struct view *view)
{
	const struct lab_text *text = curves_of(view);

	for (size_t i = 0; i < text->count; i++)
		if (!strcmp(text->lines[i].kind, "start"))
			return strtod(text->lines[i].first, NULL);
	return 0;
}

/* The curve's points; NULL without such a curve. */
static const char *find_curve(struct view *view, const char *target, const char *measure, double *repeat)
{
	const struct lab_text *text = curves_of(view);

	for (size_t i = 0; i < text->count; i++) {
		const struct lab_line *line = &text->lines[i];
		char *end;

		if (strcmp(line->kind, target) || strcmp(line->first, measure))
			continue;
		*repeat = strtod(line->keys, &end);
		return end + strspn(end, " ");
	}
	return NULL;
}

/* Take the next `TIME:VALUE`; NULL at the end. */
static const char *next_point(const char *text, double *time, double *value)
{
	char *end;

	*time = strtod(text, &end);
	if (end == text || *end != ':')
		return NULL;
	*value = strtod(end + 1, &end);
	return end + strspn(end, " ");
}

/* Linear between the points, constant before the first and after the last one. */
static double value_at(const char *points, double at)
{
	double time, value, left = 0, low = 0;
	bool is_first = true;

	while ((points = next_point(points, &time, &value))) {
		if (time > at)
			return is_first ? value : low + (value - low) * (at - left) / (time - left);
		left = time;
		low = value;
		is_first = false;
	}
	return low;
}

bool view_curve(struct view *view, const char *target, const char *measure, double *value)
{
	double repeat, elapsed = lab_now() - view_curves_start(view);
	const char *points = find_curve(view, target, measure, &repeat);

	if (!points)
		return false;
	if (repeat > 0) {
		elapsed -= repeat * (long long)(elapsed / repeat);
		elapsed += elapsed < 0 ? repeat : 0;
	}
	*value = value_at(points, elapsed);
	return true;
}

static double integral_once(const char *points, double end)
{
	double left = 0, low = value_at(points, 0), sum = 0, time, value;

	for (const char *at = points; (at = next_point(at, &time, &value)) && time < end;) {
		if (time <= 0)
			continue;
		sum += (low + value) / 2 * (time - left);
		left = time;
		low = value;
	}
	return sum + (low + value_at(points, end)) / 2 * (end - left);
}

/* Value times seconds since the start: what a counter has counted of it. */
bool view_curve_integral(struct view *view, const char *target, const char *measure, double *value)
{
	double repeat, elapsed = lab_now() - view_curves_start(view);
	const char *points = find_curve(view, target, measure, &repeat);
	long long rounds;

	if (!points)
		return false;
	*value = 0;
	if (elapsed <= 0)
		return true;
	rounds = repeat > 0 && elapsed > repeat ? (long long)(elapsed / repeat) : 0;
	if (rounds)
		*value = rounds * integral_once(points, repeat);
	*value += integral_once(points, elapsed - rounds * repeat);
	return true;
}

/* The label of the first curve `MEASURE/LABEL` that is at a half or above: the state that a scenario plays. */
bool view_curve_state(struct view *view, const char *target, const char *measure, char *label, size_t size)
{
	const struct lab_text *text = curves_of(view);
	size_t length = strlen(measure);

	for (size_t i = 0; i < text->count; i++) {
		const struct lab_line *line = &text->lines[i];
		double value;

		if (strcmp(line->kind, target) || strncmp(line->first, measure, length) || line->first[length] != '/')
			continue;
		if (view_curve(view, target, line->first, &value) && value >= 0.5) {
			snprintf(label, size, "%s", line->first + length + 1);
			return true;
		}
	}
	return false;
}
