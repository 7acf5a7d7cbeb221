# Vantage with all extras. `docker build -t vantage .` takes torch's CPU build, `--build-arg DEVICE=cuda` the CUDA build,
# which needs an NVIDIA driver and `docker run --gpus all`. Runs are written to /runs:
#   docker run --rm --shm-size 1g -v "$PWD/runs:/runs" vantage train ppo --env CartPole-v1
FROM python:3.12-slim

# For environments that draw with OpenGL, such as MuJoCo's. Debian's mirrors keep no older versions to pin.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libegl1 libgl1 \
 && rm -rf /var/lib/apt/lists/*
ENV MUJOCO_GL=egl PYTHONUNBUFFERED=1

ARG DEVICE=cpu
WORKDIR /opt/vantage
COPY constraints.txt .
# A layer of its own: torch is most of the image, and changes less often than Vantage. uv knows where its CPU build is.
RUN pip install --no-cache-dir uv==0.13.9 \
 && if [ "$DEVICE" = cpu ]; then export UV_TORCH_BACKEND=cpu; fi \
 && uv pip install --system --no-cache --constraint constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt '.[all]'

RUN useradd --uid 1000 --create-home vantage && install --directory --owner vantage /runs
USER 1000
# `vantage train` writes to runs/ in the current folder.
WORKDIR /
ENTRYPOINT ["vantage"]
CMD ["--help"]
