#!/bin/sh
# One task of an array of jobs:  sh array.sh train RECIPE --out RUN    or    sh array.sh evaluate RUN
# Which part it does is taken from the scheduler: Slurm (--array=0-7, or from any number on), Kubernetes (completionMode: Indexed, with COUNT
# set to the number of completions), SkyPilot (num_nodes), or from INDEX and COUNT anywhere else.
set -eu
index=${SLURM_ARRAY_TASK_ID:-${JOB_COMPLETION_INDEX:-${SKYPILOT_NODE_RANK:-${INDEX:?is not set}}}}
count=${SLURM_ARRAY_TASK_COUNT:-${SKYPILOT_NUM_NODES:-${COUNT:?is not set}}}
first=${SLURM_ARRAY_TASK_MIN:-0}
exec epibench "$@" --shard "$((index - first + 1))/$count"
