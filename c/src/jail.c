/* What a process gives up: being looked into, and code that it did not have at its start.
 *
 * Runs in: a service, before it has seen a client's byte. Sees: nothing of others. Never: gives anything back. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

#if defined(__x86_64__)
enum { HAS_FILTER = 1 };
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__) && defined(__ORDER_LITTLE_ENDIAN__)
enum { HAS_FILTER = 1 };
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
enum { HAS_FILTER = 0 };
#define ARCHITECTURE 0
#endif

void allow_dump(bool allow)
{
    prctl(PR_SET_DUMPABLE, (unsigned long)allow, 0UL, 0UL, 0UL);
}

/* Memory cannot become executable any more, in a jail that has a filter already; another cannot have one added. */
int refuse_new_code(void)
{
    if (!HAS_FILTER || prctl(PR_GET_NO_NEW_PRIVS, 0UL, 0UL, 0UL, 0UL) != 1 || prctl(PR_GET_SECCOMP) != SECCOMP_MODE_FILTER)
        return 0;
    /* The rights are the third argument of all three calls; its low half says everything. */
    const unsigned rights = offsetof(struct seccomp_data, args) + 2 * sizeof(uint64_t);
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 0, 6),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pkey_mprotect, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, rights),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}
