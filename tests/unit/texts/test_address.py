from __future__ import annotations

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.texts.address import address, network

texts = (
    st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6).map(str)
    | st.ip_addresses(v=6).map(lambda found: found.exploded.upper())
    | st.from_regex(r"[0-9a-fA-F:.]{0,46}", fullmatch=True)
    | st.lists(st.sampled_from(["0", "1", "255", "ffff", "10.0.0.1", ":", "::", "00"]), max_size=10).map("".join)
    | st.lists(st.sampled_from(["0", "7", "255", "256", "01", "", "٣"]), max_size=5).map(".".join)
)


@given(texts)
def test_addresses_are_those_of_the_standard_library(text: str) -> None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        assert address(text) is None
        return
    assert address(text) == (int(found) if found.version == 4 else f"{int(found):0128b}")


@pytest.mark.parametrize(
    "text", ["", "1", "fe80::1%eth0", "1.2.3.4 ", "1.2.3", "0x1.2.3.4", "1.2.3.04", "::ffff:1.2.3.4/1", "a" * 10**6]
)
def test_no_address(text: str) -> None:
    assert address(text) is None


@given(st.ip_addresses(), st.ip_addresses(), st.integers(0, 128))
def test_an_address_is_in_a_network_as_the_standard_library_says(
    found: ipaddress.IPv4Address | ipaddress.IPv6Address, start: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int
) -> None:
    text = f"{start}/{min(bits, start.max_prefixlen)}"
    inside, value = network(text), address(str(found))
    expected = found in ipaddress.ip_network(text, strict=False)
    if isinstance(inside, tuple):
        assert (isinstance(value, int) and inside[0] <= value <= inside[1]) == expected
    else:
        assert (isinstance(value, str) and value.startswith(inside)) == expected


def test_networks() -> None:
    assert network("10.0.0.1/8") == (10 << 24, (11 << 24) - 1)
    assert network("10.0.0.1") == (0x0A000001, 0x0A000001)
    assert network("0.0.0.0/0") == (0, 2**32 - 1)
    assert network("::/0") == ""
    assert network("8000::/1") == "1"
    assert network("::1") == "0" * 127 + "1"


@pytest.mark.parametrize(
    "text", ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/255.0.0.0", "::/129", "x/8", "10.0.0.0/8/8"]
)
def test_no_network(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        network(text)
