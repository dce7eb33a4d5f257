"""A transaction coordinator without a broker, for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.groups.transactions.bench import TransactionBench


@pytest.fixture(params=[False, True], ids=["alone", "replicated"])
def bench(request: pytest.FixtureRequest) -> TransactionBench:
    return TransactionBench(request.param, transaction_state_log_num_partitions=2)
