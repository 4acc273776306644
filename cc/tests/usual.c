/*
 * Answers for each head on standard input (its length in four bytes, the lowest first, and itself) whether it is a usual
 * one: 1 or 0. The first one says how long a head may be.
 */
#include "usual.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    unsigned char size[4];
    size_t head_max = 0;
    while (fread(size, 1, sizeof size, stdin) == sizeof size) {
        const size_t count = size[0] | size[1] << 8 | size[2] << 16 | (size_t)size[3] << 24;
        if (!head_max) {
            head_max = count;
            continue;
        }
        /* To its size: a sanitizer sees what is read beyond. */
        unsigned char *bytes = malloc(count ? count : 1);
        if (!bytes || fread(bytes, 1, count, stdin) != count)
            return 1;
        putchar(cc_usual_head(bytes, count, head_max) ? '1' : '0');
        free(bytes);
    }
    return 0;
}
