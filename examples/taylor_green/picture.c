#include "picture.h"
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>

/* Black, violet, red, orange, pale yellow: brightness rises evenly, so that grey print shows the same. */
static const double colours[][3] = {{0, 0, 4}, {87, 16, 110}, {188, 55, 84}, {249, 142, 9}, {252, 255, 164}};

static void paint(double x, png_bytep pixel)
{
    double at = fmin(fmax(x, 0), 0.9999) * 4;
    int below = (int)at;
    for (int c = 0; c < 3; c++)
        pixel[c] = (png_byte)(colours[below][c] + (at - below) * (colours[below + 1][c] - colours[below][c]));
}

/* Between grid points, bilinearly; the flow is periodic. */
static double between(const double *values, int n, double i, double j)
{
    int i0 = (int)i % n, j0 = (int)j % n, i1 = (i0 + 1) % n, j1 = (j0 + 1) % n;
    double a = i - floor(i), b = j - floor(j);
    return (1 - a) * ((1 - b) * values[i0 * n + j0] + b * values[i0 * n + j1]) +
           a * ((1 - b) * values[i1 * n + j0] + b * values[i1 * n + j1]);
}

int picture_write(const char *path, const double *values, int n)
{
    int zoom = n < 512 ? 512 / n : 1, edge = n * zoom;
    double greatest = 1e-300;
    for (int i = 0; i < n * n; i++) greatest = fmax(greatest, values[i]);
    png_bytep pixels = malloc((size_t)edge * edge * 3);
    if (pixels == NULL) return 1;
    for (int i = 0; i < edge; i++)
        for (int j = 0; j < edge; j++)
            paint(between(values, n, (double)i / zoom, (double)j / zoom) / greatest,
                  pixels + ((size_t)i * edge + j) * 3);
    png_image image = {.version = PNG_IMAGE_VERSION, .width = edge, .height = edge, .format = PNG_FORMAT_RGB};
    int written = png_image_write_to_file(&image, path, 0, pixels, 0, NULL);
    free(pixels);
    return !written;
}
