/*
 * Makes 600 files, one after the other, writes and syncs each ten times and removes it, with a rest behind every 200; then prints how
 * many removed files its parent has open, as soon as that is none, or after ten seconds.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int removed_files_of_parent(void)
{
	char folder[64], path[512], target[4096];
	int count = 0;
	snprintf(folder, sizeof folder, "/proc/%d/fd", getppid());
	DIR *open_files = opendir(folder);
	if (!open_files)
		return -1;
	for (struct dirent *one; (one = readdir(open_files));) {
		snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
		ssize_t len = readlink(path, target, sizeof target - 1);
		if (len > 0) {
			target[len] = 0;
			count += strstr(target, " (deleted)") != NULL && strstr(target, "/file") != NULL;
		}
	}
	closedir(open_files);
	return count;
}

static int rest(void)
{
	int count = removed_files_of_parent();
	for (int tries = 0; count && tries < 100; tries++) {
		usleep(100000);
		count = removed_files_of_parent();
	}
	return count;
}

int main(void)
{
	char name[32], bytes[100];
	memset(bytes, 'x', sizeof bytes);
	for (int number = 0; number < 600; number++) {
		snprintf(name, sizeof name, "file%d", number);
		int fd = open(name, O_WRONLY | O_CREAT, 0600);
		if (fd < 0)
			return 1;
		for (int turn = 0; turn < 10; turn++)
			if (pwrite(fd, bytes, sizeof bytes, turn * sizeof bytes) != sizeof bytes || fdatasync(fd))
				return 2;
		if (close(fd) || unlink(name))
			return 3;
		if (number % 200 == 199)
			rest();
	}
	printf("%d\n", rest());
	return 0;
}
