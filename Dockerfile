# The program and the image server. Build and run:
#
#     docker build --tag thera .
#     docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/pictures" thera upscale photo.jpg --scale 4
#     docker run --rm --publish 8182:8182 --volume "$PWD/scans:/pictures:ro" --read-only --tmpfs /cache \
#         thera serve /pictures --host 0.0.0.0
#
# docs/serving.md explains the options of `thera serve`.

FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/thera \
    && /opt/thera/bin/pip install --no-cache-dir --no-compile '.[web]'

FROM python:3.13-slim
RUN useradd --system --uid 1000 --home-dir /pictures thera \
    && mkdir --mode 1777 /pictures /cache
COPY --from=build /opt/thera /opt/thera
ENV PATH=/opt/thera/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/cache
USER thera
WORKDIR /pictures
EXPOSE 8182
# `thera serve` is healthy if it answers on port 8182, all else as long as it runs. For another port, change
# --publish (9000:8182). With `thera serve --port`, start the container with --no-healthcheck.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as web; serves = b'serve' in open('/proc/1/cmdline', 'rb').read().split(b'\\0'); serves and web.urlopen('http://127.0.0.1:8182/', timeout=4)"]
# `docker stop` sends SIGTERM: the program ends within seconds and leaves no partial file.
ENTRYPOINT ["thera"]
CMD ["--help"]
