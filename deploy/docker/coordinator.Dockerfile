# The coordinator, and fsdpctl for `helm test`, `docker exec` and the health check.
#
#   docker build -f deploy/docker/coordinator.Dockerfile -t fsdpctl/fsdp-coordinator:0.1.0 .
#   docker run --read-only -v fsdp-state:/var/lib/fsdp-coordinator --network host fsdpctl/fsdp-coordinator:0.1.0 \
#     --state-dir=/var/lib/fsdp-coordinator
#
# For an image that can be built again bit by bit give the base with its digest:
#   --build-arg DEBIAN_IMAGE=debian@sha256:…
ARG DEBIAN_IMAGE=debian:12.12-slim

FROM ${DEBIAN_IMAGE} AS build
WORKDIR /src
COPY deploy/packages deploy/packages
RUN deploy/packages/install_deps build && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset release -DFSDPCTL_CUDA=OFF \
    && cmake --build --preset release \
    && cmake --install build/release --prefix /opt/fsdpctl --strip --component Unspecified \
    && deploy/docker/keep /opt/fsdpctl fsdp-coordinator fsdpctl \
    && deploy/docker/sbom linked > /opt/fsdpctl/share/fsdpctl/linked.tsv

FROM ${DEBIAN_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="fsdp-coordinator" \
      org.opencontainers.image.description="Takes training jobs, places them on workers and keeps them going" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && apt-get install -y --no-install-recommends libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 64001 fsdp-coordinator \
    && useradd --uid 64001 --gid 64001 --no-create-home --home-dir /var/lib/fsdp-coordinator \
       --shell /usr/sbin/nologin fsdp-coordinator \
    && install -d -o 64001 -g 64001 -m 0700 /var/lib/fsdp-coordinator
COPY --from=build /opt/fsdpctl /opt/fsdpctl
COPY deploy/docker/sbom /opt/fsdpctl/libexec/sbom
# What is in the image: Debian's packages here, and those that were linked in.
RUN /opt/fsdpctl/libexec/sbom document fsdp-coordinator "${VERSION}" \
      debian=/opt/fsdpctl/share/fsdpctl/linked.tsv \
    > /opt/fsdpctl/share/fsdpctl/sbom.spdx.json
ENV PATH=/opt/fsdpctl/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 64001:64001
VOLUME /var/lib/fsdp-coordinator
EXPOSE 7070 9464
# Docker's own; Kubernetes ignores it and has probes. The first start may check a large database.
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s \
    CMD ["/opt/fsdpctl/bin/fsdpctl", "workers", "--call-timeout=3s"]
ENTRYPOINT ["/opt/fsdpctl/bin/fsdp-coordinator"]
CMD ["--state-dir=/var/lib/fsdp-coordinator"]
