"""Numbers come from commits that can be looked at: those that records and pages cite are in the history."""

from __future__ import annotations

import os
import re
import subprocess
from bisect import bisect_left
from functools import cache
from pathlib import Path

import pytest
from pages import REPOSITORY

RECORDS = sorted((REPOSITORY / "tests" / "bench" / "records").glob("*.jsonl"))
PAGES = sorted(path for path in REPOSITORY.glob("**/*.md") if not path.relative_to(REPOSITORY).parts[0].startswith("."))


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


@cache
def history() -> list[str]:
    """All commits up to this one, sorted.  Without the full history the test is skipped; in CI it fails."""
    if git("rev-parse", "--is-shallow-repository") != ["false"]:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            "the whole history is not here: no git, no checkout, or a shallow one"
        )
    return sorted(git("rev-list", "HEAD"))


def unknown(cited: set[str], commits: list[str]) -> set[str]:
    """The cited commits, possibly abbreviated, that do not exist."""
    return {each for each in cited if not "".join(commits[(at := bisect_left(commits, each)) : at + 1]).startswith(each)}


def commits_of_page(text: str) -> set[str]:
    return set(re.findall(r"`([0-9a-f]{7,40})`", text))


def commits_of_records(text: str) -> set[str]:
    return set(re.findall(r'"commit": "([^"]*)"', text))


def test_a_commit_that_is_not_there_is_found() -> None:
    commits = sorted(["a" * 40, "b" * 40])
    assert unknown({"a" * 7, "b" * 12, "a" * 40}, commits) == set()
    assert unknown({"a" * 7 + "b", "0" * 7, "c" * 7, "b" * 12 + "-dirty"}, commits) == {
        "a" * 7 + "b",
        "0" * 7,
        "c" * 7,
        "b" * 12 + "-dirty",
    }
    assert commits_of_page("at `823c00d` and `3bea4edc23b0`, `0.55`, `deadbeefs`") == {"823c00d", "3bea4edc23b0"}
    assert commits_of_records('{"commit": "3bea4edc23b0-dirty"}\n') == {"3bea4edc23b0-dirty"}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_records_are_of_commits_in_the_history(path: Path) -> None:
    cited = commits_of_records(path.read_text())
    assert cited, "records say of which commit they are"
    assert unknown(cited, history()) == set()


def test_pages_cite_commits_in_the_history() -> None:
    cited = {path.name: commits_of_page(path.read_text()) for path in PAGES}
    assert sum(map(len, cited.values())) > 3
    assert {name: wrong for name, found in cited.items() if (wrong := unknown(found, history()))} == {}
