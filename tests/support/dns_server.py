"""A real DNS server on loopback, UDP and TCP on one port, whose zone a test rewrites while it runs."""

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset


@dataclass
class DnsServer:
    """``zone`` is (name, kind) → records; a name that is in it under no kind at all does not exist."""

    port: int = 0
    zone: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    ttl_s: int = 30
    rcode: str = "NOERROR"  # anything else is the answer to every question
    silent: bool = False
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # (name, kind, "udp" or "tcp")

    def put(self, name: str, kind: str, *records: str) -> None:
        self.zone[name, kind] = list(records)

    def answer(self, wire: bytes, transport: str) -> bytes | None:
        query = dns.message.from_wire(wire)
        (question,) = query.question
        name, kind = question.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind, transport))
        if self.silent:
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if self.rcode != "NOERROR":
            response.set_rcode(dns.rcode.from_text(self.rcode))
        elif name not in {known for known, _ in self.zone}:
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif records := self.zone.get((name, kind)):
            response.answer.append(dns.rrset.from_text(question.name, self.ttl_s, "IN", kind, *records))
        full = response.to_wire(max_size=65535)
        room = query.payload if query.edns >= 0 else 512
        if transport == "tcp" or len(full) <= room:
            return full
        short = dns.message.make_response(query)
        short.flags |= dns.flags.TC
        return short.to_wire()


@contextmanager
def dns_server() -> Iterator[DnsServer]:
    """Serve an empty zone on a free port."""
    server = DnsServer()

    class Udp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            wire, sock = self.request
            if (answer := server.answer(wire, "udp")) is not None:
                sock.sendto(answer, self.client_address)

    class Tcp(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(ConnectionError, struct.error):
                (size,) = struct.unpack("!H", self.rfile.read(2))
                if (answer := server.answer(self.rfile.read(size), "tcp")) is not None:
                    self.wfile.write(struct.pack("!H", len(answer)) + answer)

    with both(Udp, Tcp) as server.port:
        yield server


@contextmanager
def both(udp: type[socketserver.BaseRequestHandler], tcp: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    """Both servers on one port that was free for both."""
    for _ in range(20):
        listening = socketserver.ThreadingTCPServer(("127.0.0.1", 0), tcp)
        listening.daemon_threads = True
        port = listening.server_address[1]
        try:
            packets = socketserver.ThreadingUDPServer(("127.0.0.1", port), udp)
            break
        except OSError:
            listening.server_close()
    else:
        raise AssertionError("no port is free for both UDP and TCP")
    packets.daemon_threads = True
    threads = [threading.Thread(target=s.serve_forever, args=(0.05,), daemon=True) for s in (listening, packets)]
    for thread in threads:
        thread.start()
    try:
        yield port
    finally:
        for one in (listening, packets):
            one.shutdown()
            one.server_close()
        for thread in threads:
            thread.join(5)


def silent_port() -> tuple[socket.socket, int]:
    """A UDP socket that nobody reads: questions to it are lost."""
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    held.bind(("127.0.0.1", 0))
    return held, held.getsockname()[1]
