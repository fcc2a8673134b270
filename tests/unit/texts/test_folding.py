from __future__ import annotations

import sys
import zlib

import pytest

from mpi_match.texts.folding import fold, folds, variants


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PowerShell.EXE", "powershell.exe"),
        ("", ""),
        ("ÀÉÎ", "àéî"),
        ("Straße", "straße"),
        ("STRAẞE", "straße"),
        ("ſK", "sk"),
        ("İıI", "İıi"),
        ("Σςσ", "σσσ"),
        ("ᾈ", "ᾀ"),
        ("ꭰ", "Ꭰ"),
        ("ﬁ", "ﬁ"),
        ("𐐀", "𐐨"),
        ("Ⱥ", "ⱥ"),
    ],
)
def test_fold(text: str, expected: str) -> None:
    assert fold(text) == expected


def test_every_character_folds_to_one_that_folds_to_itself() -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    folded = fold("".join(characters))
    assert len(folded) == len(characters)
    assert fold(folded) == folded
    for character, other in zip(characters, folded, strict=True):
        assert character.casefold() == other.casefold() or character.lower() == other


def test_variants_are_what_folds_to_the_same() -> None:
    assert variants()[ord("s")] == (ord("S"), ord("s"), ord("ſ"))
    assert ord("1") not in variants()
    assert set(folds()) < set(variants())
    for code, group in variants().items():
        assert code in group
        assert len({fold(chr(other)) for other in group}) == 1


def test_all_versions_of_python_fold_alike() -> None:
    """Tables are compiled, and events read, by processes whose Python may know other versions of Unicode."""
    assert zlib.crc32(repr(sorted(folds().items())).encode()) == 4_077_061_736
