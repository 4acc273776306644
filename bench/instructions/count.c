/* Counts the instructions of a program's first thread between two places at which the program stops itself (SIGSTOP), by
 * having the processor stop after each one: count PROGRAM [ARGUMENT ...] prints the number. Other threads run as ever.
 *
 * Callgrind cannot: it knows no openat2(2), and the machines that tests run on often have no counters to be read.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
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
	fprintf(stderr, "count: the program ended before it stopped twice (status %#x)\n", status);
	exit(1);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: count PROGRAM [ARGUMENT ...]\n");
		return 2;
	}
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
			fail("ptrace");
		execv(argv[1], argv + 1);
		fail(argv[1]);
	}
	next(child);
	if (ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL) < 0)
		fail("ptrace");
	unsigned long count = 0;
	int stops = 0, sent = 0;
	while (stops < 2) {
		if (ptrace(stops ? PTRACE_SINGLESTEP : PTRACE_CONT, child, 0, sent) < 0)
			fail("ptrace");
		int got = next(child);
		stops += got == SIGSTOP;
		count += stops == 1 && got == SIGTRAP;
		sent = got == SIGSTOP || got == SIGTRAP ? 0 : got;
	}
	printf("%lu\n", count);
	if (ptrace(PTRACE_DETACH, child, 0, 0) < 0)
		fail("ptrace");
	int status;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
