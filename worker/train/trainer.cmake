# One rank from assignment to end (library), and the executable of the CPU backend. The CUDA one is
# the same main.cc with another trainer_backend_*.cc.
add_library(fsdp_trainer STATIC
  checkpoint_tools.cc link_daemon.cc local_launch.cc numeric_guard.cc counted_recording.cc rank_counters.cc rank_profiler.cc
  run_tool.cc running_rank.cc signal_dump.cc trainer.cc trainer_ceilings.cc
  trainer_checkpoint.cc trainer_data.cc trainer_evaluate.cc trainer_pulse.cc trainer_report.cc trainer_setup.cc)
target_link_libraries(fsdp_trainer PUBLIC fsdp_train_tools fsdp_engine fsdp_comm fsdp_checkpoint
                                          fsdp_data fsdp_plan fsdp_proto fsdp_profile_options fsdp_profile_report fsdp_spec fsdp_framed_socket)
# Of the whole package.
target_compile_definitions(fsdp_trainer PUBLIC FSDP_VERSION="${PROJECT_VERSION}")

add_executable(fsdp-trainer main.cc trainer_backend_cpu.cc)
target_link_libraries(fsdp-trainer PRIVATE fsdp_trainer fsdp_device_cpu)

if(TARGET fsdp_comm_nccl)
  add_executable(fsdp-trainer-cuda main.cc trainer_backend_cuda.cc)
  target_link_libraries(fsdp-trainer-cuda PRIVATE fsdp_trainer fsdp_comm_nccl fsdp_cupti fsdp_device_cuda)
  # Static libraries name gloo and oneDNN, which nothing here calls.
  target_link_options(fsdp-trainer-cuda PRIVATE -Wl,--as-needed)
endif()
