# The beginning of every script of faults. It reports each run by lines that begin with "fault", and
# each rank by the JSON object that the rank printed.

out=$work/out
err=$work/err

# start COMMAND...: starts a job of four ranks and waits until they work, or have failed to.
start() {
	: >$out
	: >$err
	rm -f $work/enough
	"$@" >$out 2>$err &
	job=$!
	until [ "$(grep -o 'is process [0-9]' $err | wc -l)" = 4 ] || ! kill -0 $job 2>/dev/null; do
		sleep 0.05
	done
}

# Ranks that begin with this work until the run is over, so that the fault comes meanwhile, however
# slow the machine is.
until_enough="--seconds 60 --until $work/enough"

# Marks the time of the fault.
now() {
	echo "fault at $(date +%s%N)"
}

# The process of a rank.
rank() {
	grep -o "rank $1 is process [0-9]*" $err | head -n 1 | grep -o '[0-9]*$'
}

# survivors COUNT: waits until this many ranks have printed their reports.
survivors() {
	until [ "$(grep -c '^{' $out)" -ge "$1" ] || ! kill -0 $job 2>/dev/null; do
		sleep 0.1
	done
}

# Waits for the job, and repeats its output.
finish() {
	wait $job
	echo "fault status $?"
	sed -n 's/.* at \([0-9]*\) rank .* about to die/fault at \1/p' $err
	echo
	cat $out
	grep -v ' is process \| about to die' $err
}
