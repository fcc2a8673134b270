"""Parameters of tests that are one more combination of what others test: only `make test-lasting` runs them."""

from __future__ import annotations

from typing import Any

import pytest


def lasting(*cases: Any) -> list[Any]:
    """These cases, marked `lasting`; a tuple is a case of several parameters."""
    return [pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.lasting) for each in cases]
