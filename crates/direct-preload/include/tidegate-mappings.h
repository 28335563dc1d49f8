/* Direct mappings: pages of persistent memory in a program's own memory.
 *
 * In a program under `tidegate run`,
 *
 *     mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_DAX, fd, offset)
 *
 * maps pages of a file of a mount as they lie in the mount's pool. msync makes them durable without
 * a request. Anywhere else the call fails with EOPNOTSUPP. Needs no library: the flag is all. */
#ifndef TIDEGATE_MAPPINGS_H
#define TIDEGATE_MAPPINGS_H

#include <sys/mman.h>

#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif

#ifndef MAP_DAX
#define MAP_DAX 0x01000000
#endif

#endif
