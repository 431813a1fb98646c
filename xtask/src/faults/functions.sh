# Scripts of faults in virtual machines begin with this, after job.sh.

launch=
limit=
cgroup=

# The network between the devices, or the hosts.
wire=veth0
[ -e /sys/class/net/veth0 ] || wire=eth0

# begin ARGUMENTS...: starts the ranks and waits until they work, or have failed to.
begin() {
	[ $wire = veth0 ] || ssh host2 "rm -f $work/enough"
	start under_limits "$hydrant" run -n 4 --prefix none --grace 60 --timeout 120 $launch \
		"$hammer" --format json "$@"
}

under_limits() {
	[ -z "$cgroup" ] || echo 0 >$cgroup/cgroup.procs
	if [ -n "$limit" ]; then
		exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock \
			sh -c 'ulimit -l '$limit' && exec "$@"' sh "$@"
	fi
	exec "$@"
}

enough() {
	touch $work/enough
	[ $wire = veth0 ] || ssh host2 "mkdir -p $work && touch $work/enough"
}

# end: waits for the job, and reports its end and the resources that are left.
end() {
	finish
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
