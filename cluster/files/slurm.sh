#!/bin/bash
# A Ray cluster inside one Slurm allocation, and a study on it. See docs/cluster/slurm.md.
#   sbatch --gpus-per-node=4 cluster/files/slurm.sh contrasweep.search_spaces.quickstart:STUDY --storage /scratch/$USER/contrasweep
#SBATCH --job-name=contrasweep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=240G
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=contrasweep-%j.log
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: sbatch $0 STUDY [options of contrasweep run]" >&2
    exit 2
fi

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts[0]}
# Two jobs may meet on a host: ports follow from the job's number, below those that Linux gives to any connection.
port=$((20000 + SLURM_JOB_ID % 12000))
gpus=${SLURM_GPUS_ON_NODE:-0}
cpus=${SLURM_CPUS_PER_TASK:-1}
export SRUN_CPUS_PER_TASK=$cpus # a step has one core otherwise, since Slurm 22.05
head_ip=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')

# All of the cluster's processes and no others share this token.
RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export RAY_AUTH_MODE RAY_AUTH_TOKEN
export RAY_TMPDIR=${SLURM_TMPDIR:-/tmp}/ray-$SLURM_JOB_ID
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 # else a node waits for requests to Ray Serve, longer than Slurm does

stop() { # by TERM to all steps; an srun that is killed kills its step, which then leaves its files
    scancel --signal=TERM "$SLURM_JOB_ID" 2>/dev/null || kill "${pids[@]}" 2>/dev/null || true
    wait || true
}
pids=()
trap stop EXIT

# start HOST OPTIONS: one of the cluster's nodes, which deletes Ray's files when it has ended.
# Ports of workers are any that are free (0): Ray's range is the same for each job.
NODE='trap "rm -rf \"$RAY_TMPDIR\"" EXIT; trap "kill \$ray; wait \$ray" TERM; "$@" & ray=$!; wait $ray'
start() {
    srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" bash -c "$NODE" node \
        ray start --block --num-cpus="$cpus" --num-gpus="$gpus" --min-worker-port=0 --max-worker-port=0 "${@:2}" &
    pids+=($!)
}

start "$head" --head --node-ip-address="$head_ip" --port="$port" --temp-dir="$RAY_TMPDIR" --include-dashboard=false
for _ in $(seq 60); do
    ray health-check --address "$head_ip:$port" >/dev/null 2>&1 && break
    kill -0 "${pids[0]}" 2>/dev/null || { echo "the Ray head on $head did not start on port $port; what it said is above" >&2; exit 1; }
    sleep 2
done
for host in "${hosts[@]:1}"; do
    start "$host" --address="$head_ip:$port"
done

export RAY_ADDRESS=$head_ip:$port
python - "${#hosts[@]}" <<'PYTHON' # the first estimate counts the hosts that have joined
import sys, time, ray
ray.init(logging_level="ERROR")
until = time.monotonic() + 120
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]) and time.monotonic() < until:
    time.sleep(0.5)
PYTHON

contrasweep run "$@" &
run=$!
interrupt() {
    kill -TERM "$run" 2>/dev/null || true
    wait "$run" || true
}
# USR1 comes 300 s before the time is up: the study is interrupted and the job queued again, where it goes on
# with what has no record yet. TERM is the end (scancel --full).
trap 'interrupt; scontrol requeue "$SLURM_JOB_ID"; exit 0' USR1
trap 'interrupt; exit 143' TERM
wait "$run"
