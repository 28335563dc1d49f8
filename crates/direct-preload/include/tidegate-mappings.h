/* Direct mappings: pages of persistent memory in a program's own memory.
 *
 * In a program under `tidegate run`,
 *
 *     mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_DAX, fd, offset)
 *
 * maps pages of a file of a mount as they lie in the mount's pool. msync makes them durable without
 * a request. Anywhere else the call fails with EOPNOTSUPP. Needs no library: the flag is all.
 *
 * With MAP_NORESERVE, and where the pool has no room for all of them, pages come when they are
 * touched, and others go.
 *
 *     madvise(addr, len, MADV_DROPCACHE)
 *
 * has the pages of such a mapping go from the pool, which come again when they are touched. Nothing
 * that was stored is lost. mlock has pages of any such mapping stay: see the page on mappings. Linux
 * 6.18 has no flag and no advice of these numbers. */
#ifndef TIDEGATE_MAPPINGS_H
#define TIDEGATE_MAPPINGS_H

#include <sys/mman.h>

#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif

#ifndef MAP_DAX
#define MAP_DAX 0x01000000
#endif

#ifndef MADV_DROPCACHE
#define MADV_DROPCACHE 0x4d44
#endif

#endif
