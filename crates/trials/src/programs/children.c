/* Writes a held file in a child that no library sees begin: by the kernel's own calls, or between vfork and exec. The arguments say how the child begins, and who syncs what it wrote: `parent`,
   `child`, or `loud`, where each write is a sync. Says of each place of the file which number it has for certain, and waits for its end. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACE_BYTES = 1000, STRIDE = 1024, HOLD = 8, STACK_BYTES = 256 << 10 };

static void demand(int what, const char *text)
{
	if (what)
		return;
	dprintf(2, "not so: %s\n", text);
	_exit(1);
}
#define DEMAND(what) demand(what, #what)

static int loud, child_syncs, file;

static void put(int fd, int place, uint64_t number)
{
	uint64_t words[PLACE_BYTES / 8];
	for (int word = 0; word < PLACE_BYTES / 8; word++)
		words[word] = number;
	DEMAND(pwrite(fd, words, PLACE_BYTES, place * STRIDE) == PLACE_BYTES);
}

static void sync_unless_loud(void)
{
	DEMAND(loud || fdatasync(file) == 0);
}

static void tell(int place, uint64_t number)
{
	char text[64];
	int len = snprintf(text, sizeof text, "%d %lu\n", place, (unsigned long)number);
	DEMAND(write(1, text, len) == len);
}

/* So often that the file comes to be held. */
static void hold(void)
{
	for (int turn = 0; turn < HOLD; turn++) {
		for (int place = 0; place < 3; place++)
			put(file, place, turn);
		sync_unless_loud();
	}
}

static void act(void)
{
	put(file, 1, 100);
	put(file, 2, 100);
	if (child_syncs)
		sync_unless_loud();
}

static int act_and_end(void *nothing)
{
	(void)nothing;
	act();
	_exit(0);
}

static pid_t cloned(int flags)
{
	if (flags & CLONE_VM) {
		char *stack = malloc(STACK_BYTES);
		DEMAND(stack != NULL);
		return clone(act_and_end, stack + STACK_BYTES, flags | SIGCHLD, NULL);
	}
	pid_t child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
	if (child == 0)
		act_and_end(NULL);
	return child;
}

static pid_t between_vfork_and(int exec)
{
	pid_t child = vfork();
	if (child == 0) {
		act();
		if (exec)
			execl("/bin/true", "true", (char *)NULL);
		_exit(exec);
	}
	return child;
}

static struct flock whole(void)
{
	return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

/* Whether another process finds the file locked. */
static int is_locked(void)
{
	pid_t other = fork();
	if (other == 0) {
		struct flock lock = whole();
		_exit(fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 7 : 8);
	}
	int status = 0;
	DEMAND(other > 0 && waitpid(other, &status, 0) == other);
	return WEXITSTATUS(status) == 7;
}

static pid_t begun(const char *how)
{
	static const struct {
		const char *name;
		int flags;
	} clones[] = {{"clone", 0}, {"clone-files", CLONE_FILES}, {"clone-memory", CLONE_VM}, {"clone-both", CLONE_VM | CLONE_FILES}};
	for (size_t which = 0; which < sizeof clones / sizeof *clones; which++)
		if (!strcmp(how, clones[which].name))
			return cloned(clones[which].flags);
	return between_vfork_and(!strcmp(how, "vfork-exec"));
}

static void in_child(const char *how)
{
	file = open("file", O_RDWR | O_CREAT | (loud ? O_SYNC : 0), 0600);
	DEMAND(file > 2);
	struct flock lock = whole();
	DEMAND(fcntl(file, F_SETLK, &lock) == 0);
	hold();
	pid_t child = begun(how);
	int status = 1;
	DEMAND(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	DEMAND(is_locked());
	if (!child_syncs)
		sync_unless_loud();
	tell(1, 100);
	tell(2, 100);
	put(file, 0, 200);
	sync_unless_loud();
	tell(0, 200);
	for (int turn = 0; turn < HOLD; turn++) {
		put(file, 2, 300 + turn);
		sync_unless_loud();
	}
	tell(2, 300 + HOLD - 1);
}

static atomic_int number_of_child, child_may_write, child_wrote, child_may_end;

static void wait_for(atomic_int *what)
{
	while (!atomic_load(what))
		sched_yield();
}

/* Opens the file by the number that the child has something else by. */
static void *beside_child(void *nothing)
{
	wait_for(&number_of_child);
	file = open("file", O_RDWR | O_CREAT | (loud ? O_SYNC : 0), 0600);
	DEMAND(file == number_of_child);
	hold();
	child_may_write = 1;
	wait_for(&child_wrote);
	put(file, 2, 200);
	sync_unless_loud();
	tell(2, 200);
	tell(0, HOLD - 1);
	tell(1, HOLD - 1);
	child_may_end = 1;
	return nothing;
}

static void other_file_in_child(void)
{
	pthread_t thread;
	DEMAND(pthread_create(&thread, NULL, beside_child, NULL) == 0);
	pid_t child = vfork();
	if (child == 0) {
		int other = open("other", O_RDWR | O_CREAT, 0600);
		number_of_child = other;
		wait_for(&child_may_write);
		put(other, 0, 666);
		if (child_syncs)
			DEMAND(fdatasync(other) == 0);
		put(other, 1, 666);
		child_wrote = 1;
		wait_for(&child_may_end);
		_exit(0);
	}
	int status = 1;
	DEMAND(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	pthread_join(thread, NULL);
}

int main(int count, char **words)
{
	alarm(100);
	if (count != 3)
		return 2;
	loud = !strcmp(words[2], "loud");
	child_syncs = !strcmp(words[2], "child");
	if (!strcmp(words[1], "vfork-other"))
		other_file_in_child();
	else
		in_child(words[1]);
	DEMAND(write(1, "end\n", 4) == 4);
	for (;;)
		pause();
}
