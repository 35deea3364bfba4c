# The image of scheduler, webhook, controller, monitor and driver: one program, `gpu-scheduler`, with a subcommand for each.
# `docker build .` downloads the wheels that requirements/ locks, by their hashes. Role images downloads the same wheels on
# the host and gives them as an image, WHEELHOUSE_IMAGE: then the build needs no network.
ARG BASE_IMAGE=python:3.13-slim
ARG WHEELHOUSE_IMAGE=downloaded

# The condition is for builders that build every stage, needed or not. PIP_INDEX_URL and PIP_TRUSTED_HOST are pip's own.
# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS download
ARG WHEELHOUSE_IMAGE
ARG PIP_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY requirements/payload.txt requirements/build.txt /src/requirements/
RUN mkdir /wheelhouse \
    && if [ "$WHEELHOUSE_IMAGE" = downloaded ]; then \
        python3 -m venv /opt/download \
        && /opt/download/bin/pip download --disable-pip-version-check --quiet --require-hashes --no-deps --only-binary :all: \
            --dest /wheelhouse -r /src/requirements/payload.txt -r /src/requirements/build.txt; \
    fi

FROM scratch AS downloaded
COPY --from=download /wheelhouse /

# hadolint ignore=DL3006
FROM ${WHEELHOUSE_IMAGE} AS wheelhouse

# The payload's dependencies. Their environment has no pip: a second environment's pip installs them and is left out.
# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS foundation
ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheelhouse PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY --from=wheelhouse / /wheelhouse/
COPY requirements/payload.txt requirements/build.txt /src/requirements/
# Compiled here because the root is read-only at run time; unchecked, because sources in an image never change.
RUN python3 -m venv /opt/build \
    && python3 -m venv --without-pip /opt/gpu-scheduler \
    && /opt/build/bin/pip install --require-hashes --no-compile -r /src/requirements/build.txt \
    && /opt/build/bin/pip --python /opt/gpu-scheduler install --require-hashes --no-compile -r /src/requirements/payload.txt \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/gpu-scheduler/lib

# The payload is installed under a root of its own, so that a code change makes a layer of kilobytes.
FROM foundation AS payload
COPY scheduler /src/scheduler
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /src/dist /src/scheduler \
    && /opt/build/bin/pip --python /opt/gpu-scheduler install --no-deps --no-compile --root /payload /src/dist/*.whl \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /payload /payload

# hadolint ignore=DL3006
FROM ${BASE_IMAGE}
# Removes setuid and setgid bits, a shell that can open connections, and a tool that makes certificates: nothing here needs them.
RUN find / -xdev \( -type f -o -type d \) -perm /6000 -exec chmod a-s {} + \
    && rm -f /bin/bash /bin/rbash /usr/bin/openssl
COPY --from=foundation /opt/gpu-scheduler /opt/gpu-scheduler
COPY --from=payload /payload /
# Without a fixed threshold glibc raises it after the first large object, and then keeps the memory of later ones.
ENV PATH=/opt/gpu-scheduler/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MALLOC_MMAP_THRESHOLD_=131072
# Numeric, so that the kubelet can check runAsNonRoot.
USER 1000:1000
EXPOSE 8080 8443
ENTRYPOINT ["gpu-scheduler"]
CMD ["--help"]
ARG COMMIT=unknown
ARG VERSION=unknown
ENV GPU_SCHEDULER_COMMIT=${COMMIT}
LABEL org.opencontainers.image.title="gpu-scheduler" \
      org.opencontainers.image.description="Says exactly which GPU on which node each replica gets" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
