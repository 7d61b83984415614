"""`regen share serve --page` as a user would run it, and what a browser would ask."""

import http.client
import json
import re
import signal
import urllib.parse

from share_daemon import Daemon

HOSTILE = ["<script>window.hacked = 1</script>", "\"><img src=x onerror='window.hacked = 1'>", "a\u202egnp.exe", "${window.hacked = 1}",
           "\\\"} 1\nregen_share_fake 1"]


class Page:
    """A daemon with a page, and what a browser would ask."""

    def __init__(self, folder, *options):
        self.daemon = Daemon(folder, "--device", "gpu0:16GiB", "--device", "gpu1:1000", "--page", "127.0.0.1:0", *options)
        self.socket = self.daemon.socket
        self.url = re.fullmatch(r"page at (http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{64})\n", self.daemon.page)[1]
        parts = urllib.parse.urlsplit(self.url)
        self.host, self.port, self.query = parts.netloc, parts.port, parts.query
        self.token = self.query.removeprefix("token=")

    def get(self, path, method="GET", **fields):
        """(status, fields, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, headers=fields)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def ok(self, path):
        status, _, body = self.get(path, Authorization=f"Bearer {self.token}")
        assert status == 200
        return body

    def json(self, path="/status.json"):
        return json.loads(self.ok(path))

    def stop(self):
        self.daemon.stop(signal.SIGKILL)
        self.daemon.process.stdout.close()
        self.daemon.process.stderr.close()
