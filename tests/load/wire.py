"""HTTP/1.1 over asyncio sockets: requests are bytes, so that clients can also send invalid ones."""

import asyncio
import json
import socket
import struct
import time


class Closed(Exception):
    """The peer closed or reset the connection before the end of a response."""


class Response:
    """A response with its whole body."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def text(self):
        return self.body.decode("utf-8", "replace")

    def messages(self):
        """Returns the JSON-RPC messages of the body, which is JSON or an event stream."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return [json.loads(self.body)]
        return [json.loads(data) for data in events(self.text()) if data]


def events(text):
    """Returns the data of each event of an event stream."""
    blocks = text.replace("\r\n", "\n").split("\n\n")
    for block in blocks:
        data = [line[5:].strip() for line in block.split("\n") if line.startswith("data:")]
        if data:
            yield "\n".join(data)


def request(method, path, headers, body=b""):
    """Returns the bytes of a request. `Content-Length` is added to requests with a body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Connection:
    """A TCP connection to a server."""

    def __init__(self, reader, writer, started):
        self.reader = reader
        self.writer = writer
        # The time before the connection began.
        self.started = started

    @classmethod
    async def open(cls, address, receive_buffer=None):
        """Connects. `receive_buffer` is the size in bytes of the receive buffer of the socket."""
        started = time.monotonic()
        sock = socket.socket()
        sock.setblocking(False)
        try:
            if receive_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, address)
            # The limit is that of a line of a response, and of what asyncio reads ahead.
            limit = receive_buffer or 2**20
            reader, writer = await asyncio.open_connection(sock=sock, limit=limit)
        except BaseException:
            sock.close()
            raise
        return cls(reader, writer, started)

    async def send(self, data):
        try:
            self.writer.write(data)
            await self.writer.drain()
        except OSError as error:
            raise Closed(f"while sending: {error}") from None

    async def head(self):
        """Reads the head of a response, and returns its status and headers."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            raise Closed(f"after {len(error.partial)} bytes of a response") from None
        except OSError as error:
            raise Closed(f"while receiving: {error}") from None
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        return int(first.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def chunk(self):
        """Reads a chunk of a response. Returns nothing after the last one."""
        try:
            size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
            data = await self.reader.readexactly(size + 2)
        except asyncio.IncompleteReadError:
            raise Closed("within the body of a response") from None
        except OSError as error:
            raise Closed(f"while receiving a body: {error}") from None
        return data[:-2]

    async def response(self):
        """Reads a response with its body."""
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            body = bytearray()
            while data := await self.chunk():
                body += data
            return Response(status, headers, bytes(body))
        try:
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        except asyncio.IncompleteReadError:
            raise Closed("within the body of a response") from None
        except OSError as error:
            raise Closed(f"while receiving a body: {error}") from None
        return Response(status, headers, body)

    async def exchange(self, data):
        """Sends a request and reads its response."""
        await self.send(data)
        return await self.response()

    async def is_closed_by_peer(self, seconds):
        """Returns whether the peer closes the connection within this time. Drops what it sends."""
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def port(self):
        """Returns the port of this side."""
        return self.writer.get_extra_info("sockname")[1]

    def close(self):
        self.writer.close()

    def reset(self):
        """Closes the connection with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
