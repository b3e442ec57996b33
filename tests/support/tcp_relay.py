"""A TCP relay that hurts: what a bad network does to a connection, without being root.

    tcp_relay.py LISTEN_HOST:PORT UPSTREAM_HOST:PORT CONTROL_FILE

Port 0 takes a free one; the first line printed is the port. CONTROL_FILE is read every 50 ms:

    pass         bytes go through (also when there is no file)
    delay:SECONDS  each piece that much later, in order
    stall        nothing is forwarded, nothing is closed; on `pass` all that waited follows
    half         from the client nothing is forwarded any more, to it everything: half-open; on `pass` those
                 connections are reset
    reset        connections are reset; new ones are taken
"""

import asyncio
import pathlib
import socket
import struct
import sys

POLL = 0.05
PIECE = 1 << 16


class Relay:
    def __init__(self, upstream, control):
        self.upstream = upstream
        self.control = pathlib.Path(control)
        self.mode, self.seconds = "pass", 0.0
        self.changed = asyncio.Event()
        self.sockets = set()
        self.halved = set()

    async def watch(self):
        while True:
            words = self.control.read_text(encoding="ascii").strip() if self.control.exists() else "pass"
            mode, _, seconds = words.partition(":")
            if mode and (mode, float(seconds or 0)) != (self.mode, self.seconds):
                self.enter(mode, float(seconds or 0))
            await asyncio.sleep(POLL)

    def enter(self, mode, seconds):
        if mode == "reset":
            self.reset(self.sockets)
        elif self.mode == "half":
            self.reset(self.halved)
        self.mode, self.seconds = mode, seconds
        self.halved = set(self.sockets) if mode == "half" else set()
        self.changed.set()
        self.changed = asyncio.Event()

    @staticmethod
    def reset(writers):
        for writer in list(writers):
            raw = writer.get_extra_info("socket")
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def hold(self, from_client):
        """Until a piece may go on."""
        if self.mode == "delay":
            await asyncio.sleep(self.seconds)
        while self.mode == "stall" or (self.mode == "half" and from_client):
            await self.changed.wait()

    async def pump(self, reader, writer, from_client):
        try:
            while piece := await reader.read(PIECE):
                await self.hold(from_client)
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            await self.hold(from_client)
            writer.close()

    async def serve(self, reader, writer):
        try:
            up_reader, up_writer = await asyncio.open_connection(*self.upstream)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, up_writer}
        self.sockets |= both
        try:
            await asyncio.gather(self.pump(reader, up_writer, True), self.pump(up_reader, writer, False))
        finally:
            self.sockets -= both
            self.halved -= both


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


async def main(listen, upstream, control):
    relay = Relay(address(upstream), control)
    server = await asyncio.start_server(relay.serve, *address(listen))
    print(server.sockets[0].getsockname()[1], flush=True)
    await relay.watch()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
