# The beginning of every script of faults. It reports each run by lines that begin with "fault", and
# each rank by the JSON object that the rank printed.

work=/tmp/faults
mkdir -p $work
out=$work/out
err=$work/err
launch=
limit=
cgroup=

# The network between the devices, or the hosts.
wire=veth0
[ -e /sys/class/net/veth0 ] || wire=eth0

# begin ARGUMENTS...: starts the ranks and waits until they work, or have failed to.
begin() {
	: >$out
	: >$err
	rm -f $work/enough
	[ $wire = veth0 ] || ssh host2 "rm -f $work/enough"
	under_limits "$hydrant" run -n 4 --prefix none --grace 60 --timeout 120 $launch \
		"$hammer" --format json "$@" >$out 2>$err &
	job=$!
	until [ "$(grep -o 'is process [0-9]' $err | wc -l)" = 4 ] || ! kill -0 $job 2>/dev/null; do
		sleep 0.05
	done
}

under_limits() {
	[ -z "$cgroup" ] || echo 0 >$cgroup/cgroup.procs
	if [ -n "$limit" ]; then
		exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock \
			sh -c 'ulimit -l '$limit' && exec "$@"' sh "$@"
	fi
	exec "$@"
}

# Ranks that begin with this work until the run is over, so that the fault comes meanwhile, however
# slow the machine is.
until_enough="--seconds 60 --until $work/enough"
enough() {
	touch $work/enough
	[ $wire = veth0 ] || ssh host2 "mkdir -p $work && touch $work/enough"
}

# Marks the time of the fault.
now() {
	echo "fault at $(date +%s%N)"
}

# The process of a rank.
rank() {
	grep -o "rank $1 is process [0-9]*" $err | head -n 1 | grep -o '[0-9]*$'
}

# end: waits for the job, and reports its end and the resources that are left.
end() {
	wait $job
	echo "fault status $?"
	sed -n 's/.* at \([0-9]*\) rank .* about to die/fault at \1/p' $err
	echo
	cat $out
	grep -v ' is process \| about to die' $err
	# The kernel cleans up after a killed process in its own time.
	tries=0
	until [ "$(pages) $(objects)" = "$before" ] || [ $tries = 20 ]; do
		tries=$((tries + 1))
		sleep 0.25
	done
	objects=$(objects)
	[ "$objects" != "${before#* }" ] || objects=none
	echo "fault left $(($(pages) - ${before%% *})) $objects"
}

# survivors COUNT: waits until this many ranks have printed their reports.
survivors() {
	until [ "$(grep -c '^{' $out)" -ge "$1" ] || ! kill -0 $job 2>/dev/null; do
		sleep 0.1
	done
}

# The pages that drivers hold pinned, of all processes together.
pages() {
	cat /proc/sys/vm/stat_refresh >/dev/null
	awk '$1 == "nr_foll_pin_acquired" { n += $2 } $1 == "nr_foll_pin_released" { n -= $2 }
		END { print n }' /proc/vmstat
}

# The objects that the devices hold for programs, on one line.
objects() {
	rdma resource show | tr '\n' ' '
}

netem() {
	tc qdisc replace dev $wire root netem "$@"
}

calm() {
	tc qdisc del dev $wire root 2>/dev/null
}

# Nothing passes, in either direction. The interfaces stay up: with one of them down, soft-RoCE of
# Linux 6.1 now and then keeps both processors busy.
cut() {
	for end in veth0 veth1; do
		tc qdisc replace dev $end root netem loss 100%
	done
}

mend() {
	for end in veth0 veth1; do
		tc qdisc del dev $end root
	done
}

# A group of processes for which the kernel limits the objects of the devices, above all memory
# regions.
confine() {
	echo +rdma >/sys/fs/cgroup/cgroup.subtree_control
	cgroup=/sys/fs/cgroup/confined
	mkdir -p $cgroup
	printf 'rxe0 hca_object=max\n' >$cgroup/rdma.max
	printf 'rxe1 hca_object=max\n' >$cgroup/rdma.max
}

# Lowers the limit of regions: about two thirds must be deregistered before there may be another.
no_more() {
	awk '{ sub("hca_object=", "", $3); print $1, "hca_object=" $3 - 40 }' $cgroup/rdma.current |
		while read -r line; do
			echo "$line"
			echo "$line" >$cgroup/rdma.max
		done
}

# Asks the host of this machine for the fate of the other machine.
control() {
	exec 3<>"$VM_CONTROL"
	echo "$*" >&3
	read -r answer <&3
	exec 3>&-
	echo "$answer"
}

before="$(pages) $(objects)"
