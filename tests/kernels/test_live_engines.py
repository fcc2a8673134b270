"""Engines on a GPU while their table changes: those that take changes, held to the model by the machine of `live_machine`.

`test_live` has the refusals of the others, and the same with more examples on a real GPU.
"""

from __future__ import annotations

import pytest
from engine_names import GPU, refuses
from live_machine import run_machine


@pytest.mark.parametrize("name", GPU)
def test_subscribe_move_unsubscribe_and_match_in_any_order(name: str) -> None:
    if not refuses(name):
        run_machine(name, examples=3, steps=8)
