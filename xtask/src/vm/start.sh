# The guest once it has its files: devices, network, the command, its status.
# Run by busybox as process 1, so it also buries whoever lost his parent.

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
vm=/run/vm
# host, address, device, folder: what is different from one guest to the next.
# ip, rdma: where the host has them; busybox would take its own ip, which knows less.
. $vm/settings

fail() {
	echo "vm: $*" >/dev/console
	sync
	exec poweroff -f
}

mkdir /dev/pts /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
mount -t cgroup2 cgroup /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
# The ports come by themselves, some time after their driver, under numbers of the kernel's.
until [ -e $vm/port.status ]; do
	for port in /sys/class/virtio-ports/*; do
		read -r name <"$port/name" && ln -sf "/dev/${port##*/}" "$vm/port.$name"
	done 2>/dev/null
done
mkdir -p "$folder"
# Not cached: what is written must be on the host when we say so, mapped files too.
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=mmap folder "$folder" ||
	fail "the folder cannot be mounted"

hostname "$host"
printf '127.0.0.1 localhost\n10.77.0.1 host1\n10.77.0.2 host2\n' >/etc/hosts
# An address that only waits to see whether somebody else has it is of no use.
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
{
	echo link set lo up
	if [ "$device" = veth0 ]; then
		echo link add veth0 type veth peer name veth1
		echo link set veth1 mtu 4200 up
	fi
	echo link set "$device" mtu 4200 up
	echo address add "$address/24" dev "$device"
} >$vm/network
"$ip" -batch $vm/network >/dev/console 2>&1 || fail "there is no network"
"$rdma" link add rxe0 type rxe netdev "$device" >/dev/console 2>&1 || fail "there is no RDMA device"

ulimit -n 65536
mkfifo $vm/out $vm/err
# What went through each port is counted: a port takes bytes before the host has them.
{ tee $vm/port.out | wc -c >$vm/out.bytes; } <$vm/out &
out=$!
{ tee $vm/port.err | wc -c >$vm/err.bytes; } <$vm/err &
err=$!

mkdir /sys/fs/cgroup/command
{
	echo 0 >/sys/fs/cgroup/command/cgroup.procs
	exec sh $vm/command
} </dev/null >$vm/out 2>$vm/err &
wait $!
status=$?
# Whoever is left would hold the output open.
echo 1 >/sys/fs/cgroup/command/cgroup.kill
wait $out $err
sync
echo "$status $(cat $vm/out.bytes) $(cat $vm/err.bytes)" >$vm/port.status
# The host ends us when it has read that.
while :; do sleep 60; done
