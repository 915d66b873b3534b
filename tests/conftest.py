"""What all tests share: how hard hypothesis looks, free ports, and tests that run only when asked for.

GOODWATCH_EXAMPLES sets the examples of each property (default 100). With CI set the examples are the same at every
run, so that a red build can be repeated.
"""

import os
import socket

import pytest
from hypothesis import settings

settings.register_profile(
    "goodwatch",
    max_examples=int(os.environ.get("GOODWATCH_EXAMPLES", "100")),
    deadline=None,  # the machines that run this are shared; time is measured elsewhere
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("goodwatch")

ENGINE_SWITCH = "GOODWATCH_ENGINE_TEST"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marks known."""
    config.addinivalue_line("markers", f"engine: drives a real vLLM; runs only with {ENGINE_SWITCH}=1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the engine's tests out unless they were asked for."""
    if os.environ.get(ENGINE_SWITCH) == "1":
        return
    left_out = [item for item in items if item.get_closest_marker("engine")]
    items[:] = [item for item in items if not item.get_closest_marker("engine")]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def free_port() -> int:
    """A loopback TCP port that nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
