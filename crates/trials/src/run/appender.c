/* Appends numbered lines to a file, syncs each, and says its number when the sync has returned; for ever, or as many as asked
   and then waits for its end. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words)
{
	long last = count > 2 ? atol(words[2]) : -1;
	int fd = open(words[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0)
		return 1;
	for (long line = 0; line != last; line++) {
		char text[32];
		int len = snprintf(text, sizeof text, "line %010ld\n", line);
		if (write(fd, text, len) != len || fdatasync(fd) != 0)
			return 2;
		len = snprintf(text, sizeof text, "%ld\n", line);
		if (write(1, text, len) != len)
			return 3;
	}
	for (;;)
		pause();
}
