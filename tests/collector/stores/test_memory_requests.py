"""The request store in memory keeps the contract."""

import pytest

from collector.stores.memory_requests import MemoryRequestStore
from tests.collector.stores.request_contract import RETENTION, RequestStoreContract, SetClock, Store


class TestMemoryRequestStore(RequestStoreContract):
    @pytest.fixture
    def store(self, clock: SetClock) -> Store:
        return MemoryRequestStore(retention=RETENTION, clock=clock)
