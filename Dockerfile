# An image for CI pipelines and servers: ngramkit with its kernels compiled.
#   docker build -t ngramkit .
#   docker run --rm -v "$PWD:/work" ngramkit build-datastore --corpus 'texts/*.txt' --model demo
# Kernels are compiled for the processor that builds the image. On another kind of processor
# each container compiles its own.
FROM python:3.11-slim

# torch's index of CPU builds makes the image some 5 GB smaller: --build-arg TORCH_INDEX=...
ARG TORCH_INDEX=
WORKDIR /opt/ngramkit
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY cli cli
COPY ngramkit ngramkit
RUN pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--index-url $TORCH_INDEX} "torch>=2.6,<2.14" \
 && pip install --no-cache-dir -c constraints.txt .

# Anybody may read the kernels here, nobody but root may write.
ENV NUMBA_CACHE_DIR=/opt/ngramkit/kernels
RUN ngramkit warm && chmod -R a+rX /opt/ngramkit

WORKDIR /work
ENTRYPOINT ["ngramkit"]
