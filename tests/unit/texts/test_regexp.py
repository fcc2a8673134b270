from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.texts.code_points import category, complement, utf8
from mpi_match.texts.folding import fold
from mpi_match.texts.regexp import MAX_POSITIONS, compiled, matches
from mpi_match.texts.regexp_literals import literals
from mpi_match.texts.regexp_syntax import RegexpError

ATOMS = (
    *("a", "b", "k", "K", "1", "_", " ", "é", "€", "ſ", "ß", "\U0001f600", ".", "", "()"),
    *(r"\d", r"\w", r"\D", r"\W", r"\b", "^", r"\A", r"\n", r"\-", r"\x41", r"\."),
    *("[ab]", "[^a]", "[a-k]", r"[^\w]", "[é-€]", "[^é]", "[]a]", "[^]a]", "[a-]", r"[\d_]"),
)
"""Parts that mean the same to `re`, with `re.ASCII`, unless case is ignored."""
texts = st.text(alphabet="abkK1_ \n-é€ſß\U0001f600", max_size=8)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repetitions = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{1,3}", "{0}"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, repetitions).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(st.sampled_from(["", "?:", "?m:", "?s:", "?s-m:"]), inner).map(lambda pair: f"({pair[0]}{pair[1]})"),
    )


patterns = st.recursive(st.sampled_from(ATOMS), grown, max_leaves=8)


def found(pattern: str, text: str) -> bool:
    return matches(text.encode(), pattern.encode())


@given(patterns, st.lists(texts, min_size=1, max_size=8))
def test_finds_what_the_standard_library_finds(pattern: str, tried: list[str]) -> None:
    expected = re.compile(pattern, re.ASCII)
    for text in tried:
        assert found(pattern, text) == (expected.search(text) is not None), (pattern, text)


@given(patterns, texts, st.booleans())
def test_every_match_contains_a_literal(pattern: str, text: str, ignore_case: bool) -> None:
    pattern = f"(?i){pattern}" if ignore_case else pattern
    if found(pattern, text):
        plain, folded = literals(pattern), literals(pattern, folded=True)
        assert not plain or any(each in text for each in plain)
        assert not folded or any(each in fold(text) for each in folded)


@given(st.text(max_size=6), st.text(max_size=2), st.text(max_size=2))
def test_a_quoted_text_finds_its_folding_alone(text: str, before: str, behind: str) -> None:
    pattern = "(?is)^" + "".join(f"\\x{{{ord(char):x}}}" for char in before + text) + "$"
    assert found(pattern, fold(before + text))
    assert found(pattern, before + text)
    assert found(pattern, before + text + behind) == (fold(before + text) == fold(before + text + behind))


@pytest.mark.parametrize(
    "ranges", [category("L"), category("Lu"), complement(((97, 97),)), ((0x7F, 0x800), (0xFFFF, 0x10000))]
)
def test_utf8_of_sets_is_exact_among_characters(ranges: tuple[tuple[int, int], ...]) -> None:
    inside = {code for low, high in ranges for code in range(low, high + 1)}
    for code in (*range(0x3100), *range(0xD700, 0xD800), *range(0xE000, 0x10500), *range(0x10FF00, 0x110000)):
        tree = utf8(ranges)
        for byte in chr(code).encode():
            behind = [other for some, other in tree or () if some >> byte & 1]
            assert len(behind) <= 1
            if not behind:
                tree = ()
                break
            tree = behind[0]  # type: ignore[assignment]
        assert (tree is None) == (code in inside), hex(code)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a$", "a\n", False),
        ("(?m)a$", "a\nb", True),
        ("^b", "a\nb", False),
        ("(?m)^b", "a\nb", True),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("[^a]", "\n", True),
        (r"\s", "\v", False),
        ("[[:space:]]", "\v", True),
        ("[[:^alpha:]]", "a", False),
        (r"\w", "é", False),
        (r"(?i)\w", "ſ", True),
        (r"\pL", "é", True),
        (r"\p{^Lu}", "É", False),
        (r"\PN", "1", False),
        (r"\Qa.b\E+$", "a.bb", True),
        (r"\Qa.b", "axb", False),
        (r"\101\x{1F600}", "A\U0001f600", True),
        ("a{,2}", "a{,2}", True),
        ("a{", "a{", True),
        ("(?i)K", "K", True),
        ("(?i)a(?-i)b", "AB", False),
        ("(?i:a)b", "Ab", True),
        ("(?i:a)b", "AB", False),
        ("(?i)a|b", "B", True),
        ("(?P<name>a)(?<other>b)", "ab", True),
        ("(?U)a+b", "aab", True),
        ("", "", True),
        ("[^\\x00-\\x{10FFFF}]", "a", False),
        (r"\B", "aéa", False),
        (r"a\b", "aé", True),
        ("a{1000}", "a" * 999, False),
        ("a{1000}", "a" * 1000, True),
        ("(?:(?:^a)*b)*$", "xb", True),
        (".{1000,}", "é" * 999, False),
        (".{1000,}", "é" * 1000, True),
        ("^.{2}$", "\U0001f600é", True),
        ("^[^a]{2}é$", "\U0001f600éé", True),
        (r"^.\B", "éa", False),
        ("^ab*$", "abb", True),
        ("^ab(?i)*$", "abb", True),
        ("^ab(?i)*$", "abab", False),
        ("^(?:ab)*$", "abab", True),
        ("^(?:ab)(?i)*$", "abab", True),
        ("^ab*(?i)?$", "", False),
        ("powershell.*-enc", "PowerShell -enc", False),
        ("(?i)powershell.*-enc", "PowerShell -ENC", True),
    ],
)
def test_cases(pattern: str, text: str, expected: bool) -> None:
    assert found(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "column", "said"),
    [
        ("ab(?=c)", 3, "look-ahead"),
        ("a(?!c)", 2, "look-ahead"),
        ("(?<=c)a", 1, "look-behind"),
        ("(?<!c)a", 1, "look-behind"),
        (r"(a)\1", 4, "back-reference"),
        ("(?P<n>a)(?P=n)", 9, "back-reference"),
        ("(?>a)", 1, "atomic"),
        (r"a\Z", 2, r"\z"),
        (r"a\y", 2, "not an escape"),
        (r"\_", 1, "not an escape"),
        (r"\é", 1, "not an escape"),
        ("a\\", 2, "backslash at the end"),
        ("(a", 1, "no ')'"),
        ("x((a)", 2, "no ')'"),
        ("a)", 2, "no '('"),
        ("[a", 1, "no ']'"),
        ("[]", 1, "no ']'"),
        ("[z-a]", 2, "before it begins"),
        (r"[a-\d]", 4, "not an escape"),
        ("[[:foo:]]", 2, "[:alpha:]"),
        ("*a", 1, "something to repeat"),
        ("a|*", 3, "something to repeat"),
        ("a**", 3, "another repetition"),
        ("a{2}{3}", 5, "another repetition"),
        ("x{1000}{1000}", 8, "another repetition"),
        ("a{1001}", 2, "1000"),
        ("a{3,2}", 2, "n <= m"),
        ("a{99999999999999999999}", 2, "1000"),
        (r"\p{Greek}", 1, "scripts"),
        (r"\p", 1, "category"),
        (r"\xg0", 1, "hexadecimal"),
        (r"\x{110000}", 1, "hexadecimal"),
        ("(?z)", 1, "flags"),
        ("(?i", 1, "flags"),
        ("(?P<a-b>a)", 3, "name"),
        ("(?P>a)", 1, "recursion"),
        (r"\C", 1, "characters"),
        ("b|" + "a" * 4095 + "cd", 4098, "4,096"),
        ("b(?:abc){999}{2}", 14, "another repetition"),
        ("b(?:abc){999}(?:abc){999}", 25, "4,096"),
    ],
)
def test_what_is_not_in_the_syntax_is_refused_with_its_column(pattern: str, column: int, said: str) -> None:
    with pytest.raises(RegexpError) as caught:
        compiled(pattern)
    assert str(caught.value).startswith(f"column {column}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    [
        "a" * 10**7,
        "a" * (MAX_POSITIONS + 1),
        "((a{100}){100}){100}",
        "(?:(?:x{1000}){1000}){1000}",
        r"\pL{100}",
        "(" * 1000,
        "(" * 1000 + ")" * 1000,
        "(?i" * 10_000,
        "[" * 60_000,
        "[a" * 30_000,
        "(?P<" * 15_000,
        "a{" * 30_000 + "**",
        "\\x{" * 20_000,
    ],
)
def test_what_is_too_large_is_refused_soon(pattern: str) -> None:
    began = time.process_time()
    with pytest.raises(RegexpError):
        compiled(pattern)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+b", "a" * 5000),
        ("(a|a)*b", "a" * 5000),
        ("(a?){1000}a{1000}b", "a" * 3000),
        ("(.*)(.*)(.*)(.*)(.*)x", "a" * 5000),
        ("(?:()*)*b", "a" * 5000),
        ("(?:(?:(?:){1000}){1000}){1000}b", "a"),
        ("(" * 250 + "a" + ")*" * 250 + "b", "a" * 100),
        ("(?:" * 200 + "a" * 3000 + ")*(?:b|" + "c)?" * 199 + "z", "a" * 100),
        ("|" * 60_000 + "a{0}", "b"),
        ("(?:" + "|".join("abcdefgh"[:k] for k in range(1, 8)) * 100 + ")*z", "abc" * 1000),
    ],
)
def test_catastrophic_patterns_are_answered_soon(pattern: str, text: str) -> None:
    began = time.process_time()
    try:
        matches(text.encode(), pattern.encode())
        literals(pattern)
    except RegexpError:
        pass
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("pattern", "folded", "expected"),
    [
        ("foo", False, {"foo"}),
        ("a.*foobar[0-9]+x", False, {"foobar"}),
        ("(?:foo|bar|bazz)+", False, {"foo", "bar", "bazz"}),
        ("(?i)Foo", True, {"foo"}),
        ("(?i)Straße", True, {"straße"}),
        ("x?", False, set()),
        (".*[0-9]{3}", False, set("0123456789")),
        ("(?:ab){3}", False, {"ababab"}),
        ("(?:ab){2,}", False, {"abab"}),
        ("foo|foobar", False, {"foo"}),
        ("ab(?:c|d)e", False, {"abce", "abde"}),
        (r"\bfoo\b", False, {"foo"}),
        ("", False, set()),
        ("a|", False, set()),
    ],
)
def test_literals(pattern: str, folded: bool, expected: set[str]) -> None:
    assert literals(pattern, folded) == expected
