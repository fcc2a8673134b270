r"""Turns Sigma rules into rows of subscriptions: a backend of pySigma, which parses the rules and applies its pipelines.

    title: Encoded PowerShell
    id: 8f3d...                                      {"interface": "8f3d...", "id": "Encoded PowerShell",
    detection:                                        "constraints": [["Image", "suffix i", "\\powershell.exe"],
      selection:                                                      ["CommandLine", "contains i", " -enc "]]}
        Image|endswith: '\powershell.exe'
        CommandLine|contains: ' -enc '
      condition: selection

The interface is the rule's id (its title if it has none), the id of the filter its title.  Texts ignore case unless the rule
says `cased`; a number stands for its text too, and the text of a number for the number, because Windows writes one field in
both ways.  `fieldref`, `expand` that no pipeline has replaced, parts of times, correlations, aggregations and time frames go
beyond matching, and are refused by name.

`sigma.backends.mpi_match`, where pySigma looks for backends, holds `MpiMatchBackend`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Hashable, Iterable, Iterator, Sequence
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, cast

import yaml
from sigma.collection import SigmaCollection
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.conversion.base import Backend
from sigma.conversion.state import ConversionState
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaError, SigmaFeatureNotSupportedByBackendError
from sigma.filters import SigmaFilter
from sigma.modifiers import SigmaEndswithModifier, SigmaRegularExpressionModifier, SigmaStartswithModifier
from sigma.policy import SigmaPolicy
from sigma.policy.regex_engine import RE2RegexEngine, RegexPattern
from sigma.processing.pipeline import ProcessingPipeline
from sigma.rule import SigmaDetection, SigmaRule
from sigma.types import (
    CompareOperators,
    Placeholder,
    SigmaCasedString,
    SigmaRegularExpressionFlag,
    SigmaString,
    SpecialChars,
)
from yaml.constructor import ConstructorError

from mpi_match.ingest.rows.packed_files import open_bytes
from mpi_match.languages.rows import EVERY_TEXT, SEVERAL, SINGLE, Rule, RuleError, Tree, Wild, both, either, glob, row_of
from mpi_match.model import EVERY_STRING, GREATEST_INTEGER, LEAST_INTEGER, Json, ModelError, describe
from mpi_match.texts.regexp_syntax import RegexpError, parse

_LEAST_PYSIGMA = 2
"""Major version of pySigma that rules are read with; under 1 conditions that a pipeline adds are lost without an error."""


def check_pysigma(installed: str) -> None:
    """Raise ModelError for a version of pySigma that is too old, which packages of pipelines may have brought."""
    if int(installed.partition(".")[0]) < _LEAST_PYSIGMA:
        raise ModelError(
            f"pySigma {installed} is installed, and {_LEAST_PYSIGMA} is needed: "
            f"{sys.executable} -m pip install 'pysigma>={_LEAST_PYSIGMA},<{_LEAST_PYSIGMA + 1}'"
        )


check_pysigma(version("pysigma"))
_WILD = {SpecialChars.WILDCARD_MULTI: Wild(SEVERAL), SpecialChars.WILDCARD_SINGLE: Wild(SINGLE)}
_NUMBER_TEXT = re.compile(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{0,15}[1-9])?|-?[1-9][0-9]{16,19}", re.ASCII)
"""Texts of numbers, as a number is written; integers may be beyond those of the model."""
_COMPARED = {
    CompareOperators.LT: "<",
    CompareOperators.LTE: "<=",
    CompareOperators.GT: ">",
    CompareOperators.GTE: ">=",
}
_FLAGS = {
    SigmaRegularExpressionFlag.IGNORECASE: "i",
    SigmaRegularExpressionFlag.MULTILINE: "m",
    SigmaRegularExpressionFlag.DOTALL: "s",
}


class _Syntax(RE2RegexEngine):
    """Regular expressions as the matcher reads them: pySigma refuses what it refuses, for its reason."""

    def compile(self, pattern: str, flags: int = 0) -> RegexPattern:
        """Parse a pattern, and compile it for pySigma.  Raises RegexpError and RE2's error."""
        parse(pattern)
        return super().compile(pattern, flags)

    @property
    def error(self) -> Any:
        """The errors of `compile`."""
        return RegexpError, super().error

    def __deepcopy__(self, _: object) -> _Syntax:
        """Itself, because it holds a module; pySigma copies rules with their policy."""
        return self


_POLICY = SigmaPolicy(regex_engine=_Syntax())


class NoMatching(SigmaFeatureNotSupportedByBackendError):
    """A part of a rule that goes beyond matching events one by one; `kind` is its name in Sigma."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class MpiMatchBackend(Backend):
    """Converts Sigma rules to rows of mpi-match: JSON lines (`default`), or dicts (`rows`)."""

    name: ClassVar[str] = "mpi-match"
    identifier: ClassVar[str] = "mpi_match"
    formats: ClassVar[dict[str, str]] = {
        "default": "subscriptions of mpi-match, one JSON object to a line",
        "rows": "subscriptions of mpi-match, as dicts",
    }

    def convert_condition_or(self, cond: ConditionOR, state: ConversionState) -> Tree | None:
        parts = self._parts(cond.args, state)
        return either(parts) if parts else None

    def convert_condition_and(self, cond: ConditionAND, state: ConversionState) -> Tree | None:
        parts = self._parts(cond.args, state)
        return both(parts) if parts else None

    def convert_condition_not(self, cond: ConditionNOT, state: ConversionState) -> Tree | None:
        parts = self._parts(cond.args, state)
        return {"not": parts[0]} if parts else None

    def _parts(self, args: Sequence[Any], state: ConversionState) -> list[Tree]:
        """The conditions of parts, except those that a pipeline has dropped."""
        found = (self.convert_condition(each, state) for each in args)
        return [each for each in found if each is not None]

    def convert_condition_field_eq_val(self, cond: ConditionFieldEqualsValueExpression, state: ConversionState) -> Any:
        if cond.field == EVERY_STRING:
            raise NoMatching("field *", "that name stands for every text of an event; keywords ask for those")
        return super().convert_condition_field_eq_val(cond, state)

    def convert_condition_as_in_expression(self, cond: Any, state: ConversionState) -> Tree | None:
        return self.convert_condition_or(cond, state)

    def convert_condition_field_eq_val_str(self, cond: Any, state: ConversionState) -> Tree:
        return _equal_to_text(cond, " i")

    def convert_condition_field_eq_val_str_case_sensitive(self, cond: Any, state: ConversionState) -> Tree:
        return _equal_to_text(cond, "")

    def convert_condition_field_eq_val_num(self, cond: Any, state: ConversionState) -> Tree:
        return _equal_to_number(cond.field, cond.value.number)

    def convert_condition_field_eq_val_timestamp_part(self, cond: Any, state: ConversionState) -> Tree:
        raise NoMatching(cond.value.timestamp_part.name.lower(), f"a part of the time {cond.field!r}")

    def convert_condition_field_eq_val_bool(self, cond: ConditionFieldEqualsValueExpression, state: ConversionState) -> Tree:
        truth = bool(cond.value)
        return either([[cond.field, "=", truth], [cond.field, "= i", str(truth).lower()]])

    def convert_condition_field_eq_val_re(self, cond: Any, state: ConversionState) -> Tree:
        return [cond.field, "regexp", _regexp(cond.value)]

    def convert_condition_field_eq_val_cidr(self, cond: Any, state: ConversionState) -> Tree:
        return [cond.field, "in net", str(cond.value.network)]

    def convert_condition_field_compare_op_val(self, cond: Any, state: ConversionState) -> Tree:
        number = cond.value.number.number
        if cond.value.op is CompareOperators.NEQ:
            return {"not": _equal_to_number(cond.field, number)}
        return [cond.field, _COMPARED[cond.value.op], number]

    def convert_condition_field_eq_field(self, cond: Any, state: ConversionState) -> Tree:
        raise NoMatching("fieldref", f"{cond.field!r} is compared with another attribute, {cond.value.field!r}")

    def convert_condition_field_eq_val_null(self, cond: ConditionFieldEqualsValueExpression, state: ConversionState) -> Tree:
        return [cond.field, "absent"]

    def convert_condition_field_exists(self, cond: ConditionFieldEqualsValueExpression, state: ConversionState) -> Tree:
        return [cond.field, "exists"]

    def convert_condition_field_not_exists(self, cond: ConditionFieldEqualsValueExpression, state: ConversionState) -> Tree:
        return [cond.field, "absent"]

    def convert_condition_field_eq_query_expr(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> Tree:
        raise NoMatching("query expression", f"{cond.field!r}: {cond.value}")

    def convert_condition_val_str(self, cond: Any, state: ConversionState) -> Tree:
        op, text = glob([Wild(SEVERAL), *_pieces(cond.value), Wild(SEVERAL)])
        return [EVERY_STRING, op if isinstance(cond.value, SigmaCasedString) else f"{op} i", text]

    def convert_condition_val_num(self, cond: Any, state: ConversionState) -> Tree:
        return [EVERY_STRING, "contains i", str(cond.value.number)]

    def convert_condition_val_re(self, cond: Any, state: ConversionState) -> Tree:
        return [EVERY_STRING, "regexp", _regexp(cond.value)]

    def convert_condition_query_expr(self, cond: ConditionValueExpression, state: ConversionState) -> Tree:
        raise NoMatching("query expression", str(cond.value))

    def finish_query(self, rule: Any, query: Any, state: ConversionState) -> Json:
        """The row of a condition of a rule."""
        title = str(rule.title)
        return row_of(title if rule.id is None else str(rule.id), title, query)

    def finalize_query_default(self, rule: object, query: object, index: int, state: ConversionState) -> str:
        """A line of JSON."""
        return json.dumps(query, ensure_ascii=False)

    def finalize_query_rows(self, rule: object, query: object, index: int, state: ConversionState) -> object:
        """The dict."""
        return query

    def finalize_output_rows(self, queries: list[object]) -> list[object]:
        """All dicts."""
        return queries

    def convert_correlation_rule(self, rule: SigmaCorrelationRule, *_: object, **__: object) -> list[object]:
        """Refuse a correlation.  Raises NoMatching."""
        raise NoMatching("correlation", f"{rule.type.name.lower()} is over several events; each is matched by itself")

    def _no_correlation(self, rule: SigmaCorrelationRule, *_: object, **__: object) -> list[object]:
        return self.convert_correlation_rule(rule)

    convert_correlation_event_count_rule = _no_correlation
    convert_correlation_value_count_rule = _no_correlation
    convert_correlation_temporal_rule = _no_correlation
    convert_correlation_temporal_ordered_rule = _no_correlation
    convert_correlation_extended_temporal_rule = _no_correlation
    convert_correlation_extended_temporal_ordered_rule = _no_correlation
    convert_correlation_value_sum_rule = _no_correlation
    convert_correlation_value_avg_rule = _no_correlation
    convert_correlation_value_percentile_rule = _no_correlation
    convert_correlation_value_median_rule = _no_correlation


def _equal_to_text(cond: Any, case: str) -> Tree:
    """The condition that an attribute is a text, which may have wildcards; `case` is " i" or empty."""
    op, text = glob(_pieces(cond.value))
    if op == "=" and _NUMBER_TEXT.fullmatch(text) and LEAST_INTEGER <= (number := json.loads(text)) <= GREATEST_INTEGER:
        return either([[cond.field, "=", number], [cond.field, f"={case}", text]])
    return [cond.field, "exists"] if (op, text) == EVERY_TEXT else [cond.field, f"{op}{case}", text]


def _equal_to_number(name: str, number: float) -> Tree:
    """The condition that an attribute is a number, or its text."""
    return either([[name, "=", number], [name, "= i", str(number)]])


def _pieces(text: SigmaString) -> list[str | Wild]:
    found: list[str | Wild] = []
    for part in text.s:
        if isinstance(part, Placeholder):
            raise NoMatching("expand", f"no pipeline has replaced the placeholder %{part.name}%")
        found.append(part if isinstance(part, str) else _WILD[part])
    return found


def _regexp(value: Any) -> str:
    if value.contains_placeholder():
        raise NoMatching("expand", f"no pipeline has replaced a placeholder of {value.regexp}")
    flags = "".join(sorted(_FLAGS[each] for each in value.flags))
    return f"{f'(?{flags})' if flags else ''}{value.regexp.to_plain_regex()}"


def rules_in(paths: Sequence[Path], pipelines: Sequence[str] = ()) -> Iterator[Rule]:
    """The rules of YAML files of one or several documents, in their order.

    `pipelines` are names of pipelines that are installed for pySigma, or files of them.  Filters (documents with `filter`)
    apply to the rules of all files.  Raises RuleError for a pipeline that pySigma does not find, OSError.
    """
    backend = MpiMatchBackend(_pipeline(pipelines))
    found: list[tuple[Path, int, SigmaRule | SigmaCorrelationRule | str]] = []
    filters: list[SigmaFilter] = []
    for path in paths:
        for line, document in _documents(path):
            if isinstance(document, SigmaFilter) and not document.errors:
                filters.append(document)
            else:
                found.append((path, line, str(document.errors[0]) if isinstance(document, SigmaFilter) else document))
    correlated = _correlated([rule for _, _, rule in found if isinstance(rule, SigmaCorrelationRule)])
    for path, line, rule in found:
        title = next((correlated[each] for each in _names_of(rule) if each in correlated), None)
        if title is None:
            yield from _rows_of(backend, rule, filters, path, line)
        else:
            reason = f"correlation: only the correlation {title!r} uses it, which does not say `generate: true`"
            yield Rule(str(getattr(rule, "title", path.stem)), path, line, None, reason, "correlation")


def _correlated(correlations: Iterable[SigmaCorrelationRule]) -> dict[str, str]:
    """The rules that alert through correlations only, by name and id, each with the title of its correlation."""
    found: dict[str, str] = {}
    for rule in correlations:
        if not rule.generate and not rule.errors:
            condition: Any = rule.condition
            used = condition.get_referenced_rules() if rule.rules is None else [each.reference for each in rule.rules]
            found.update(dict.fromkeys(used, str(rule.title)))
    return found


def _names_of(rule: SigmaRule | SigmaCorrelationRule | str) -> list[str]:
    """The name and the id of a rule, by which correlations refer to it; nothing for a correlation or an invalid rule."""
    return [str(each) for each in (rule.name, rule.id) if each] if isinstance(rule, SigmaRule) else []


def _pipeline(names: Sequence[str]) -> ProcessingPipeline | None:
    if not names:
        return None
    from sigma.plugins import InstalledSigmaPlugins

    plugins = InstalledSigmaPlugins.autodiscover(include_backends=False, include_validators=False)
    missing = [name for name in names if name not in plugins.pipelines and not Path(name).exists()]
    if missing:
        there = ", ".join(sorted(plugins.pipelines)) or "none"
        raise RuleError(
            f"there is no pipeline {missing[0]!r}, and no such file; installed are: {there}; "
            "pySigma's pipelines are packages, such as pysigma-pipeline-sysmon"
        )
    try:
        return plugins.get_pipeline_resolver().resolve(list(names))
    except (SigmaError, OSError, yaml.YAMLError) as error:
        raise RuleError(f"the pipeline {' and '.join(names)}: {_brief(error)}") from None
    except Exception as error:  # see `_parsed`
        raise RuleError(f"{' and '.join(names)}: not a pipeline of pySigma: {_brief(error)}") from None


def _documents(path: Path) -> Iterator[tuple[int, SigmaRule | SigmaCorrelationRule | SigmaFilter | str]]:
    """The documents of a file, with the lines where they begin; a text gives the reason why one is invalid."""
    with open_bytes(path) as file:
        content = file.read()
    shared: list[Any] = []
    before: Any = None
    for line, document in _yaml_documents(content):
        if not isinstance(document, dict):
            yield line, str(document) if isinstance(document, _NotYaml) else "a document must be a mapping"
            continue
        action = document.get("action")
        if action in ("global", "reset"):
            shared, before = ([document] if action == "global" else []), None
            continue
        together_ = [*shared, *([before] if action == "repeat" and before is not None else []), document]
        before = document if action != "repeat" else before
        yield line, _parsed(together_)


_MERGE = "tag:yaml.org,2002:merge"


class _NotYaml(str):
    """The reason why a document is not read."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses a mapping that has a key twice.

    pySigma rounds integers to doubles.  So an integer that no double equals becomes the text of its digits, and one beyond
    the model's integers does, too.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for each, _ in node.value:
            key = None if each.tag == _MERGE else self.construct_object(each, deep=True)
            if key is None or not isinstance(key, Hashable):
                continue
            if key in seen:
                raise ConstructorError(None, None, f"the key {key!r} occurs twice", each.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int | str:
        found: int = super().construct_yaml_int(node)
        return found if LEAST_INTEGER <= found <= GREATEST_INTEGER and found == int(float(found)) else str(found)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _yaml_documents(content: bytes) -> Iterator[tuple[int, Any]]:
    """The documents of a file that are not empty, with the lines where they begin."""
    loader, read = None, ""
    try:
        loader = _Loader(content)
        while loader.check_node():
            node = loader.get_node()
            read = "; what follows is not read"
            try:
                document = loader.construct_document(node)
            except (yaml.YAMLError, ValueError, RecursionError) as error:
                yield _line_of(error, node.start_mark.line + 1), _NotYaml(getattr(error, "problem", None) or _brief(error))
                continue
            if document is not None:
                yield node.start_mark.line + 1, document
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        yield _line_of(error, 1), _NotYaml(f"not YAML: {getattr(error, 'problem', None) or _brief(error)}{read}")
    finally:
        if loader is not None:
            loader.dispose()


def _line_of(error: Exception, line: int) -> int:
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark else line


def _parsed(documents: list[Any]) -> SigmaRule | SigmaCorrelationRule | SigmaFilter | str:
    """The last of some documents, completed by those before it."""
    try:
        held = SigmaCollection.from_dicts(
            deepcopy(documents), collect_errors=True, collect_filters=True, resolve_references=False, policy=_POLICY
        )
    except Exception as error:  # pySigma lets errors of Python through for values of other types than it expects
        return f"not a rule: {_brief(error)}"
    last = (held.filters or held.rules)[-1:]
    return last[0] if last else _brief(held.errors[0]) if held.errors else "not a rule"


def _rows_of(
    backend: MpiMatchBackend, rule: SigmaRule | SigmaCorrelationRule | str, filters: list[SigmaFilter], path: Path, line: int
) -> Iterator[Rule]:
    if isinstance(rule, str):
        yield Rule(path.stem, path, line, None, rule, "invalid")
        return
    name = str(rule.title or rule.id or path.stem)
    try:
        if rule.errors:
            raise rule.errors[0]
        if isinstance(rule, SigmaCorrelationRule):
            backend.convert_correlation_rule(rule)
        else:
            for each in rule.detection.condition:
                if not isinstance(each, str):
                    raise RuleError(f"a condition must be a text, found {describe(each)}")
                if "|" in each:
                    raise NoMatching("aggregation", f"{each!r} is over several events; each is matched by itself")
            if "timeframe" in rule.detection.detections:  # pySigma takes it for a keyword
                raise NoMatching("timeframe", "it is over several events; each is matched by itself")
            for filter_ in filters:
                rule = filter_.apply_on_rule(rule)
            for detection in cast(SigmaRule, rule).detection.detections.values():
                _refuse_parts_of_regexps(detection)
            for row in backend.convert_rule(cast(SigmaRule, rule), "rows"):
                yield Rule(name, path, line, row)
    except NoMatching as error:
        yield Rule(name, path, line, None, _brief(error), error.kind)
    except Exception as error:  # see `_parsed`
        yield Rule(name, path, line, None, _brief(error), "invalid")


def _refuse_parts_of_regexps(detection: SigmaDetection) -> None:
    """Refuse a regular expression at the beginning or the end: pySigma adds `.*`, which says nothing in a search."""
    for item in detection.detection_items:
        if isinstance(item, SigmaDetection):
            _refuse_parts_of_regexps(item)
        elif SigmaRegularExpressionModifier in item.modifiers:
            for modifier, name, anchor in (
                (SigmaStartswithModifier, "startswith", "^"),
                (SigmaEndswithModifier, "endswith", "$"),
            ):
                if modifier in item.modifiers:
                    raise NoMatching(
                        f"re|{name}", f"a regular expression of {item.field!r} is found anywhere; write {anchor!r}"
                    )


def _brief(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "conditions are nested too deeply"
    return " ".join(str(error).split()) or type(error).__name__
