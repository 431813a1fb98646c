# The guest once it has its files: devices, network, the command, its status.
# Busybox runs it as process 1, so it also reaps orphans.

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
vm=/run/vm
# host, address, device, devices, folder: the differences between guests.
# ip, rdma: their paths on the host; busybox would take its own ip, which knows less.
# user; in a cluster also sshd and its libraries.
. $vm/settings

fail() {
	echo "vm: $*" >/dev/console
	sync
	exec poweroff -f
}

make_files() {
	mkdir /dev/pts /dev/shm
	mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
	mount -t tmpfs -o mode=1777 shm /dev/shm
	mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
	mount -t cgroup2 cgroup /sys/fs/cgroup
	ln -s /proc/self/fd /dev/fd
	ln -s /proc/self/fd/0 /dev/stdin
	ln -s /proc/self/fd/1 /dev/stdout
	ln -s /proc/self/fd/2 /dev/stderr
	mkdir -p "$folder"
	# Not cached: written data must be on the host when we report it, in mapped files too.
	mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=mmap folder "$folder" ||
		fail "the folder cannot be mounted"
}

# The ports appear some time after their driver, under numbers that the kernel chooses.
find_ports() {
	until [ -e $vm/port.out -a -e $vm/port.err -a -e $vm/port.status -a -e $vm/port.control ]; do
		for port in /sys/class/virtio-ports/*; do
			read -r name <"$port/name" && ln -sf "/dev/${port##*/}" "$vm/port.$name"
		done 2>/dev/null
	done
	chown "$user" $vm/port.control
}

make_network() {
	hostname "$host"
	printf '127.0.0.1 localhost\n10.77.0.1 host1\n10.77.0.2 host2\n' >$vm/hosts
	mount --bind $vm/hosts /etc/hosts
	# An address that waits for the detection of duplicates is of no use.
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
	"$rdma" link add rxe0 type rxe netdev "$device" >/dev/console 2>&1 ||
		fail "there is no RDMA device"
}

# A second device, at the other end of the wire. Data from one device to the other must take that
# wire, though both addresses are this host's. So the table of local addresses comes after more
# specific rules, and only for input.
add_second_device() {
	for end in veth0 veth1; do
		echo 1 >/proc/sys/net/ipv4/conf/$end/accept_local
		echo 0 >/proc/sys/net/ipv4/conf/$end/rp_filter
	done
	echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
	{
		echo address add 10.77.1.1/24 dev veth1
		echo route add 10.77.1.1 dev veth0 src 10.77.0.1 table 100
		echo route add 10.77.0.1 dev veth1 src 10.77.1.1 table 101
		# A link that is down takes its routes along; then there is no route, and no short cut.
		echo route add unreachable 10.77.1.1 metric 1000 table 100
		echo route add unreachable 10.77.0.1 metric 1000 table 101
		echo rule add pref 1 iif veth0 lookup local
		echo rule add pref 1 iif veth1 lookup local
		echo rule add pref 2 to 10.77.1.1 oif veth0 lookup 100
		echo rule add pref 2 to 10.77.1.1 from 10.77.0.1 lookup 100
		echo rule add pref 2 to 10.77.0.1 oif veth1 lookup 101
		echo rule add pref 2 to 10.77.0.1 from 10.77.1.1 lookup 101
		echo rule add pref 3 lookup local
		echo rule del pref 0
	} >$vm/network
	"$ip" -batch $vm/network >/dev/console 2>&1 || fail "the second device has no network"
	"$rdma" link add rxe1 type rxe netdev veth1 >/dev/console 2>&1 ||
		fail "there is no second RDMA device"
}

# A server for the other host's logins, and the user's key to log in there.
serve_shell() {
	# A plain shell: the start files of a user's own shell may take ten seconds here.
	awk -F: -v user="$user" -v OFS=: '$3 == user { $7 = "/bin/sh" } { print }' /etc/passwd >$vm/passwd
	echo 'sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin' >>$vm/passwd
	mount --bind $vm/passwd /etc/passwd
	name=$(awk -F: -v user="$user" '$3 == user { print $1; exit }' /etc/passwd)
	home=$(awk -F: -v user="$user" '$3 == user { print $6; exit }' /etc/passwd)
	# The server must not take the account for locked, whatever its password is here.
	echo "$name:*:20000::::::" >$vm/shadow
	mount --bind $vm/shadow /etc/shadow
	mkdir -p /run/sshd "$home/.ssh"
	chmod 600 $vm/host_key $vm/shadow

	mount -t tmpfs -o mode=700 ssh "$home/.ssh"
	cp $vm/user_key "$home/.ssh/"
	cp $vm/ssh_config "$home/.ssh/config"
	chmod 600 "$home"/.ssh/*
	chown -R "$user" "$home/.ssh"
	LD_LIBRARY_PATH=$libraries "$sshd" -f $vm/sshd_config >/dev/console 2>&1 ||
		fail "there is no remote shell"
}

wait_for_other() {
	until nc -w 1 host2 22 </dev/null | grep -q SSH; do
		sleep 0.1
	done 2>/dev/null
}

run_command() {
	mkfifo $vm/out $vm/err
	# The bytes through each port are counted, because a port takes bytes before the host has them.
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
	# A remaining process would hold the output open.
	echo 1 >/sys/fs/cgroup/command/cgroup.kill
	wait $out $err
	sync
	echo "$status $(cat $vm/out.bytes) $(cat $vm/err.bytes)" >$vm/port.status
}

ulimit -n 65536
make_files
find_ports
make_network
if [ "$devices" = 2 ]; then
	add_second_device
fi
if [ -n "$sshd" ]; then
	serve_shell
fi
if [ "$host" = host1 ]; then
	[ -z "$sshd" ] || wait_for_other
	run_command
fi
# The host ends the machine; until then this process reaps orphans.
while :; do sleep 60; done
