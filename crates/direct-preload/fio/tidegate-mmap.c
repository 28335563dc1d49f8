/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * An I/O engine of fio for direct mappings: it loads and stores in a mapping of the file, and syncs
 * by msync. Options:
 *
 *   dax=1      pages of persistent memory, by MAP_SHARED_VALIDATE | MAP_DAX; the job fails where the
 *              file cannot be mapped so. 0, the default: MAP_SHARED
 *   dax_pin=1  pins them by mlock, up to what programs may pin (mount --pin-max)
 *
 * A sync of a job is msync of all that is mapped, sync_file_range= that of what was written since
 * the last one; sync=sync and sync=dsync are an msync after each write. No program of Tidegate links
 * to this: fio loads it. It is built with the headers of fio, whose licence is GPL-2.0, which
 * therefore holds for what is built. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <fio.h>
#include <optgroup.h>

#include "tidegate-mappings.h"

/* How often a mapping is tried of a file that is open elsewhere, with a pause of 10 ms in between: the
 * kernel tells a mount later that a file was closed, and fio has closed it a moment ago. */
#define BUSY_TRIES 200

struct options {
	void *first; /* fio takes an offset of 0 for none */
	unsigned int dax;
	unsigned int pin;
};

static struct fio_option options[] = {
	{
		.name = "dax",
		.lname = "Direct mapping",
		.type = FIO_OPT_BOOL,
		.off1 = offsetof(struct options, dax),
		.help = "Map pages of persistent memory (MAP_DAX)",
		.def = "0",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_MMAP,
	},
	{
		.name = "dax_pin",
		.lname = "Pinned direct mapping",
		.type = FIO_OPT_BOOL,
		.off1 = offsetof(struct options, pin),
		.help = "Pin the mapped pages (mlock); needs dax=1",
		.def = "0",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_MMAP,
	},
	{
		.name = NULL,
	},
};

/* What is mapped of a file. */
struct mapping {
	char *base;
	uint64_t from; /* where in the file */
	size_t len;
};

static int refuse(const char *why)
{
	log_err("tidegate-mmap: %s\n", why);
	return 1;
}

static int init(struct thread_data *td)
{
	const struct options *asked = td->eo;

	if (asked->dax > 1 || asked->pin > 1)
		return refuse("dax and dax_pin are 0 or 1");
	if (asked->pin && !asked->dax)
		return refuse("dax_pin=1 pins pages of persistent memory: add dax=1");
	if (td->o.odirect)
		return refuse("direct=1 is for reads and writes, and a mapping has none: leave it out");
	if (td_trim(td))
		return refuse("a mapping is not trimmed: choose another rw=");
	return 0;
}

/* What a direct mapping that was refused needs. */
static const char *remedy(int error)
{
	switch (error) {
	case EOPNOTSUPP:
		return "start fio by `tidegate run` on a file of its mount, or leave dax=1 out";
	case EBUSY:
		return "the file is open elsewhere, or was mapped without dax=1: give each job a file of its own";
	case ENOMEM:
		return "the pool has too little room for it: choose a smaller size=, or a larger pool";
	default:
		return "the page of Tidegate on mappings says what can be mapped";
	}
}

static int fail(struct thread_data *td, const struct fio_file *f, const char *what, int error)
{
	const struct options *asked = td->eo;

	log_err("tidegate-mmap: %s: %s: %s%s%s\n", f->file_name, what, strerror(error), asked->dax ? "; " : "",
		asked->dax ? remedy(error) : "");
	td_verror(td, error, what);
	return 1;
}

/* Whether what the job asks for is there to be mapped. */
static int is_there(struct thread_data *td, const struct fio_file *f, const struct mapping *m)
{
	const struct options *asked = td->eo;
	uint64_t pages = (m->len + page_mask) & ~(uint64_t)page_mask;
	struct stat about;

	if (fstat(f->fd, &about)) {
		fail(td, f, "stat", errno);
		return 0;
	}
	if (!S_ISREG(about.st_mode) || !m->len || m->from + m->len > (uint64_t)about.st_size) {
		log_err("tidegate-mmap: %s is no file with all bytes of the job: lay it out before, without create_on_open\n",
			f->file_name);
		td_verror(td, EINVAL, "size");
		return 0;
	}
	if (asked->dax && m->from + pages > (uint64_t)about.st_size) {
		log_err("tidegate-mmap: %s: dax=1 maps whole pages: choose a size= of a multiple of %lu bytes\n",
			f->file_name, (unsigned long)page_size);
		td_verror(td, EINVAL, "size");
		return 0;
	}
	return 1;
}

static int map(struct thread_data *td, struct fio_file *f, struct mapping *m)
{
	const struct options *asked = td->eo;
	int access = PROT_READ | (td_write(td) && !td->o.verify_only ? PROT_WRITE : 0);
	int flags = asked->dax ? MAP_SHARED_VALIDATE | MAP_DAX : MAP_SHARED;
	const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };

	m->from = f->file_offset & ~(uint64_t)page_mask;
	m->len = f->file_offset + f->io_size - m->from;
	if (!is_there(td, f, m))
		return 1;
	for (int tries = 0; tries < BUSY_TRIES; tries++) {
		m->base = mmap(NULL, m->len, access, flags, f->fd, m->from);
		if (m->base != MAP_FAILED || errno != EBUSY)
			break;
		nanosleep(&pause, NULL);
	}
	if (m->base == MAP_FAILED)
		return fail(td, f, asked->dax ? "mmap (dax=1)" : "mmap", errno);
	if (asked->pin && mlock(m->base, m->len)) {
		int error = errno;

		munmap(m->base, m->len);
		log_err("tidegate-mmap: %s: mlock (dax_pin=1): %s; %s, or leave dax_pin=1 out\n", f->file_name,
			strerror(error),
			error == ENOMEM ?
				"the pool has no room for all of it, or programs may not pin so much: choose a smaller size=, a larger pool, or a larger --pin-max of `tidegate mount`" :
				"the page of Tidegate on mappings says what can be pinned");
		td_verror(td, error, "mlock");
		return 1;
	}
	return 0;
}

static int open_file(struct thread_data *td, struct fio_file *f)
{
	const struct options *asked = td->eo;
	struct mapping *m = calloc(1, sizeof(*m));

	if (!m)
		return fail(td, f, "calloc", ENOMEM);
	/* A direct mapping needs both, also to be read. */
	f->fd = open(f->file_name, asked->dax || td_write(td) ? O_RDWR : O_RDONLY);
	if (f->fd < 0) {
		td_verror(td, errno, "open");
		free(m);
		return 1;
	}
	if (map(td, f, m)) {
		close(f->fd);
		f->fd = -1;
		free(m);
		return 1;
	}
	FILE_SET_ENG_DATA(f, m);
	return 0;
}

static int close_file(struct thread_data *td, struct fio_file *f)
{
	struct mapping *m = FILE_ENG_DATA(f);

	if (m) {
		munmap(m->base, m->len);
		free(m);
		FILE_SET_ENG_DATA(f, NULL);
	}
	return generic_close_file(td, f);
}

/* Syncs the pages of these bytes of the file. */
static int sync_pages(const struct mapping *m, uint64_t at, uint64_t end)
{
	char *from = m->base + ((at - m->from) & ~(uint64_t)page_mask);

	return msync(from, m->base + (end - m->from) - from, MS_SYNC) ? errno : 0;
}

static int act(const struct thread_data *td, struct io_u *io_u, const struct mapping *m)
{
	const struct fio_file *f = io_u->file;
	uint64_t at = io_u->offset, end = at + io_u->xfer_buflen;

	switch (io_u->ddir) {
	case DDIR_READ:
	case DDIR_WRITE:
		if (at < m->from || end > m->from + m->len)
			return EINVAL;
		if (io_u->ddir == DDIR_READ) {
			memcpy(io_u->xfer_buf, m->base + (at - m->from), io_u->xfer_buflen);
			return 0;
		}
		memcpy(m->base + (at - m->from), io_u->xfer_buf, io_u->xfer_buflen);
		return td->o.sync_io ? sync_pages(m, at, end) : 0;
	case DDIR_SYNC:
	case DDIR_DATASYNC:
		return sync_pages(m, m->from, m->from + m->len);
	case DDIR_SYNC_FILE_RANGE:
		/* Nothing was written since the last one: both are -1. */
		return f->first_write < f->last_write ? sync_pages(m, f->first_write, f->last_write) : 0;
	default:
		return EOPNOTSUPP;
	}
}

static enum fio_q_status queue(struct thread_data *td, struct io_u *io_u)
{
	fio_ro_check(td, io_u);
	io_u->error = act(td, io_u, FILE_ENG_DATA(io_u->file));
	if (io_u->error)
		td_verror(td, io_u->error, "tidegate-mmap");
	return FIO_Q_COMPLETED;
}

/* fio looks for this name. */
struct ioengine_ops ioengine = {
	.name = "tidegate-mmap",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_SYNCIO | FIO_NOEXTEND,
	.init = init,
	.queue = queue,
	.open_file = open_file,
	.close_file = close_file,
	.get_file_size = generic_get_file_size,
	.options = options,
	.option_struct_size = sizeof(struct options),
};
