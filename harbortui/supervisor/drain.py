"""Where a child's output goes: `<process>.log`, with a time before each line, secrets replaced, rotated by size.

Part of the keeper: light modules of the standard library only, imported without `site`.

Guarantees: `feed` never raises and never blocks on more than a local write. All rotated files of one log together take
about `limit * files` bytes. A secret is found wherever the chunks of output were cut. A line longer than LONGEST is
written in parts.

On failure: what cannot be written (disk full) is dropped and counted, and the gap is told in the log afterwards.
"""

import os
import time

CHUNK = 1 << 16
LONGEST = 1 << 16


class Log:
    """`<process>.log`: a time before each line, secrets replaced, rotated by size."""

    def __init__(self, path: str, limit: int, files: int, secrets: list[bytes]) -> None:
        self.path, self.limit, self.files = path, max(limit, CHUNK), max(files, 1)
        self.secrets = sorted((s for s in secrets if s), key=len, reverse=True)
        self.overlap = max((len(s) for s in self.secrets), default=1) - 1
        self.rest = b""
        self.middle = False
        self.dropped = 0
        self.fd = -1
        self.size = 0
        self.second, self.prefix = -1, b""

    def stamp(self) -> bytes:
        now = time.time()
        if int(now) != self.second:
            self.second = int(now)
            self.prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)).encode()
        return b"%s.%03dZ " % (self.prefix, int(now % 1 * 1000))

    def redact(self, data: bytes) -> bytes:
        for secret in self.secrets:
            data = data.replace(secret, b"[redacted]")
        return data

    def feed(self, data: bytes) -> None:
        data = self.rest + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > LONGEST + self.overlap:
            end = len(data) - self.overlap
            # a secret that straddles the cut must be seen whole: cut before it
            for secret in self.secrets:
                start = data.rfind(secret, 0, end + len(secret) - 1)
                if start != -1 and start < end < start + len(secret):
                    end = start
        self.rest = data[end:]
        if b"\r" in self.rest and len(self.rest) > CHUNK // 2:
            self.rest = last_state(self.rest)
        if end:
            self.emit(data[:end])

    def show_progress(self) -> None:
        """A line that is painted over and over (a progress bar) and has no end yet: its present state, as a line."""
        if b"\r" in self.rest:
            line, self.rest = last_state(self.rest), b""
            self.emit(line + b"\n")

    def emit(self, data: bytes) -> None:
        stamp = self.stamp()
        data = self.redact(data)
        if b"\r" in data:
            data = b"\n".join(last_state(line) for line in data.split(b"\n"))
        whole = data.endswith(b"\n")
        body = data[:-1] if whole else data
        body = body.replace(b"\n", b"\n" + stamp)
        if not self.middle:
            body = stamp + body
        self.middle = not whole
        self.write(body + b"\n" if whole else body)

    def close_line(self) -> None:
        if self.rest:
            rest, self.rest = self.rest, b""
            self.emit(rest)
        if self.middle:
            self.middle = False
            self.write(b"\n")

    def say(self, text: str) -> None:
        self.close_line()
        self.emit(("[keeper] " + text + "\n").encode())

    def write(self, data: bytes) -> None:
        try:
            if self.fd < 0:
                self.open()
            if self.size >= self.limit:
                self.rotate()
            if self.dropped:
                note = b"%s[keeper] %d bytes of output dropped: the log could not be written\n" % (
                    self.stamp(),
                    self.dropped,
                )
                self.put(note)
                self.dropped = 0
            self.put(data)
        except OSError:
            self.dropped += len(data)

    def put(self, data: bytes) -> None:
        while data:
            n = os.write(self.fd, data)
            self.size += n
            data = data[n:]

    def open(self) -> None:
        self.fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self.fd).st_size

    def rotate(self) -> None:
        for i in range(self.files - 1, 0, -1):
            older = self.path if i == 1 else "%s.%d" % (self.path, i - 1)
            try:
                os.replace(older, "%s.%d" % (self.path, i))
            except FileNotFoundError:
                pass
        fd, self.fd = self.fd, -1
        os.close(fd)
        if self.files == 1:
            os.truncate(self.path, 0)
        self.open()


def last_state(line: bytes) -> bytes:
    """What a terminal would show of a line that returns to its beginning."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]
