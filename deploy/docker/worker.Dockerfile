# The worker with the CUDA backend. It runs without GPUs too (--devices=cpu:N).
#
#   docker build -f deploy/docker/worker.Dockerfile -t fsdpctl/fsdp-worker:0.1.0 .
#   docker run --read-only --gpus all --shm-size 16g --ulimit memlock=-1 --network host \
#     -v fsdp-worker:/var/lib/fsdp-worker --tmpfs /tmp fsdpctl/fsdp-worker:0.1.0 \
#     --state-dir=/var/lib/fsdp-worker --coordinator=10.0.0.1:7070
#
# Debian throughout, as the packages; NVIDIA's image is only where toolkit and libraries come from. They are under
# NVIDIA's licence, which the image carries on: read it before you publish one. The host needs NVIDIA's driver
# (580 or newer for CUDA 13.0) and its container toolkit.
ARG DEBIAN_IMAGE=debian:12.12-slim
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu24.04

FROM ${CUDA_IMAGE} AS cuda
COPY deploy/docker/sbom /tmp/sbom
RUN /tmp/sbom packages 'cuda-cudart-[0-9]*' 'libcublas-[0-9]*' 'cuda-cupti-[0-9]*' libnccl2 > /tmp/nvidia.tsv

FROM ${DEBIAN_IMAGE} AS build
WORKDIR /src
COPY deploy/packages deploy/packages
RUN deploy/packages/install_deps build && rm -rf /var/lib/apt/lists/*
COPY --from=cuda /usr/local/cuda-13.0 /usr/local/cuda-13.0
COPY --from=cuda /usr/include/nccl*.h /usr/include/
COPY --from=cuda /usr/lib/x86_64-linux-gnu/libnccl.so* /usr/lib/x86_64-linux-gnu/
RUN ln -s cuda-13.0 /usr/local/cuda
COPY . .
RUN CUDACXX=/usr/local/cuda/bin/nvcc cmake --preset release -DFSDPCTL_CUDA=ON \
    && cmake --build --preset release \
    && cmake --install build/release --prefix /opt/fsdpctl --strip --component Unspecified \
    && deploy/docker/keep /opt/fsdpctl fsdp-worker fsdp-trainer fsdp-trainer-cuda fsdp-tokenize \
    && deploy/docker/sbom linked > /opt/fsdpctl/share/fsdpctl/linked.tsv
# The executables look into lib/ beside bin/. CUPTI is what profiles are made with. cuDNN is left out: the trainer then
# attends with its own kernels.
RUN cp -a /usr/local/cuda/lib64/libcudart.so.13* /usr/local/cuda/lib64/libcublas.so.13* \
      /usr/local/cuda/lib64/libcublasLt.so.13* /usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13* \
      /usr/local/cuda/extras/CUPTI/lib64/libnvperf_host.so /usr/local/cuda/extras/CUPTI/lib64/libnvperf_target.so \
      /opt/fsdpctl/lib/ \
    && cp -L /usr/lib/x86_64-linux-gnu/libnccl.so.2 /opt/fsdpctl/lib/

FROM ${DEBIAN_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="fsdp-worker" \
      org.opencontainers.image.description="Runs the ranks of training jobs on a host's devices" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.licenses="Apache-2.0 AND LicenseRef-NVIDIA-CUDA-EULA"
# tini reaps what a worker that was killed leaves behind; RDMA's user side is opened by NCCL where there is hardware.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libstdc++6 libibverbs1 ibverbs-providers tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 64002 fsdp-worker \
    && useradd --uid 64002 --gid 64002 --no-create-home --home-dir /var/lib/fsdp-worker \
       --shell /usr/sbin/nologin fsdp-worker \
    && install -d -o 64002 -g 64002 -m 0700 /var/lib/fsdp-worker
COPY --from=build /opt/fsdpctl /opt/fsdpctl
COPY --from=cuda /tmp/nvidia.tsv /opt/fsdpctl/share/fsdpctl/nvidia.tsv
COPY deploy/docker/sbom /opt/fsdpctl/libexec/sbom
# What is in the image: Debian's packages here, those that were linked in, and
# NVIDIA's.
RUN /opt/fsdpctl/libexec/sbom document fsdp-worker "${VERSION}" \
      debian=/opt/fsdpctl/share/fsdpctl/linked.tsv nvidia=/opt/fsdpctl/share/fsdpctl/nvidia.tsv \
    > /opt/fsdpctl/share/fsdpctl/sbom.spdx.json
# NVIDIA_VISIBLE_DEVICES is left to who starts it: a pod without GPUs must not see them.
ENV PATH=/opt/fsdpctl/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/var/lib/fsdp-worker \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 64002:64002
VOLUME /var/lib/fsdp-worker
EXPOSE 9465
# None: a restart ends a rank, and the coordinator sees silent workers and hung ranks by itself.
HEALTHCHECK NONE
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/fsdpctl/bin/fsdp-worker"]
CMD ["--help"]
