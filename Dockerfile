# Builds an image of Tailspan, and one of vLLM with the instrumentation (--target vllm).
ARG PYTHON=3.12.8-slim-bookworm
ARG VLLM=v0.12.0

FROM python:${PYTHON} AS build
WORKDIR /src
# A separate layer, which stays in the cache if only the code changes. The hashes are those of the
# wheels for the Python version above.
COPY deploy/requirements.lock deploy/requirements.lock
RUN python -m venv /opt/tailspan \
    && /opt/tailspan/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes --requirement deploy/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY instrumentation instrumentation
COPY alerts alerts
COPY analysis analysis
COPY cli cli
COPY collector collector
COPY cost cost
COPY dashboards dashboards
COPY diagnosis diagnosis
COPY exporters exporters
COPY probe probe
COPY replay replay
COPY roofline roofline
COPY server server
COPY simulator simulator
COPY store store
COPY telemetry telemetry
COPY ui ui
RUN /opt/tailspan/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-deps \
        --no-build-isolation ./instrumentation . \
    && /opt/tailspan/bin/python -m pip uninstall --yes --quiet hatchling pip

FROM vllm/vllm-openai:${VLLM} AS vllm
COPY instrumentation /opt/tailspan-vllm
RUN python3 -m pip install --no-cache-dir /opt/tailspan-vllm \
    && useradd --uid 10002 --create-home vllm \
    && install --directory --owner vllm /models
USER 10002
ENV HF_HOME=/models

FROM python:${PYTHON} AS tailspan
RUN useradd --uid 10001 --no-create-home --home-dir /var/lib/tailspan tailspan \
    && install --directory --owner tailspan /var/lib/tailspan
COPY --from=build /opt/tailspan /opt/tailspan
ENV PATH=/opt/tailspan/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/var/lib/tailspan \
    TAILSPAN_DATABASE_URL=sqlite:////var/lib/tailspan/tailspan.db
USER 10001
WORKDIR /var/lib/tailspan
VOLUME /var/lib/tailspan
EXPOSE 4317 4318 8501 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9464/healthz', timeout=4)"]
ENTRYPOINT ["tailspan"]
CMD ["up"]
