/* Texts of clients, decoded. */
#ifndef BULKHEAD_TEXT_H
#define BULKHEAD_TEXT_H

#include "internal.h"

/* Decodes `%20` (and `+`, if it stands for a blank) of a text into `to`, where bytes that are no UTF-8 become `?`; its length.
 * There are never more bytes than before, and `to` may be the text itself. */
size_t text_decode(const char *text, size_t length, bool plus_is_blank, char *to);
/* Takes the characters out that are special to HTML and to shells; what is left. */
size_t text_filter(char *text, size_t length);

#endif
