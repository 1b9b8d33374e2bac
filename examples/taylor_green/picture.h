#ifndef PICTURE_H
#define PICTURE_H

/* Writes n x n values as a PNG of about 512 pixels an edge, from black at 0 to white at the greatest. 0 when written. */
int picture_write(const char *path, const double *values, int n);

#endif
