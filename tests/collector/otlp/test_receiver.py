"""Starting, stopping, and addresses that cannot be used."""

import socket

import pytest

from collector.otlp.receiver import Listening
from goodwatch.core.errors import ConfigError
from tests.support.otlp_receiver import posting, receiving
from tests.support.otlp_spans import numbered

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("door", ["http", "grpc"])
async def test_an_address_in_use_is_said_plainly(door: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listening = Listening(**{"http": None, "grpc": None, door: ("127.0.0.1", port)})
        with pytest.raises(ConfigError, match=rf"otlp\.{door}: 127\.0\.0\.1:{port}: .*choose another address"):
            async with receiving(listening=listening):
                pass


async def test_one_door_may_stay_shut() -> None:
    async with receiving(listening=Listening(("127.0.0.1", 0), None)) as receiver:
        assert receiver.grpc_port is None
        async with posting(receiver, numbered(0, 1).SerializeToString()) as response:
            assert response.status == 200
    async with receiving(listening=Listening(None, ("127.0.0.1", 0))) as receiver:
        assert receiver.http_port is None


async def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6 at all")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    async with receiving(listening=Listening(("::1", 0), ("::1", 0))) as receiver:
        assert receiver.http_port
        assert receiver.grpc_port


async def test_the_same_address_serves_again_after_a_stop(free_port: int) -> None:
    for _ in range(2):
        async with (
            receiving(listening=Listening(("127.0.0.1", free_port), None)) as receiver,
            posting(receiver, numbered(0, 1).SerializeToString()) as response,
        ):
            assert response.status == 200
