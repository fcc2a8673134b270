"""Options and types of arguments that several commands share."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from mpi_match import cluster
from mpi_match.environment.addresses import address_of, no_local_file
from mpi_match.ingest.rows.formats import format_list
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.row_files import STDIN, TCP, UNIX
from mpi_match.ingest.rows.row_files import STDOUT as STDOUT
from mpi_match.languages.registry import LANGUAGES
from mpi_match.model import Json

Function = TypeVar("Function", bound=Callable[..., Any])
MAX_FILTERS = 2**32 - 1
"""Most ids in a table."""


FORMS = {
    "HDF5": (".h5", ".hdf5"),
    "JSON lines": (".jsonl", ".ndjson", ".json"),
    "packed JSON lines": (".jsonl.gz", ".ndjson.gz", ".json.gz"),
    "Parquet": (".parquet",),
    "Arrow": (".arrow", ".feather"),
    "figure": (".png", ".svg", ".pdf"),
    "Prometheus text": (".prom",),
    "HTML": (".html", ".htm"),
    "CSV": (".csv",),
    "other": (".gz", ".bz2", ".xz", ".zst", ".tsv", ".txt", ".xlsx"),
}
"""The endings of file names of each form."""


class FileName(click.Path):
    """The name of a file or directory; `forms` are the permitted forms of an output.

    A name with the ending of another form is refused, and with `must_say` also one without an ending of FORMS.  So is an
    empty name, which a shell makes of an unset variable and which would be this directory.  `-` is STDOUT if `stdout`, STDIN
    if `stdin`, else refused.
    """

    def __init__(self, *forms: str, must_say: bool = False, stdout: bool = False, stdin: bool = False) -> None:
        super().__init__(path_type=Path, readable=False)  # the reader reports unreadable files, as bad input
        self._endings = [ending for form in forms for ending in FORMS[form]]
        self._must_say, self._stdout, self._stdin = must_say, stdout, stdin

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path."""
        if value == "":
            self.fail("the name is empty", param, ctx)
        if value in ("-", str(STDOUT)) and self._stdout:
            return STDOUT
        if value in ("-", str(STDIN)) and self._stdin:
            return STDIN
        if value == "-":
            self.fail("'-' cannot be standard input or output here; a file of that name is ./-", param, ctx)
        if (address := address_of(value)) is not None:
            self.fail(no_local_file(address), param, ctx)
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]  # as `path_type` says
        if self._endings and self._wrong(path.name.lower()) and not is_device(path):
            *others, last = self._endings
            endings = f"{', '.join(others)} or {last}, which say" if others else f"{last}, which says"
            self.fail(f"{value!r} does not end in {endings} what is written", param, ctx)
        return path

    def _wrong(self, name: str) -> bool:
        said = next((form for form in FORMS.values() if name.endswith(form)), ())
        return self._must_say if not said else said[0] not in self._endings


def is_device(path: Path) -> bool:
    """Tells whether a name is that of a device, such as /dev/null, or of a pipe.  A name with the ending of a form other
    than JSON lines is neither.
    """
    said = [form for form, endings in FORMS.items() if path.name.lower().endswith(endings)]
    return said in ([], ["JSON lines"]) and (path.is_char_device() or path.is_fifo())


class InputName(click.ParamType[str]):
    """A file, directory, glob or address of another file system, for Spark to read."""

    name = "input"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, unchanged."""
        if value in ("", "-"):
            self.fail("the name is empty" if not value else "'-' cannot be standard input here", param, ctx)
        return str(value)


FILE, FILE_OR_STDIN = FileName(), FileName(stdin=True)


class EventsName(FileName):
    """A parameter type for the name of a file or directory, STDIN, or the address of a socket, unchanged."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or the address."""
        return value if str(value).startswith((TCP, UNIX)) else super().convert(value, param, ctx)


EVENTS_OR_STREAM = EventsName(stdin=True)
HDF5_OUT, FIGURE_OUT = FileName("HDF5"), FileName("figure", must_say=True)
RUN_OUT = FileName("HDF5", stdout=True)
JSON_LINES_OUT, RESULTS_OUT = FileName("JSON lines"), FileName("JSON lines", stdout=True)
PROMETHEUS_OUT = FileName("Prometheus text")
REPORT_OUT = FileName("HTML", "CSV", "Parquet", must_say=True)
EXPORT_OUT = FileName("JSON lines", "packed JSON lines", "CSV", "Parquet", "Arrow", must_say=True, stdout=True)
MATCHES_OUT = FileName("HDF5", "JSON lines", "packed JSON lines", "CSV", "Parquet", "Arrow", stdout=True)


class NameOf(click.ParamType[str]):
    """A name of a registry, which is imported only to check a name, or to list the names in the help."""

    name = "name"

    def __init__(self, module: str, registry: str, *also: str) -> None:
        self._module, self._registry, self._also = module, registry, also

    def names(self) -> list[str]:
        """All names."""
        return [*self._also, *getattr(importlib.import_module(self._module), self._registry)]

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """All names, as in `[auto|keyed]`."""
        return f"[{'|'.join(self.names())}]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name, if the registry has it."""
        if value not in self.names():
            self.fail(f"there is no {value!r}; there are: {', '.join(self.names())}", param, ctx)
        return value


class ByteSize(click.ParamType[int]):
    """A number of bytes, such as 1500000, 64M or 2G; K, M and G are 2^10, 2^20 and 2^30."""

    name = "bytes"
    _UNITS: ClassVar = {"": 0, "K": 10, "M": 20, "G": 30}

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        number = str(value).rstrip("KMG")
        unit = str(value)[len(number) :]
        if not number.isdecimal() or unit not in self._UNITS or int(number) < 1:
            self.fail(f"{value!r} is not a number of bytes such as 64M or 2G", param, ctx)
        return int(number) << self._UNITS[unit]


ENGINE = NameOf("mpi_match.engines", "REGISTRY", "auto")


class Engines(click.ParamType[tuple[str, ...]]):
    """Engines by name, as in `ccm,keyed`."""

    name = "engines"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names, each of them in the registry."""
        return value if isinstance(value, tuple) else tuple(ENGINE.convert(each, param, ctx) for each in value.split(","))


ENGINES = Engines()


def flat_engines(ctx: click.Context, option: click.Parameter, values: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Joins the engines of one or several options, each once."""
    names = [name for given in values for name in given]
    if len(set(names)) < len(names):
        raise click.BadParameter(f"an engine is repeated in {','.join(names)}")
    return tuple(names)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object with the summary on standard output."
)
engine_option = click.option(
    "--engine",
    type=ENGINE,
    default="auto",
    help="Engine that matches; auto is the fastest that can run here.",
)


def _settings(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in values:
        key, equals, value = each.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{each!r} is no {option.metavar}")
        if key in found:
            raise click.BadParameter(f"{key!r} is set twice")
        found[key] = value
    return found


set_option = click.option(
    "--set",
    "engine_options",
    multiple=True,
    metavar="[ENGINE.]KEY=VALUE",
    callback=_settings,
    help="Set an option of the engine, several if given again; `mpi-match engines` lists them.",
)
param_option = click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_settings,
    help="Another value for a parameter of the scenario, several if given again; `bench SCENARIO --parameters` lists them.",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1),
    help="CPU threads of an engine.  [default: NUMBA_NUM_THREADS, else the cores of this process]",
)


def _numbers(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    numbers = value.split(",")
    if not all(number.isdecimal() for number in numbers):
        raise click.BadParameter(f"{value!r} is not a list of GPU numbers such as 0,1,2,3")
    return tuple(map(int, numbers))


gpu_map_option = click.option(
    "--gpu-map",
    metavar="N,N,...",
    callback=_numbers,
    help="GPUs of a host's first, second, ... worker, by number among those visible.  [default: 0,1,2,...]",
)
schedule_option = click.option(
    "--schedule",
    type=click.Choice(cluster.SCHEDULES),
    default=cluster.RunOptions.schedule,
    help="Order in which workers get batches: one that has room; each in turn.",
)
placement_option = click.option(
    "--placement",
    type=click.Choice(cluster.PLACEMENTS),
    default=cluster.RunOptions.placement,
    help="Filters of a worker: all; a part, divided among all workers; a part, divided in each of --groups groups.",
)
groups_option = click.option("--groups", type=click.IntRange(1), help="Groups of workers for --placement hybrid.")
route_option = click.option(
    "--route",
    is_flag=True,
    help="With --placement shard or hybrid and an event table: divide filters by what they ask for, and send an event only "
    "to the shards that it can match.",
)
feed_option = click.option(
    "--feed",
    type=click.Choice(cluster.FEEDS),
    default=cluster.RunOptions.feed,
    help="Source of a worker's events: the master; memory that its host shares; the file.",
)
results_option = click.option(
    "--results",
    type=click.Choice(cluster.RESULTS),
    default=cluster.RunOptions.results,
    help="Writer of the answers: the master; every worker, beside the output.",
)


def follow_options(function: Function) -> Function:
    """Add the options of a run that follows its input: --follow, --max-delay, --file-size and --file-age."""
    for option in reversed(_FOLLOW):
        function = option(function)
    return function


_FOLLOW = (
    click.option(
        "--follow",
        is_flag=True,
        help="Match events as they arrive, until SIGTERM or Ctrl-C: EVENTS is a directory into which files are renamed, "
        "standard input or a socket, OUTPUT a directory of files of answers.  The same command continues an earlier run.",
    ),
    click.option(
        "--max-delay",
        type=click.FloatRange(0),
        metavar="SECONDS",
        default=cluster.RunOptions.max_delay,
        help="With --follow: time that an event waits for others to be matched with it.",
    ),
    click.option(
        "--file-size",
        "file_bytes",
        type=ByteSize(),
        metavar="BYTES",
        default=cluster.RunOptions.file_bytes,
        show_default="64M",
        help="With --follow: size at which a file of answers ends.",
    ),
    click.option(
        "--file-age",
        "file_s",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        default=cluster.RunOptions.file_s,
        help="With --follow: time after which a file of answers ends.",
    ),
)
credits_option = click.option(
    "--credits",
    type=click.IntRange(1),
    default=cluster.RunOptions.credits,
    help="Batches that a worker may hold unanswered.",
)
journal_option = click.option(
    "--journal/--no-journal",
    default=cluster.RunOptions.journal,
    help="Keep answers in a journal until all of them are written.",
)
share_gpus_option = click.option(
    "--share-gpus", is_flag=True, help="Allow two workers on one GPU, which is refused otherwise."
)
filters_option = click.option(
    "--filters", is_flag=True, help="Answer with the matched filters (their numbers) instead of interfaces."
)
with_rows_option = click.option(
    "--with-rows",
    is_flag=True,
    help='Write each event beside its answer: the bytes of its row, as "row" in JSON lines; null for a rejected row.',
)
rejects_option = click.option(
    "--rejects", type=JSON_LINES_OUT, help="Write bad rows to this JSON lines file, with reason, file and line."
)
stats_option = click.option(
    "--stats",
    is_flag=True,
    help="Print how many lines of events the scanner flagged for the line reader, and how many a GPU scanned.",
)
strict_option = click.option(
    "--strict", is_flag=True, help="Stop with exit code 3 at a bad row, instead of setting it aside."
)

pipeline_option = click.option(
    "--pipeline",
    "pipelines",
    metavar="NAME",
    multiple=True,
    help="A pipeline of pySigma for rules of Sigma: its name, or its YAML file; may be given several times.",
)


def language_option(*, required: bool = False, of: str = "SUBSCRIPTIONS are") -> Callable[[Function], Function]:
    """The option --language: the rule language of subscriptions, with the words of its help that precede "rules"."""
    says = "The language of the rules." if required else f"{of} rules of this language, as `translate` reads them."
    return click.option("--language", type=click.Choice(list(LANGUAGES)), required=required, help=says)


_FORM_OPTIONS = ("location", "id_", "schema", "delimiter", "encoding")


def form_of(options: Json) -> EventForm:
    """Take the options that describe the form of events out of `options`; returns the form.  Raises ModelError."""
    return EventForm.of(*(options.pop(name, None) for name in _FORM_OPTIONS))


def _check_form(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    from mpi_match.model import ModelError

    try:
        form_of({**ctx.params, option.name: value})
    except ModelError as error:
        raise click.BadParameter(str(error)) from None
    return value


location_option = click.option(
    "--location",
    metavar="X,Y",
    callback=_check_form,
    help="The two attributes that hold an event's coordinates, such as position.x,position.y.",
)
id_option = click.option(
    "--id",
    "id_",
    metavar="NAME",
    callback=_check_form,
    help="The attribute that holds an event's id; it is then no attribute.",
)


def says_formats(function: Function) -> Function:
    """Put the list of input formats in place of FORMATS in the help of a command."""
    function.__doc__ = (function.__doc__ or "").replace("FORMATS", format_list())
    return function


def csv_options(function: Function) -> Function:
    """Add the options of CSV: --schema, --delimiter and --encoding."""
    for option in reversed((_schema_option, _delimiter_option, _encoding_option)):
        function = option(function)
    return function


_delimiter_option = click.option(
    "--delimiter",
    metavar="CHARACTER",
    callback=_check_form,
    help="Separator of the cells of CSV events, such as ';' or tab.  [default: as a line sep=; says, tab for .tsv, a comma]",
)
_encoding_option = click.option(
    "--encoding",
    metavar="NAME",
    callback=_check_form,
    help="Encoding of CSV events, such as utf-16, cp1252 or latin-1.  [default: utf-8]",
)
_schema_option = click.option(
    "--schema",
    metavar="NAME=TYPE,...",
    callback=_check_form,
    help="Types of columns of CSV events, number, string or boolean, such as zip=string.  [default: cells in quotes are "
    "strings; others are numbers or booleans if they are in JSON]",
)


def limit_options(function: Function) -> Function:
    """Add the limits of connections (`connections.Limits`), which are None where they are not given."""
    for option in reversed(_LIMITS):
        function = option(function)
    return function


def limits_of(options: Json, *, are_connections: bool) -> Any:
    """Take the options of limits of connections out of `options`; returns the limits.  Raises UsageError for a limit without
    connections."""
    from mpi_match.ingest.files.listen import Limits

    given = {each: options.pop(each) for each in list(Limits.__dataclass_fields__)}
    given = {name: value for name, value in given.items() if value is not None}
    if given.get("line_bytes", 0) > Limits.line_bytes:
        raise click.UsageError(f"--line-bytes is at most {Limits.line_bytes >> 20}M")
    if given and not are_connections:
        raise click.UsageError(f"limits of connections are for events from {TCP}HOST:PORT or {UNIX}PATH only")
    return Limits(**given)


_LIMITS = (
    click.option(
        "--connections",
        type=click.IntRange(1),
        help="Most connections at a time; others wait until one ends.  [default: 256]",
    ),
    click.option(
        "--idle",
        "idle_s",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="Close a connection on which nothing moves for this time; 0: never.  [default: 600]",
    ),
    click.option(
        "--line-bytes",
        type=ByteSize(),
        metavar="BYTES",
        help="Longest line on a connection, at most 16M; a longer one is a bad row.  [default: 16M]",
    ),
    click.option(
        "--answer-bytes",
        type=ByteSize(),
        metavar="BYTES",
        help="Bytes of answers kept for a connection until it takes them; those of one event may be more.  [default: 1M]",
    ),
    click.option(
        "--memory",
        "total_bytes",
        type=ByteSize(),
        metavar="BYTES",
        help="Lines, events and answers that are kept for all connections; beyond, none is read from, and after --drain "
        "those that keep most are closed.  [default: 512M]",
    ),
    click.option(
        "--drain",
        "drain_s",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="Time that connections have for taking their answers when the command ends.  [default: 5]",
    ),
)
