/* A program that others wrote, as far as the server knows: what its parts have in common.
 *
 * Runs in: the jail of a service or a filter. Sees: requests of the test. Never: uses anything of Bulkhead's.
 */
#ifndef ATTACK_H
#define ATTACK_H

#include <stddef.h>

/* What an attempt is given: the client's connection (-1 without), a port at which the test listens, and two numbers
 * that tell attempts of one function apart. */
struct way {
    int connection;
    int port;
    long first, second;
};

/* An attempt returns 0 if it got what it is after, or the error that was in its way. */
struct attempt {
    const char *name;
    int (*run)(const struct way *);
    /* Whether it is made on a client's connection, which may be of no use afterwards. */
    int on_connection;
    long first, second;
};

/* Each ends with one without a name. */
extern const struct attempt NETWORK[], CONNECTION[], MEMORY[], PROCESS[];

/* The path of this program, as it was started. */
extern const char *own_path;

/* What was got, for people. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* 0 or errno. */
int failed(long result);
/* Makes the attempt in a child that executes this program again; 0 or the error. */
int after_exec(const char *name, int connection, int port);

/* Leaves something behind that is to outlive the server; never returns if it could not. */
int stay(const char *how);

#endif
