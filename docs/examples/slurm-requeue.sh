#!/bin/bash
# A job of two nodes that is run again by exit code: see docs/how-to/exit-codes-slurm.md.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@180

set -u
most_requeues=5

# Records on a file system that all nodes share; the job keeps its id, and with it its counters.
export RANKSCOPE_HOME="${RANKSCOPE_HOME:-$SLURM_SUBMIT_DIR/rankscope}"
store=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# The time limit is near: the agents take evidence, then end their workers.
out_of_time=
step=
trap 'out_of_time=1; kill -TERM "$step" 2>/dev/null' USR1

# One agent that ends must not take the others with it: they decide together.
srun --kill-on-bad-exit=0 --wait=0 \
    diag run --nnodes="$SLURM_NNODES" --nproc-per-node=8 \
    --rdzv-backend=c10d --rdzv-endpoint="$store:29400" --rdzv-id="$SLURM_JOB_ID" \
    --max-restarts=3 train.py &
step=$!
# A signal ends the first wait early; the step's own status is what counts.
wait "$step"
code=$?
if [ -n "$out_of_time" ]; then
    wait "$step"
    code=$?
fi

again=
case "$code" in
0) ;;
75) again="exit code 75" ;;
137) again="an agent was killed, perhaps for memory" ;;
*) if [ -n "$out_of_time" ]; then again="out of time"; fi ;;
esac

if [ -n "$again" ]; then
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "$most_requeues" ]; then
        echo "requeued: $again"
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "not requeued: $again, but $most_requeues times already"
    fi
fi
exit "$code"
