"""A second implementation of the protocol of docs/reference/protocol.md, from its text alone."""

import array
import json
import mmap
import socket
import struct

REGISTER, ACQUIRE, YIELD, IDLE, CHECK, STATUS, UPDATE, CONFIRM, MADE_ROOM, CHANGE, REQUESTS = range(1, 12)
REGISTERED, GRANTED, FITS, REPORT, ERROR, UPDATED, LIMIT, MAKE_ROOM, CHANGED = range(65, 74)
CALM = 1 << 31


class Wire:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.page = None

    def send(self, kind, **body):
        text = json.dumps(body).encode()
        self.socket.sendall(b"RGSH" + struct.pack("<HHI", 1, kind, len(text)) + text)

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            part, control, _, _ = self.socket.recvmsg(count - len(data), socket.CMSG_SPACE(8))
            assert part, f"the connection ended after {data!r}"
            data += part
            for _, _, rights in control:
                page, self.use = array.array("i", rights)
                self.page = mmap.mmap(page, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
        return data

    def receive(self):
        magic, version, kind, length = struct.unpack("<4sHHI", self._exactly(12))
        assert (magic, version) == (b"RGSH", 1)
        return kind, json.loads(self._exactly(length))

    def register(self, name, **options):
        self.send(REGISTER, name=name, identity=options.pop("identity", name), **options)
        kind, body = self.receive()
        assert kind == REGISTERED, body
        self.go = body["go"]

    def keep_going(self):
        return struct.unpack("<I", self.page[:4])[0] & ~CALM == self.go

    def nobody_waits(self):
        return struct.unpack("<I", self.page[:4])[0] == self.go | CALM

    def outranks_all(self):
        return struct.unpack("<I", self.page[4:8])[0] == 1

    def limit(self):
        """Bytes, depth to park at, generation."""
        word = struct.unpack("<Q", self.page[8:16])[0]
        return word & (2**54 - 1), ("pause", "spill", "leave")[word >> 54 & 3], word >> 56

    def close(self):
        self.socket.close()
