#!/bin/busybox sh
# The first program of the guest, in the initramfs. It makes the host's root file system the
# guest's, keeps the guest's writes in memory, and switches there.

bb=/bin/busybox

fail() {
	echo "vm: $*"
	$bb sync
	exec $bb poweroff -f
}

for module in /modules/*.ko; do
	$bb insmod "$module" || fail "$module does not load"
done

$bb mkdir /host /changes /guest
# Nobody else writes to the visible files of the host, so they may be cached freely.
$bb mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose root /host ||
	fail "the host's files cannot be mounted"
$bb mount -t tmpfs -o mode=755 changes /changes
$bb mkdir /changes/files /changes/work
$bb mount -t overlay -o lowerdir=/host,upperdir=/changes/files,workdir=/changes/work root /guest ||
	fail "nothing can be laid over the host's files"

$bb mount -t devtmpfs dev /guest/dev
$bb mount -t proc proc /guest/proc
$bb mount -t sysfs sys /guest/sys
$bb mount -t tmpfs -o mode=755 run /guest/run
$bb mkdir /guest/run/vm
$bb cp /bin/busybox /vm/* /guest/run/vm/
exec $bb switch_root /guest /run/vm/busybox sh /run/vm/start.sh
