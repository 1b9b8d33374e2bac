/* SPDX-License-Identifier: BSD-3-Clause */
#include "picture.h"
#include <cairo/cairo.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { EDGE = 512, LEFT = 70, TOP = 48, BOTTOM = 64, BAR = 24, GAP = 28, RIGHT = 92, FONT = 16 };

/* Black, violet, red, orange, pale yellow: brightness rises evenly, so that a grey print shows the same. */
static const double colours[][3] = {{0, 0, 4}, {87, 16, 110}, {188, 55, 84}, {249, 142, 9}, {252, 255, 164}};

static uint32_t colour(double x)
{
    double at = fmin(fmax(x, 0), 0.9999) * 4;
    int below = (int)at;
    uint32_t rgb = 0;
    for (int c = 0; c < 3; c++)
        rgb = rgb << 8 | (uint32_t)(colours[below][c] + (at - below) * (colours[below + 1][c] - colours[below][c]));
    return rgb;
}

/* The cubic through four neighbours, between the middle ones (Catmull and Rom). */
static double cubic(const double p[4], double x)
{
    return p[1] + 0.5 * x * (p[2] - p[0] + x * (2 * p[0] - 5 * p[1] + 4 * p[2] - p[3] + x * (3 * (p[1] - p[2]) + p[3] - p[0])));
}

static double between(const double *values, int n, double i, double j)
{
    double row[4], column[4];
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) row[b] = values[((int)i + a + n - 1) % n * n + ((int)j + b + n - 1) % n];
        column[a] = cubic(row, j - floor(j));
    }
    return cubic(column, i - floor(i));
}

/* Writes text. `part` is the part of its width that lies left of (x, y). */
static void write_text(cairo_t *on, double x, double y, double part, const char *text)
{
    cairo_text_extents_t size;
    cairo_text_extents(on, text, &size);
    cairo_move_to(on, x - part * size.x_advance, y);
    cairo_show_text(on, text);
}

static void line(cairo_t *on, double x, double y, double dx, double dy)
{
    cairo_move_to(on, x, y);
    cairo_rel_line_to(on, dx, dy);
    cairo_stroke(on);
}

static void draw_axes(cairo_t *on)
{
    static const char *const ticks[] = {"0", "π/2", "π", "3π/2", "2π"};
    for (int tick = 0; tick <= 4; tick++) {
        double at = EDGE * tick / 4.0;
        line(on, LEFT + at, TOP + EDGE, 0, 6);
        write_text(on, LEFT + at, TOP + EDGE + 24, 0.5, ticks[tick]);
        line(on, LEFT, TOP + EDGE - at, -6, 0);
        write_text(on, LEFT - 11, TOP + EDGE - at + FONT / 3.0, 1, ticks[tick]);
    }
    write_text(on, LEFT + EDGE / 2.0, TOP + EDGE + 50, 0.5, "x");
    write_text(on, 16, TOP + EDGE / 2.0, 0.5, "y");
    cairo_rectangle(on, LEFT, TOP, EDGE, EDGE);
    cairo_stroke(on);
}

/* The bar goes from 0 to the greatest value, with ticks at round numbers. */
static void draw_bar(cairo_t *on, double greatest)
{
    double x = LEFT + EDGE + GAP, power = pow(10, floor(log10(greatest))), share = greatest / power;
    double step = power * (share < 2 ? 0.25 : share < 5 ? 0.5 : 1);
    for (double value = 0; value <= greatest; value += step) {
        char number[32];
        double y = TOP + EDGE * (1 - value / greatest);
        snprintf(number, sizeof number, "%.4g", value);
        line(on, x + BAR, y, 6, 0);
        write_text(on, x + BAR + 11, y + FONT / 3.0, 0, number);
    }
    cairo_rectangle(on, x, TOP, BAR, EDGE);
    cairo_stroke(on);
}

int picture_write(const char *path, const char *title, const double *values, int n)
{
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, LEFT + EDGE + GAP + BAR + RIGHT, TOP + EDGE + BOTTOM);
    cairo_t *on = cairo_create(surface);
    cairo_set_source_rgb(on, 1, 1, 1);
    cairo_paint(on);
    cairo_surface_flush(surface);
    unsigned char *pixels = cairo_image_surface_get_data(surface);
    double greatest = 1e-300;
    for (int i = 0; i < n * n; i++) greatest = fmax(greatest, values[i]);
    for (int y = 0; y < EDGE && pixels != NULL; y++) {
        uint32_t *row = (uint32_t *)(pixels + (size_t)(TOP + y) * cairo_image_surface_get_stride(surface));
        /* y grows upwards. */
        for (int x = 0; x < EDGE; x++)
            row[LEFT + x] = colour(between(values, n, (double)x * n / EDGE, (double)(EDGE - 1 - y) * n / EDGE) / greatest);
        for (int x = 0; x < BAR; x++) row[LEFT + EDGE + GAP + x] = colour(1 - (double)y / EDGE);
    }
    cairo_surface_mark_dirty(surface);
    cairo_set_source_rgb(on, 0, 0, 0);
    cairo_set_line_width(on, 1);
    cairo_select_font_face(on, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(on, FONT);
    draw_axes(on);
    draw_bar(on, greatest);
    cairo_set_font_size(on, 18);
    write_text(on, LEFT, TOP - 18, 0, title);
    int failed = cairo_surface_write_to_png(surface, path) != CAIRO_STATUS_SUCCESS;
    cairo_destroy(on);
    cairo_surface_destroy(surface);
    return failed;
}
