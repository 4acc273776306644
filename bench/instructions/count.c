/* Counts the instructions of a program's first thread between places at which the program stops itself (SIGSTOP), by having
 * the processor stop after each one: count TIMES PROGRAM [ARGUMENT ...] prints TIMES numbers, a line each, of what is between
 * the first place and the second, the third and the fourth, and so on. Other threads run
 * as ever, on the same core: so they take turns in the same way each time, and a stop costs least.
 *
 * Callgrind cannot: it knows no openat2(2), and the machines that tests run on often have no counters to be read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* What the process waits for next. */
static int next(pid_t child)
{
	int status;
	while (waitpid(child, &status, __WALL) < 0)
		if (errno != EINTR)
			fail("waitpid");
	if (WIFSTOPPED(status))
		return WSTOPSIG(status);
	fprintf(stderr, "count: the program ended before it stopped as often as it should (status %#x)\n", status);
	exit(1);
}

/* Waits until a second begins: what a program does once a second is then done before what is counted, which may take seconds. */
static void wait_for_second(void)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	until.tv_nsec = 0;
	while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: count TIMES PROGRAM [ARGUMENT ...]\n");
		return 2;
	}
	long times = atol(argv[1]);
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof one, &one) < 0)
		fail("sched_setaffinity");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
			fail("ptrace");
		execv(argv[2], argv + 2);
		fail(argv[2]);
	}
	next(child);
	if (ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL) < 0)
		fail("ptrace");
	unsigned long count = 0;
	int sent = 0;
	for (long stops = 0; stops < 2 * times;) {
		int counts = stops % 2;
		if (ptrace(counts ? PTRACE_SINGLESTEP : PTRACE_CONT, child, 0, sent) < 0)
			fail("ptrace");
		int got = next(child);
		count += counts && got == SIGTRAP;
		sent = got == SIGSTOP || got == SIGTRAP ? 0 : got;
		if (got != SIGSTOP)
			continue;
		if (counts)
			printf("%lu\n", count);
		count = 0;
		if (++stops < 2 * times && counts)
			wait_for_second();
	}
	if (ptrace(PTRACE_DETACH, child, 0, 0) < 0)
		fail("ptrace");
	int status;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
