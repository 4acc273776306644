/*
 * Whether a request head is a usual one: one that the gate would pass whatever `checks` says.
 *
 * Runs in: a guarded server. Sees: a client's bytes. Never: allocates, keeps state, or decides what the gate would
 * refuse: a head that is not usual goes to the gate, which decides.
 *
 * SECURITY: a connection that stays with its server between two requests passes no gate in between. So this takes less
 * than the crates `request` and `conditioning` do with their strictest setting; `crates/gate/tests/usual.rs` compares.
 */
#ifndef USUAL_H
#define USUAL_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the `count` bytes begin with a usual head of at most `head_max` bytes, as a whole. */
bool cc_usual_head(const unsigned char *bytes, size_t count, size_t head_max);

#endif
