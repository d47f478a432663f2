#!/usr/bin/env python3
"""The memory of a gateway per stream that waits: opens many relayed streams and lets them lie.

    bench/streams.py --port 9200 --pid PID [--streams 2000]

The gateway must run already, with `bench/mock-upstream` behind it (the mock pauses between the events of a stream as the
request's marker says). Prints the resident memory before, with all streams open and waiting, and per stream.
"""

import argparse
import asyncio
import json
import resource
from pathlib import Path

BODY = json.dumps({
    "model": "mock-model",
    "stream": True,
    "messages": [{"role": "user", "content": "Tell me slowly. [[mock chunks=60 interval_ms=60000]]"}],
}).encode()


def resident_kib(pid: int) -> int:
    """Resident memory of a process, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


async def one(port: int, path: str) -> asyncio.StreamWriter:
    """A stream of which the first event has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    writer.write(head.encode() + BODY)
    seen = b""
    while b"data: " not in seen:
        piece = await reader.read(4096)
        if not piece:
            raise SystemExit(f"a stream ended: {seen[:400]!r}")
        seen += piece
    return writer


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=9200)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--path", default="/v1/chat/completions")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * options.streams)), hard))
    (await one(options.port, options.path)).close()
    await asyncio.sleep(0.5)
    before = resident_kib(options.pid)
    writers = []
    while len(writers) < options.streams:
        writers += await asyncio.gather(*(one(options.port, options.path) for _ in range(min(50, options.streams - len(writers)))))
    await asyncio.sleep(1)
    during = resident_kib(options.pid)
    for writer in writers:
        writer.close()
    await asyncio.sleep(2)
    after = resident_kib(options.pid)
    per = (during - before) / options.streams
    print(f"before {before} KiB, with {options.streams} streams {during} KiB, after {after} KiB: {per:.1f} KiB a stream")


if __name__ == "__main__":
    asyncio.run(main())
