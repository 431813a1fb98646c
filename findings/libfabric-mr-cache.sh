#!/bin/sh
# libfabric 2.1.0: a registration cache that is as full as its limit evicts a region before each look-up, even if the
# look-up is a hit.
#
# FI_MR_CACHE_MAX_COUNT reads like "so many regions are kept". `ofi_mr_cache_search` compares the number of cached
# regions with the limit before it looks for the region, and flushes the least recently used one while the number is
# not below the limit. So a cache with the limit N keeps N - 1 regions. A program that uses N regions in turn registers
# each anew at every use: the region that is flushed is the next one that is wanted. With the limit N + 1 every use is a
# hit. The default limit of 1024 has the same edge.
#
# The cache of several providers (verbs, efa) is this one. It has no public interface, so the program links with the
# static library. Callbacks count registrations, and no NIC is needed.
#
# Seen with libfabric 2.1.0 (Debian's source package), gcc 12, Linux 6.18, on 30 November 2026:
#   limit 256: 256 regions at first, 1024 more in 1024 look-ups of the same regions
#   limit 257: 256 regions at first, 0 more in 1024 look-ups of the same regions
#
# Needs curl, xz, gcc, make, autoconf, automake and libtool. Takes about three minutes. Exits with 1 if it changed.
set -eu
VERSION=2.1.0
SUM=1a66369772d5bb151737214af1c478993e969cf298e8f9ed369e7a2ab8d8c6df
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
curl -sSfLO "https://deb.debian.org/debian/pool/main/libf/libfabric/libfabric_$VERSION.orig.tar.xz"
echo "$SUM  libfabric_$VERSION.orig.tar.xz" | sha256sum -c --quiet
mkdir source build
tar -xJf "libfabric_$VERSION.orig.tar.xz" -C source --strip-components 1
(cd source && ./autogen.sh) >log 2>&1
(
    cd build
    ../source/configure --disable-shared --enable-static --enable-tcp --disable-verbs --disable-psm2 \
        --disable-psm3 --disable-efa --disable-opx --disable-usnic --disable-shm --disable-rxm --disable-rxd \
        --disable-udp --disable-mrail --disable-perf --disable-trace --disable-profile --disable-monitor \
        --disable-sockets --disable-lpp --disable-lnx
    make -j2 src/libfabric.la
) >>log 2>&1 || {
    tail -n 20 log
    exit 2
}

cat >limit.c <<'C'
#include "config.h"

#include <ofi_mr.h>
#include <ofi_util.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { REGIONS = 256, PAGE = 4096, ROUNDS = 4 };

static long registrations;

static int count(struct ofi_mr_cache *cache, struct ofi_mr_entry *entry)
{
    (void)cache;
    (void)entry;
    registrations++;
    return 0;
}

static void forget(struct ofi_mr_cache *cache, struct ofi_mr_entry *entry)
{
    (void)cache;
    (void)entry;
}

static void use_all(struct ofi_mr_cache *cache, char *memory)
{
    for (long number = 0; number < REGIONS; number++) {
        struct ofi_mr_entry *entry;
        /* Every other page, so that regions are not merged. */
        struct ofi_mr_info info = {.iov = {memory + 2 * PAGE * number, PAGE}};
        if (ofi_mr_cache_search(cache, &info, &entry))
            exit(2);
        ofi_mr_cache_delete(cache, entry);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    setenv("FI_MR_CACHE_MONITOR", "memhooks", 1);
    setenv("FI_MR_CACHE_MAX_COUNT", argv[1], 1);
    struct fi_info *found = NULL;
    fi_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, NULL, &found); /* starts the monitors */
    struct ofi_mem_monitor *monitors[OFI_HMEM_MAX] = {default_monitor};
    struct ofi_mr_cache cache = {.add_region = count, .delete_region = forget};
    if (!default_monitor || ofi_mr_cache_init(NULL, monitors, &cache))
        return 2;
    char *memory = mmap(NULL, 2l * PAGE * REGIONS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    use_all(&cache, memory);
    long first = registrations;
    for (int round = 0; round < ROUNDS; round++)
        use_all(&cache, memory);
    printf("limit %s: %ld regions at first, %ld more in %d look-ups of the same regions\n", argv[1], first,
           registrations - first, ROUNDS * REGIONS);
    return 0;
}
C
gcc -w -O1 -Ibuild -Isource/include -Isource/include/linux -Isource/prov/util/include -Isource limit.c -o limit \
    build/src/.libs/libfabric.a -lpthread -ldl -lrt -latomic
{
    ./limit 256
    ./limit 257
} | tee found
cat >expected <<'T'
limit 256: 256 regions at first, 1024 more in 1024 look-ups of the same regions
limit 257: 256 regions at first, 0 more in 1024 look-ups of the same regions
T
cmp -s found expected || {
    echo "libfabric $VERSION behaves otherwise now" >&2
    exit 1
}
