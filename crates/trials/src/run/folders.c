/* Makes, syncs and removes files with one name until syncs of their folder end without the kernel, does something to the folder, and syncs it once more. From some
   instant on the kernel answers each fsync with an error, so an fsync that returns 0 has not come to it. The argument says what is done to the folder: `nothing`, or else
   what changes it. Prints how the last sync before that ended, and the last one of all. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

static int life(int folder, int rest)
{
	int fd = open("journal", O_RDWR | O_CREAT, 0600);
	if (fd < 0 || write(fd, "journal", 7) != 7 || fsync(fd) || fsync(folder) || close(fd))
		return -1;
	return rest ? 0 : unlink("journal");
}

/* The kernel answers each fsync with EIO. */
static int refuse_syncs(void)
{
	struct sock_filter lines[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof lines / sizeof *lines, lines};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* Whether that can be done here does not matter. */
static int done(int folder, const char *what)
{
	int flags = FS_NODUMP_FL;
	struct fsxattr attributes = {0};
	if (!strcmp(what, "nothing"))
		return 0;
	if (!strcmp(what, "flags"))
		(void)ioctl(folder, FS_IOC_SETFLAGS, &flags);
	else if (!strcmp(what, "call"))
		(void)syscall(SYS_ioctl, folder, FS_IOC_SETFLAGS, &flags);
	else if (!strcmp(what, "attributes"))
		(void)ioctl(folder, FS_IOC_FSSETXATTR, &attributes);
	else if (!strcmp(what, "times"))
		(void)futimens(folder, NULL);
	else if (!strcmp(what, "attribute"))
		(void)fsetxattr(folder, "user.word", "word", 4, 0);
	else if (!strcmp(what, "name"))
		(void)mkdir("another", 0700);
	else
		return -1;
	return 0;
}

int main(int count, char **words)
{
	int folder = open(".", O_RDONLY | O_DIRECTORY);
	for (int turn = 0; turn < 8; turn++)
		if (life(folder, turn == 7))
			return 1;
	if (count < 2 || refuse_syncs())
		return 2;
	int before = fsync(folder);
	if (done(folder, words[1]))
		return 3;
	int after = fsync(folder);
	printf("%s %s\n", before ? "kernel" : "pool", after ? "kernel" : "pool");
	return 0;
}
