"""`translate`: rules of other languages as rows; and subscriptions of other commands that are rules."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from mpi_match.cli.errors import CliCommand, CliFailure
from mpi_match.cli.options import FILE, language_option, pipeline_option, rejects_option, strict_option
from mpi_match.cli.terminal import say
from mpi_match.exit_codes import ExitCode
from mpi_match.humanize import plural
from mpi_match.ingest.rows.judge import Reject
from mpi_match.model import ModelError


@click.command("translate", cls=CliCommand, short_help="Rules of Sigma or EventBridge as rows of subscriptions.")
@click.argument("inputs", metavar="IN...", type=FILE, nargs=-1, required=True)
@language_option(required=True)
@pipeline_option
@strict_option
@rejects_option
def translate(
    inputs: tuple[Path, ...], language: str, pipelines: tuple[str, ...], strict: bool, rejects: Path | None
) -> None:
    """Print the rules of files or directories IN... as subscriptions: JSON lines on standard output.

    A rule that cannot be translated is refused, and reported on standard error with its file, line, name and reason.
    Exit code 3 if no rule is left, or under --strict if one is refused.
    """
    n_rows = 0
    for row in _rows(inputs, language, pipelines, strict=strict, rejects=rejects):
        click.echo(json.dumps(row, ensure_ascii=False))
        n_rows += 1
    if not n_rows:
        raise CliFailure(f"{inputs[0]}: no rule can be expressed as rows", ExitCode.BAD_INPUT)


def _rows(
    inputs: Sequence[Path], language: str, pipelines: Sequence[str], *, strict: bool, rejects: Path | None = None
) -> Iterator[dict[str, object]]:
    """The rows of rules.  Refused rules are reported, and at the end counted by the kinds of reasons.

    Raises ModelError under `strict` for a rule that is refused, and as `rules_of` does.
    """
    from mpi_match.ingest.rows.reject_log import RejectLog
    from mpi_match.languages.registry import rules_of

    refused: Counter[str] = Counter()
    n_rows = 0
    with RejectLog(rejects, strict) as log:
        for rule in rules_of(language, inputs, pipelines):
            if rule.row is not None:
                n_rows += 1
                yield rule.row
                continue
            refused[rule.kind] += 1
            reject = Reject(f"{rule.name}: {rule.reason}", str(rule.file.absolute()), rule.line, rule.name)
            if not strict:
                say(f"refused: {reject.place}: {reject.reason}")
            log.append(reject)
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in refused.most_common())
    say(plural(n_rows, "row") + (f"; {plural(refused.total(), 'rule')} refused: {kinds}" if refused else ""))


@contextmanager
def as_rows(inputs: Sequence[Path], language: str | None, pipelines: Sequence[str], *, strict: bool) -> Iterator[list[Path]]:
    """The one file of subscriptions that rules become while the context lasts; `inputs` themselves without a language.

    Refused rules are reported.  Raises ModelError if no rule is left, for a refused rule under `strict`, and as `rules_of`
    does.
    """
    if language is None:
        if pipelines:
            raise click.UsageError("--pipeline is for rules of Sigma; add --language sigma")
        try:
            yield list(inputs)
        except ModelError as error:
            raise ModelError(f"{error}{_language_hint(inputs)}") from error
        return
    with tempfile.TemporaryDirectory(prefix="mpi-match-") as directory:
        path = Path(directory) / f"{language}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for row in _rows(inputs, language, pipelines, strict=strict):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            if not file.tell():
                raise ModelError(f"{inputs[0]}: no rule can be expressed as rows")
        yield [path]


def _language_hint(inputs: Sequence[Path]) -> str:
    """The advice that ends an error of subscriptions that seem to be rules of a language; empty for others."""
    from mpi_match.languages.registry import LANGUAGES, language_of

    with suppress(OSError):
        for path in inputs:
            name = language_of(path) if path.exists() else None
            if name is not None:
                return f"; {path} seems to hold {LANGUAGES[name].title}: add --language {name}"
    return ""
