# Builds the gateway and puts it, alone, into a small image that runs without root.
#
#   docker build -t portcullis .
#   docker run --rm -v "$PWD/config:/srv/portcullis/config:ro" -p 8787:8787 portcullis
#
# The working folder is laid out as the repository is: `config/portcullis.yaml` is read if it is there, else the embedded
# default runs, which serves the container's own loopback only. Whatever else is to be reached from outside must say so in
# `listen.address`. State and audit belong on a volume at `/srv/portcullis/var`.

FROM rust:1.95-bookworm AS builder
WORKDIR /src
COPY Cargo.toml Cargo.lock README.md ./
COPY benches benches
COPY config config
COPY policies policies
COPY src src
RUN cargo build --profile dist --locked \
    && mkdir -p /out/var \
    && cp target/dist/portcullis /out/

FROM debian:bookworm-slim
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/portcullis/
COPY --from=builder /out/portcullis /usr/local/bin/portcullis
COPY --from=builder --chown=65532:65532 /out/var /srv/portcullis/var
WORKDIR /srv/portcullis
USER 65532:65532
EXPOSE 8787 8788
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["portcullis", "health"]
ENTRYPOINT ["portcullis"]
CMD ["serve"]
