"""Messages that a master makes before it sends them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mpi_match.cluster.at_once.messages import PreparedMessages
from mpi_match.cluster.transport.protocol import INLINE_BYTES, Command, Order, fields_of, inline_body

BLOCK = 4


class Wires:
    """The wire form of a batch is its number, so many times; BLOCK of them are read at a time."""

    def __init__(self, damaged: int = -1, n_bytes: int = 3) -> None:
        self.read: list[int] = []
        self._damaged, self._n_bytes = damaged, n_bytes

    def __call__(self, batch: int) -> Iterator[bytes]:
        self.read.append(batch)
        for number in range(batch, batch + BLOCK):
            if number == self._damaged:
                raise OSError(number)
            yield bytes([number] * self._n_bytes)


def test_messages_are_made_a_block_at_a_time_and_given_once() -> None:
    wires = Wires()
    messages = PreparedMessages(wires)
    messages.want([0, 1, 2])
    messages.want([2, 3, 4])
    assert wires.read == [0, 4]
    message = messages.pop(3)
    assert message is not None
    fields = fields_of(memoryview(message))
    assert Order(*fields) == Order(Command.MATCH, 3, n_events=3)
    body = inline_body(memoryview(message), 3)
    assert body is not None
    assert body.tolist() == [3, 3, 3]
    assert messages.pop(3) is None
    assert wires.read == [0, 4]


def test_a_wire_form_is_taken_whether_its_message_was_made_or_not() -> None:
    wires = Wires()
    messages = PreparedMessages(wires)
    messages.want([0])
    for batch, read in ((2, [0]), (2, [0, 2]), (9, [0, 2, 9])):
        wire, buffer = messages.take(batch)
        assert (wire.tolist(), buffer) == ([batch] * 3, None)
        assert wires.read == read
    assert messages.pop(3) is not None  # of the block that was wanted
    assert messages.pop(10) is None  # of a batch that was sent again, those behind it are not kept


def test_a_long_message_is_only_taken() -> None:
    messages = PreparedMessages(Wires(n_bytes=INLINE_BYTES + 1))
    messages.want([0])
    assert messages.pop(0) is None
    assert len(messages.take(0)[0]) == INLINE_BYTES + 1


def test_what_cannot_be_read_is_raised_when_it_is_taken() -> None:
    messages = PreparedMessages(Wires(damaged=2))
    messages.want([0, 1, 2, 3])
    assert messages.is_ready(2)
    assert messages.pop(1) is not None
    assert messages.pop(2) is None
    with pytest.raises(OSError, match="2"):
        messages.take(2)
    assert messages.take(3)[0].tolist() == [3] * 3
