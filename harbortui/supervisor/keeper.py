"""The keeper: one small process per child, between the child and everything that may die above it.

Run by the supervisor as `python -I -S` with nothing but light modules of the standard library, a marshalled spec on
stdin and a first connection on a descriptor that it inherits. It starts the child in a session of its own, drains its
output, reaps it and all its orphans, and tells whoever is connected to its socket.

Guarantees: the child's output is always drained, whatever becomes of the log. The keeper and its child outlive the
supervisor; if the keeper dies, the child dies with it. The end of the child is told at once and kept in a file
until somebody has heard it. `gone` is said only when no descendant is left.

Lines it understands: `stop SIGNAL SECONDS`, `release`. Lines it says:
`hello PID START CODE WALL` (CODE `-` while alive), `exit CODE WALL` (negative: by signal), `gone`.

On failure: a log that cannot be written (disk full) is skipped and the gap is counted in the log when it can be
written again. A command that cannot be started ends with code 127 and its reason in the log.
"""

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import errno
import fcntl
import marshal
import os
import select
import sys
import time

from harbortui.supervisor.drain import CHUNK, Log

GRACE = 3.0
LOOK = 10.0
BAR = 2.0
HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
IGNORED = (signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT)


def start_child(spec: dict, output: int) -> int:  # type: ignore[type-arg]
    """Fork and exec in a new session; the kernel kills the child when this keeper dies.

    Signals are blocked until the child has its own session and no handlers of ours, so that none is swallowed.
    """
    me = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, (*HEARD, *IGNORED))
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*HEARD, *IGNORED))
        return pid
    try:
        os.setsid()
        for number in (*HEARD, *IGNORED):
            signal.signal(number, signal.SIG_DFL)
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != me:
            os._exit(127)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, 4096)
        if spec["cwd"]:
            os.chdir(spec["cwd"])
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvpe(spec["command"][0], spec["command"], spec["env"])
    except BaseException as error:
        os.write(2, ("cannot start %s: %s\n" % (spec["command"][0], error)).encode("utf-8", "replace"))
    finally:
        os._exit(127)


def children() -> list[int]:
    """Our direct children now, zombies too. Orphans of theirs become ours when their parents end."""
    me = os.getpid()
    try:
        with open("/proc/self/task/%d/children" % me) as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open("/proc/%s/stat" % name, "rb") as file:
                        if int(file.read().rpartition(b")")[2].split()[1]) == me:
                            found.append(int(name))
                except (OSError, IndexError):
                    pass
        return found


def start_time(pid: int) -> int:
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def send(pid: int, number: int, group: bool = False) -> None:
    try:
        (os.killpg if group else os.kill)(pid, number)
    except ProcessLookupError:
        if group:
            send(pid, number)
    except OSError:
        pass


class Keeper:
    def __init__(self, spec: dict, first: int) -> None:  # type: ignore[type-arg]
        self.spec, self.first = spec, first
        self.log = Log(spec["log"], spec["log_bytes"], spec["log_files"], spec["redact"])
        self.clients: dict[int, tuple[socket.socket, bytes]] = {}
        self.code: int | None = None
        self.died = 0.0
        self.kill_at: float | None = None
        self.released = False
        self.recorded = False
        self.child_gone = False
        self.looked = self.shown = time.monotonic()

    def run(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in HEARD:
            signal.signal(number, self.noted)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        self.asked_to_stop = False
        self.listen()
        self.output, write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.output, False)
        try:
            fcntl.fcntl(self.output, 1031, 1 << 20)  # F_SETPIPE_SZ: more room for a burst
        except OSError:
            pass
        self.pid = start_child(self.spec, write_end)
        os.close(write_end)
        self.start = start_time(self.pid)
        poll = self.poll = select.poll()
        poll.register(wake_read, select.POLLIN)
        poll.register(self.output, select.POLLIN)
        self.join(socket.socket(fileno=self.first))
        poll.register(self.listener, select.POLLIN)
        while not self.finished():
            self.keep_listening()
            self.show_progress()
            for fd, _ in poll.poll(self.patience()):
                if fd == wake_read:
                    os.read(wake_read, 4096)
                elif fd == self.output:
                    self.drain(4)
                elif fd == self.listener.fileno():
                    try:
                        self.join(socket.socket(fileno=self.listener._accept()[0]))  # type: ignore[attr-defined]
                    except OSError:
                        pass
                elif fd in self.clients:
                    self.hear(fd)
            if self.asked_to_stop:
                self.asked_to_stop = False
                self.stop(signal.SIGTERM, self.spec["stop_deadline"])
            self.reap()
            self.press()
        self.log.close_line()
        self.unlink(self.spec["socket"])

    def noted(self, number: int, frame: object) -> None:
        self.asked_to_stop = self.asked_to_stop or number != signal.SIGCHLD

    def listen(self) -> None:
        self.unlink(self.spec["socket"])
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o077)
        try:
            os.makedirs(os.path.dirname(self.spec["socket"]), exist_ok=True)
            self.listener.bind(self.spec["socket"])
        finally:
            os.umask(old)
        self.listener.listen(4)
        self.listener.setblocking(False)

    def show_progress(self) -> None:
        now = time.monotonic()
        if b"\r" in self.log.rest and now > self.shown + BAR:
            self.shown = now
            self.log.show_progress()

    def keep_listening(self) -> None:
        """The folder of our socket may be removed under us (a logout): be there again for the next supervisor."""
        now = time.monotonic()
        if now < self.looked + LOOK or self.child_gone:
            return
        self.looked = now
        if not os.path.exists(self.spec["socket"]):
            self.poll.unregister(self.listener)
            self.listener.close()
            try:
                self.listen()
            except OSError as error:
                self.log.say("cannot listen: %s" % error)
            self.poll.register(self.listener, select.POLLIN)

    def finished(self) -> bool:
        if not self.child_gone or self.released:
            return self.child_gone
        nobody_will_ask = self.recorded or not os.path.isdir(os.path.dirname(self.spec["exit"]))
        return nobody_will_ask and not self.clients

    def patience(self) -> int:
        """Milliseconds until there is something to do unasked: look for our socket, or kill."""
        look = BAR if b"\r" in self.log.rest else LOOK
        wait = look if self.kill_at is None else max(0.0, min(look, self.kill_at - time.monotonic()))
        return int(wait * 1000) + 1

    def drain(self, rounds: int) -> None:
        for _ in range(rounds):
            try:
                data = os.read(self.output, CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.poll.unregister(self.output)
                os.close(self.output)
                self.output = -1
                self.log.close_line()
                return
            self.log.feed(data)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                if self.code is not None and not self.child_gone:
                    self.all_gone()
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.ended(os.waitstatus_to_exitcode(status))

    def ended(self, code: int) -> None:
        """The child's end: what it last said is in the log before its end is told."""
        self.code, self.died = code, time.time()
        if self.output >= 0:
            self.drain(32)
        self.log.close_line()
        self.record()
        self.tell("exit %d %.6f" % (code, self.died))
        left = [pid for pid in children() if pid != self.pid]
        for pid in left:
            send(pid, signal.SIGTERM)
        if left:
            self.log.say("%d processes outlived their parent and are ended" % len(left))
            deadline = time.monotonic() + GRACE
            self.kill_at = deadline if self.kill_at is None else min(deadline, self.kill_at)

    def all_gone(self) -> None:
        self.child_gone = True
        self.kill_at = None
        if self.output >= 0:
            self.drain(64)
        self.record()
        self.tell("gone")

    def record(self) -> None:
        aside = self.spec["exit"] + ".aside"
        try:
            with open(aside, "w") as file:
                left = "gone" if self.child_gone else "left"
                file.write(f"{self.pid} {self.start} {self.code} {self.died:.6f} {left}\n")
            os.replace(aside, self.spec["exit"])
            self.recorded = True
        except OSError:
            self.recorded = False

    def press(self) -> None:
        """Past the deadline: kill every child we have; their orphans become ours and are killed next time round."""
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            if self.code is None:
                send(self.pid, signal.SIGKILL, group=True)
            for pid in children():
                send(pid, signal.SIGKILL)
            self.kill_at = time.monotonic() + 0.05

    def stop(self, number: int, deadline: float) -> None:
        if self.code is None:
            send(self.pid, number, group=True)
            send(self.pid, signal.SIGCONT, group=True)
        end = time.monotonic() + deadline
        self.kill_at = end if self.kill_at is None else min(end, self.kill_at)

    def join(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.clients[sock.fileno()] = (sock, b"")
        self.poll.register(sock, select.POLLIN)
        code = "-" if self.code is None else str(self.code)
        self.tell("hello %d %d %s %.6f" % (self.pid, self.start, code, self.died), only=sock.fileno())
        if self.child_gone:
            self.tell("gone", only=sock.fileno())

    def leave(self, fd: int) -> None:
        self.poll.unregister(fd)
        self.clients.pop(fd)[0].close()

    def hear(self, fd: int) -> None:
        sock, rest = self.clients[fd]
        try:
            data = sock.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.leave(fd)
            return
        *lines, rest = (rest + data).split(b"\n")
        self.clients[fd] = (sock, rest[-4096:])
        for line in lines:
            word, _, more = line.decode("ascii", "replace").partition(" ")
            try:
                if word == "stop":
                    number, seconds = more.split()
                    self.stop(int(number), float(seconds))
                elif word == "release":
                    self.released = True
            except ValueError:
                pass

    def tell(self, line: str, only: int | None = None) -> None:
        for fd, (sock, _) in list(self.clients.items()):
            if only in (None, fd):
                try:
                    sock.send(line.encode() + b"\n")
                except OSError as error:
                    if error.errno != errno.EAGAIN:
                        self.leave(fd)

    @staticmethod
    def unlink(path: str) -> None:
        try:
            os.unlink(path)
        except OSError:
            pass


def main() -> None:
    """argv: the package's folder, the descriptor of the first connection, the socket (for `ps` to show whose it is)."""
    with open(0, "rb", closefd=False) as stdin:
        spec = marshal.loads(stdin.read())
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    try:
        Keeper(spec, int(sys.argv[2])).run()
    except Exception as error:
        Log(spec["log"], 1 << 30, 2, []).say(f"failed: {error!r}")
        sys.exit(1)
