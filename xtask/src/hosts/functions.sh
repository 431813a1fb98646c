# Scripts of hosts that are network namespaces begin with this, after job.sh. The script runs in
# namespaces of its own for processes, mounts and the network. The last one holds the bridge.

mount -t tmpfs hosts /run
mount -t tmpfs hosts /dev/shm
mkdir -p /run/netns $work
ip link set lo up
ip link add br0 type bridge
ip addr add 10.9.0.254/24 dev br0
ip link set br0 up

# The remote shell: its first argument is the host. The host has a name of its own, too, and the
# file of host names that a scenario gave it.
cat >$work/rsh <<END
#!/bin/sh
host=\$1
shift
exec ip netns exec "\$host" unshare --uts sh -c 'hostname "\$0"
	[ ! -e $work/names.\$0 ] || mount --bind $work/names.\$0 /etc/hosts
	exec sh -c "\$1"' "\$host" "\$*"
END
chmod +x $work/rsh
export HYDRANT_RSH=$work/rsh HYDRANT_INTER_NODE=ofi HYDRANT_PEER_TIMEOUT=4 HYDRANT_JOIN_TIMEOUT=10

# hosts NAME...: makes hosts of these names at the bridge: 10.9.0.1, 10.9.0.2 and so on.
hosts() {
	number=0
	for host; do
		number=$((number + 1))
		# Without a host, the run reports nothing, and so fails.
		ip netns add $host || exit
		ip link add v$host type veth peer name eth0 netns $host
		ip link set v$host master br0 up
		ip -n $host link set lo up
		# Twice the same address, which leads nowhere, as Docker makes it.
		case $docker in *$host*) bridge $host ;; esac
		if [ -z "$six" ]; then
			ip -n $host addr add 10.9.0.$number/24 dev eth0
		else
			ip -n $host addr add fd00:9::$number/64 dev eth0 nodad
		fi
		ip -n $host link set eth0 up
	done
}

# The launcher's patience with a silent host.
silence=

# Set for hosts with IPv6 alone; the hosts with a bridge that leads nowhere.
six=
docker=

# Gives a host a bridge like Docker's, before its other interfaces.
bridge() {
	ip -n $1 link add docker0 type bridge
	ip -n $1 addr add 172.17.0.1/16 dev docker0
	# The bridge is up while it has a port.
	ip -n $1 link add veth1 type veth peer name veth2
	ip -n $1 link set veth1 master docker0 up
	ip -n $1 link set veth2 up
	ip -n $1 link set docker0 up
}

# Removes all hosts.
no_hosts() {
	for host in $(ip netns list | cut -d ' ' -f 1); do
		ip netns pids $host | xargs -r kill -KILL
		ip link del v$host
		ip netns del $host
	done
}

# servers HOST...: starts a server for remote shells on each of these hosts. It knows one key, made
# for the occasion, and no file of the user is read.
servers() {
	mkdir -p /run/sshd
	for key in host user; do
		[ -e $work/$key ] || ssh-keygen -q -t ed25519 -N '' -f $work/$key
	done
	cat >$work/sshd <<-END
		HostKey $work/host
		AuthorizedKeysFile $work/user.pub
		PidFile none
		StrictModes no
		UsePAM no
		PasswordAuthentication no
		PermitRootLogin prohibit-password
	END
	cat >$work/ssh <<-END
		IdentityFile $work/user
		IdentitiesOnly yes
		BatchMode yes
		StrictHostKeyChecking no
		UserKnownHostsFile /dev/null
		LogLevel ERROR
	END
	number=0
	for host; do
		number=$((number + 1))
		printf 'Host %s\nHostName 10.9.0.%s\n' $host $number >>$work/ssh
		$work/rsh $host exec $(command -v sshd || echo /usr/sbin/sshd) -f $work/sshd || exit
	done
	export HYDRANT_RSH="ssh -F $work/ssh"
	printf '#!/bin/sh\nexec %s "$@"\n' "$HYDRANT_RSH" >$work/go
	chmod +x $work/go
}

# begin HOSTS ARGUMENTS...: starts four ranks of hammer on these hosts.
begin() {
	names=$1
	shift
	start_ranks $names hammer "$@"
}

# start_ranks HOSTS PROGRAM ARGUMENTS...: starts four ranks of this program on these hosts.
start_ranks() {
	names=$1
	program=$2
	shift 2
	start $target/hydrant run -n 4 --hosts $names --prefix none --grace 60 --timeout 120 $silence \
		$target/$program --format json "$@"
}

# mpirun of Open MPI, which refuses root and more ranks than processors if it is not told. Its
# daemons talk over the bridge, and get our settings by name.
open_mpi() {
	mpirun=$(command -v mpirun.openmpi || echo mpirun)
	$mpirun --allow-run-as-root --oversubscribe --mca oob_tcp_if_include 10.9.0.0/24 \
		-x HYDRANT_INTER_NODE -x HYDRANT_PEER_TIMEOUT -x HYDRANT_JOIN_TIMEOUT "$@"
}

enough() {
	touch $work/enough
}

# end: waits for the job, and reports its end and what is left.
end() {
	finish
	report_left
	no_hosts
}

# cannon NAME COMMAND...: runs a command that ends before the program's name, then cannon on four
# ranks. It is right if it succeeds, and prints that there were four ranks and that the product is
# right.
cannon() {
	name=$1
	shift
	begun=$(date +%s%N)
	"$@" $target/cannon --n 300 >$out 2>&1
	status=$?
	waited=$(($(date +%s%N) - begun))
	got="status $status"
	right=false
	if [ $status = 0 ] && grep -q 'cannon on 4 ranks' $out && grep -q 'every element is that of the serial product' $out; then
		got=Ok
		right=true
	fi
	report_case
}

# info NAME TEXT HOSTS: checks hosts, finds that jobs cannot run there, and says this.
info() {
	name=$1
	begun=$(date +%s%N)
	$target/hydrant info --hosts $3 >$out 2>&1
	status=$?
	waited=$(($(date +%s%N) - begun))
	got="status $status"
	right=false
	if [ $status = 1 ] && grep -q "$2" $out; then
		got="$2"
		right=true
	fi
	report_case
}

# Reports a job or a check, and removes the hosts.
report_case() {
	$right || cat $out
	printf '\n{"rank":0,"ranks":4,"pinned_after":0,"cases":['
	printf '{"name":"%s","got":"%s","waited":%s.%09d,"right":%s}]}\n' \
		"$name" "$got" $((waited / 1000000000)) $((waited % 1000000000)) $right
	report_left
	no_hosts
}

# Reports the processes of jobs and the files of shared memory that are left.
report_left() {
	# The kernel cleans up after a killed process in its own time.
	tries=0
	until [ -z "$(left)" ] || [ $tries = 40 ]; do
		tries=$((tries + 1))
		sleep 0.25
	done
	echo "fault left $(left | wc -l) $(left | tr '\n' ' ')"
}

# The names of processes of jobs, and of files of shared memory, a line each.
left() {
	cat /proc/[0-9]*/comm 2>/dev/null | grep -x 'hydrant\|hammer\|torture\|cannon\|mpi.*\|hydra.*\|orte.*\|prte.*'
	ls /dev/shm
}

# attack KIND SECONDS TARGETS...: see attack.rs. The words are echoed, for the log.
attack() {
	"$xtask" hosts "$@" || exit
}

# attack_from HOST KIND SECONDS TARGETS...: the same by a process of this host.
attack_from() {
	host=$1
	shift
	ip netns exec $host "$xtask" hosts "$@" || exit
}

# The addresses at which ranks of a host listen, if the host has the second address: of all its ranks.
ports() {
	ip netns exec $1 ss -Htln | awk '{ print $4 }' | sed "s/^[^:]*:/$2:/; s/^\\[::\\]:/$2:/" | sort -u
}

# firewall HOST VERDICT: no connection is made to this host any more. Those that exist go on.
firewall() {
	ip netns exec $1 nft -f - <<-END || { echo "fault skipped the kernel has no nf_tables"; exit; }
		table inet hydrant {
			chain in {
				type filter hook input priority 0;
				iif lo accept
				ct state established accept
				meta l4proto tcp $2
			}
		}
	END
}

# netem HOST ARGUMENTS...: what is wrong with the network of a host.
netem() {
	host=$1
	shift
	ip netns exec $host tc qdisc replace dev eth0 root netem "$@" 2>/dev/null ||
		{ echo "fault skipped the kernel has no netem"; no_hosts; exit; }
}

# The interface of a host at the bridge, down and up.
cut_link() {
	ip link set v$1 down
}

mend_link() {
	ip link set v$1 up
}
