"""The store in memory does what a store must do."""

import pytest

from collector.stores.memory import MemoryStore
from tests.collector.stores.contract import RETENTION, FixedClock, Store, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(retention=RETENTION, clock=FixedClock())
