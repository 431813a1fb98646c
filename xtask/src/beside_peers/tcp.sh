# The sides of `cargo xtask beside-peers --network tcp`, after the functions of hosts. Each is called with the
# number of ranks, each on a host of its own. It prints lines of the case, the bytes and the nanoseconds, or
# Hydrant's JSON.

# A host has one of the two processors, as each rank has on one host.
cat >$work/bound <<END
#!/bin/sh
case \$1 in a | c) processor=0 ;; *) processor=1 ;; esac
exec taskset -c \$processor $work/rsh "\$@"
END
chmod +x $work/bound

# A side that takes longer than any does is ended.
limit='timeout --kill-after=5 60'

hosts a b c d

# names RANKS: the hosts of so many ranks.
names() {
	case $1 in 2) echo a,b ;; *) echo a,b,c,d ;; esac
}

tcp() {
	[ $1 = 2 ] || return
	$work/bound b $limit $programs/tcp listen 7000 &
	$work/bound a $limit $programs/tcp 10.9.0.2 7000
	wait
}

ucx() {
	[ $1 = 2 ] || return
	rm -rf $work/ucx
	mkdir $work/ucx
	export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0
	$work/bound b $limit $programs/ucx 1 $work/ucx &
	$work/bound a $limit $programs/ucx 0 $work/ucx
	wait
}

# Shared memory is off between hosts: each is a node of its own. The provider is named, because MPICH might
# choose another one.
mpich() {
	export MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=eth0
	$limit $folder/mpich/bin/mpiexec -launcher rsh -launcher-exec $work/bound -localhost 10.9.0.254 \
		-hosts $(names $1) -n $1 $programs/mpich
}

openmpi() {
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	$limit $folder/openmpi/bin/mpirun --prefix $folder/openmpi --host $(names $1) -n $1 --bind-to none \
		--prtemca plm_ssh_agent $work/bound --prtemca prte_if_include 10.9.0.0/24 \
		--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca osc ^ucx,sm $programs/openmpi
}

gasnet() {
	export GASNET_SPAWNFN=S GASNET_SSH_CMD=$work/bound GASNET_MASTERIP=10.9.0.254 GASNET_WORKERIP=10.9.0.0
	export GASNET_SSH_SERVERS="$(names $1 | tr , ' ')"
	(cd $programs && $limit ./gasnet-udp $1)
}

# The library of MPICH's wheel has the provider tcp, which is the first choice, and the system's may not.
hydrant() {
	export HYDRANT_RSH=$work/bound
	unset HYDRANT_PEER_TIMEOUT HYDRANT_JOIN_TIMEOUT
	library=$folder/mpich/lib/mpich/libfabric.so.1
	[ ! -e $library ] || export HYDRANT_OFI_LIBRARY=$library
	[ $1 != 2 ] || bench $1 rma --reps 5
	[ $1 != 2 ] || bench $1 am --quick
	bench $1 barrier --quick
	bench $1 collectives --quick
}

# bench RANKS ARGUMENTS...
bench() {
	ranks=$1
	shift
	$limit $target/hydrant bench "$@" -n $ranks --hosts $(names $ranks) --format json
}
