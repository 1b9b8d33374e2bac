/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PICTURE_H
#define PICTURE_H

/* Writes n x n values, [x][y], of a square of side 2 pi in which the flow repeats, as a PNG with a title,
   axes and a colour bar. Returns 0 on success. */
int picture_write(const char *path, const char *title, const double *values, int n);

#endif
