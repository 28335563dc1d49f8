/* Processes that write one file, each its own places and lines, and sync it, for ever. The arguments are the file, the number of processes, and a seed. A process tells after a sync what every one of
   them had written when that began: a packet of words, the number of the last write of each place and of the last line that each appended. Now and then one ends, or is killed, and another one takes
   its turn. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES_MAX = 8, PLACES = 3, PLACE_BYTES = 400, STRIDE = 512, LINES_AT = 16384, LINE_BYTES = 64 };

static int processes;
static const char *path;
/* What was written, as far as the calls have returned: of each process its places, then its lines. */
static _Atomic uint64_t (*written)[PLACES + 1];

static void demand(int what, const char *text)
{
	if (what)
		return;
	perror(text);
	kill(getppid(), SIGTERM);
	_exit(1);
}
#define DEMAND(what) demand(what, #what)

static void write_place(int file, int process, int place, unsigned random)
{
	uint64_t words[PLACE_BYTES / 8], number = atomic_load(&written[process][place]) + 1;
	off_t at = (off_t)(place * processes + process) * STRIDE;
	for (int word = 0; word < PLACE_BYTES / 8; word++)
		words[word] = number;
	if (random % 4 == 0) {
		DEMAND(lseek(file, at, SEEK_SET) == at);
		DEMAND(write(file, words, PLACE_BYTES) == PLACE_BYTES);
	} else {
		DEMAND(pwrite(file, words, PLACE_BYTES, at) == PLACE_BYTES);
	}
	atomic_store(&written[process][place], number);
}

static void append_line(int appending, int process)
{
	uint64_t line[LINE_BYTES / 8] = {process + 1, atomic_load(&written[process][PLACES]) + 1};
	DEMAND(write(appending, line, sizeof line) == sizeof line);
	atomic_store(&written[process][PLACES], line[1]);
}

static void sync_and_tell(int file, unsigned random)
{
	uint64_t told[PROCESSES_MAX * (PLACES + 1)];
	size_t bytes = processes * sizeof *written;
	for (size_t word = 0; word < bytes / 8; word++)
		told[word] = atomic_load(&written[0][word]);
	DEMAND((random % 4 == 0 ? fsync(file) : fdatasync(file)) == 0);
	DEMAND(write(1, told, bytes) == (ssize_t)bytes);
}

static void work(int process, unsigned random)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int file = open(path, O_RDWR), appending = open(path, O_WRONLY | O_APPEND);
	DEMAND(file >= 0 && appending >= 0);
	for (;;) {
		switch (rand_r(&random) % 8) {
		case 0:
		case 1:
			append_line(appending, process);
			break;
		case 2:
			if (rand_r(&random) % 50 == 0)
				DEMAND(fchmod(file, 0600 | rand_r(&random) % 0100) == 0);
			break;
		default:
			write_place(file, process, rand_r(&random) % PLACES, rand_r(&random));
		}
		if (rand_r(&random) % 3 == 0)
			sync_and_tell(rand_r(&random) % 4 == 0 ? appending : file, rand_r(&random));
		switch (rand_r(&random) % 5000) {
		case 0:
			_exit(0);
		case 1:
			raise(SIGKILL);
		}
	}
}

int main(int count, char **arguments)
{
	if (count != 4)
		return 2;
	path = arguments[1];
	processes = atoi(arguments[2]);
	unsigned random = strtoul(arguments[3], NULL, 10);
	if (processes < 1 || processes > PROCESSES_MAX)
		return 2;
	written = mmap(NULL, PROCESSES_MAX * sizeof *written, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int file = open(path, O_RDWR | O_CREAT, 0600);
	DEMAND(written != MAP_FAILED && file >= 0 && ftruncate(file, LINES_AT) == 0 && fsync(file) == 0);
	pid_t pids[PROCESSES_MAX] = {0};
	for (;;) {
		for (int process = 0; process < processes; process++) {
			unsigned seed = rand_r(&random);
			if (pids[process] == 0 && (pids[process] = fork()) == 0)
				work(process, seed);
		}
		pid_t ended = wait(NULL);
		for (int process = 0; process < processes; process++)
			if (pids[process] == ended)
				pids[process] = 0;
	}
}
