# The sides of `cargo xtask beside-peers --network smp`: two ranks of this host, each on its processor. Each
# side prints lines of the case, the bytes and the nanoseconds, or Hydrant's JSON.

# A side that takes longer than any does is ended.
limit='timeout --kill-after=5 300'

gasnet() {
	GASNET_PSHM_NODES=$1 $limit $programs/gasnet-smp smp
}

hydrant() {
	for what in rma am barrier collectives; do
		$limit $target/hydrant bench $what -n $1 --quick --reps 101 --format json
	done
}
