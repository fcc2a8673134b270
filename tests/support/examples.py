"""Numbers of examples of the tests of properties: all in `make test-lasting`, two of five in `make test`."""

from __future__ import annotations

from hypothesis import settings

ALL_EXAMPLES = 40
"""Of a test that names no number."""
FEW_EXAMPLES = 16


def examples(n: int) -> int:
    """The number for a test that has `n` of them in `make test-lasting`."""
    profile = settings.default
    assert profile is not None
    return n if profile.max_examples >= ALL_EXAMPLES else n * FEW_EXAMPLES // ALL_EXAMPLES
