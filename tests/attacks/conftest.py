"""The house lives as long as the suite; a tenant as long as one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attacks.house import House, Tenant
from tests.integration.served import UNREVIEWED

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Everything that the roles ship, on a real API server, with our programs running."""
    house = House(tmp_path_factory.mktemp("house"))
    yield house
    house.stop()


@pytest.fixture
def tenant(house: House) -> Iterator[Tenant]:
    """Somebody with ClusterRole `admin` in a namespace of their own."""
    tenant = Tenant(house)
    yield tenant
    tenant.leave()


@pytest.fixture
def unreviewed(house: House) -> Iterator[Tenant]:
    """Likewise, in a namespace whose pods slip by the webhook: what stands there is left to policies and bind gate."""
    tenant = Tenant(house, **{UNREVIEWED.replace("/", "_"): ""})
    yield tenant
    tenant.leave()
