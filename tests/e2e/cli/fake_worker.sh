#!/bin/sh
# Stands in for fsdp-worker: notes its pid and that of a child in a session of its own, which only a
# supervisor that looks for orphans finds.
for argument in "$@"; do
  case "$argument" in
    --state-dir=*) state_dir="${argument#--state-dir=}" ;;
  esac
done
echo "$$" >> "$state_dir/pids"
setsid sleep 1000 &
echo "$!" >> "$state_dir/orphans"
wait
