#!/bin/sh
# Stands in for fsdp-worker: notes its pid and that of a child in a session of its own, which only a
# supervisor that looks for orphans finds. FAKE_DEVICES: what it finds on this machine.
for argument in "$@"; do
  case "$argument" in
    --list-devices)
      printf '%s\n' "${FAKE_DEVICES:-fsdp-worker: no CUDA device on this host}"
      exit 0
      ;;
    --state-dir=*) state_dir="${argument#--state-dir=}" ;;
  esac
done
echo "$*" > "$state_dir/arguments"
echo "$$" >> "$state_dir/pids"
setsid sleep 1000 &
echo "$!" >> "$state_dir/orphans"
wait
