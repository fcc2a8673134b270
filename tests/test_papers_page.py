"""The page of the papers' claims, `mpi_match/docs/papers.md`: current, complete, and true to names of the project."""

from __future__ import annotations

import re

import papers_page
from papers_page import REPOSITORY, STATUSES, audit

from mpi_match.engines.registry import options_of
from mpi_match.lab.papers.catalog import EXPERIMENTS
from mpi_match.lab.papers.published import printed


def test_the_page_of_claims_is_current() -> None:
    assert papers_page.PAGE.read_text(encoding="utf-8") == papers_page.page(), "run python tests/support/papers_page.py"


def test_claims_name_options_experiments_and_tests_that_exist() -> None:
    for entry in (entry for entries in audit().values() for entry in entries):
        assert entry.status in STATUSES
        assert entry.how or entry.status == "faithful", entry.claim
        for option in entry.options:
            engine, _, name = option.partition(".")
            assert name in {each.name for each in options_of(engine)}, option
        for shown in entry.shown:
            path, _, test = shown.partition("::")
            assert shown in EXPERIMENTS or re.search(rf"^def {test}\(", (REPOSITORY / path).read_text("utf-8"), re.MULTILINE)


def test_every_option_of_a_published_engine_belongs_to_a_claim() -> None:
    claimed = {option for entries in audit().values() for entry in entries for option in entry.options}
    published = [
        f"{engine}.{option.name}"
        for engine in ("ccm", "clcb", "twophase", "tagmatch")
        for option in options_of(engine)
        if option.section != "ours"
    ]
    assert [option for option in published if option not in claimed] == []


def test_every_printed_value_has_a_status() -> None:
    """Values outside tables and figures have theirs in a list, and the list has no others."""
    known = {(each.system, each.artifact, each.metric) for each in printed()}
    assert [key for key in papers_page.REPEATED if key not in known] == []
    assert papers_page.PAGE.read_text(encoding="utf-8").count("| not measured |\n") == 0
