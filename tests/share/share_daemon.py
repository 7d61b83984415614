"""`regen share serve` as a user would run it."""

import select
import signal
import subprocess

from regen_program import BINARY


class Daemon:
    """`regen share serve`; ready once it has said so."""

    def __init__(self, folder, *options):
        self.socket = str(folder / "s")
        self.process = subprocess.Popen(
            [str(BINARY), "share", "serve", "--socket", self.socket, "--settle", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        waiting = select.poll()  # select() knows descriptors below 1024 only
        waiting.register(self.process.stdout, select.POLLIN)
        assert waiting.poll(30_000), "the daemon does not start"
        self.greeting = self.process.stdout.readline()
        self.page = self.process.stdout.readline() if "--page" in options else None

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(30)
