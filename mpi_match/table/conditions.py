"""Conditions as conjunctions: a filter with a condition becomes a filter without one, and *parts*.

    interface r     a = 1 and (b = 2 or c = 3) and not d = 4

    interface r     a = 1, part p exists, part q absent
    interface p     b = 2
    interface p     c = 3
    interface q     d = 4

A part is a hidden interface.  Its label begins with `model.RESERVED`, so it sorts behind all others.  An event that matches
a part gets the part's name as an attribute (`engines.staged`), and filters ask for its presence.  So engines know nothing of
conditions: parts are matched first, the filters that ask for them afterwards.

A part's name is a digest of its content.  Equal parts of different filters are one part, wherever they were compiled.  Each
filter brings the filters of its parts, with its own id, and they go when it goes.  A filter without an id goes only with its
interface, and so do its parts: they share an id (`id_of_unnamed`).

A part is *rare* by construction: one that nearly every event satisfies, such as `not b = 2 or not c = 3`, is replaced by its
complement, `b = 2 and c = 3`, and the filter asks for the absence of that.  Therefore every part but the empty one has a
constraint under which it can be indexed, if its constraints have one.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mpi_match.model import RESERVED, Condition, Constraint, Filter, Join, ModelError, Op, Type, split
from mpi_match.operators import Form
from mpi_match.table.kinds import kind_of
from mpi_match.table.operands import column_operands
from mpi_match.table.scopes import with_scopes, without_scopes
from mpi_match.table.virtual_names import of_constraint

PART_LABEL = RESERVED + "&"
"""The beginning of the labels and names of parts, in the model; see `virtual_names.PART_MARK`."""
_UNNAMED = RESERVED + "@"


class _Every(NamedTuple):
    """A join of terms that must all hold."""

    terms: frozenset[_Signed]


class _Some(NamedTuple):
    """A join of terms, one or more of which must hold."""

    terms: frozenset[_Signed]


class _Signed(NamedTuple):
    """A constraint or a join of terms, or (not `positive`) its complement."""

    positive: bool
    term: Constraint | _Every | _Some


def decompose(item: Filter) -> list[Filter]:
    """The conjunctions that a filter consists of: first the filter without its condition, then its parts, each once and
    after the parts that it asks for.  Raises ModelError for a consistent one whose scopes are too large.
    """
    item = with_scopes(item)
    if item.where is None:
        return [item]
    parts: dict[str, list[Filter]] = {}
    root = _signed(item.where)
    terms = root.term.terms if root.positive and isinstance(root.term, _Every) else frozenset((root,))
    constraints = dict.fromkeys((*item.constraints, *_constraints(terms, parts)))
    id_ = id_of_unnamed(item.interface) if item.id is None else item.id
    own = (part._replace(id=id_) for each in parts.values() for part in each)
    return [item._replace(constraints=tuple(constraints), where=None), *own]


def id_of_unnamed(interface: str) -> str:
    """The id of the parts of all filters without an id on an interface."""
    return _UNNAMED + interface


def _signed(tree: Condition | Constraint) -> _Signed:
    """A condition as a rare term or the complement of one."""
    if isinstance(tree, Constraint):
        if tree.op.record.form is Form.ABSENT:
            return _Signed(False, Constraint(tree.name, Type.ANY, Op.EXISTS, None))
        return _Signed(True, tree)
    found = [_signed(part) for part in tree.parts]
    if tree.join is Join.NOT:
        return _complement(found[0])
    return _all_of(found) if tree.join is Join.AND else _complement(_all_of([_complement(each) for each in found]))


def _complement(term: _Signed) -> _Signed:
    return term._replace(positive=not term.positive)


def _all_of(terms: Iterable[_Signed]) -> _Signed:
    """The conjunction of terms.  If one is positive, it consists of all of them; a conjunction of complements is the
    complement of a disjunction."""
    flat: set[_Signed] = set()
    for each in terms:
        if each.positive and isinstance(each.term, _Every):
            flat |= each.term.terms
        elif not each.positive and isinstance(each.term, _Some):
            flat |= {_complement(one) for one in each.term.terms}
        else:
            flat.add(each)
    if len(flat) == 1:
        return next(iter(flat))
    if any(each.positive for each in flat) or not flat:
        return _Signed(True, _Every(frozenset(flat)))
    return _Signed(False, _Some(frozenset(_complement(each) for each in flat)))


def _constraints(terms: Iterable[_Signed], parts: dict[str, list[Filter]]) -> list[Constraint]:
    """Terms that must all hold, as constraints; adds the parts that they ask for to `parts`."""
    return sorted((_constraint(each, parts) for each in terms), key=_content)


def _constraint(signed: _Signed, parts: dict[str, list[Filter]]) -> Constraint:
    positive, term = signed
    if isinstance(term, Constraint):
        if positive:
            return term
        if term.op is Op.EXISTS:
            return term._replace(op=Op.ABSENT)
    return Constraint(_part(term, parts), Type.ANY, Op.EXISTS if positive else Op.ABSENT, None)


def _part(term: Constraint | _Every | _Some, parts: dict[str, list[Filter]]) -> str:
    """The name of a part; it is added to `parts` unless it is there."""
    inner: dict[str, list[Filter]] = {}
    terms = term.terms if isinstance(term, _Some) else (_Signed(True, term),)
    branches = sorted((_branch(each, inner) for each in terms), key=_contents)
    content = list(map(_contents, branches))
    name = PART_LABEL + hashlib.blake2b(b"".join(content), digest_size=16).hexdigest()
    if name not in parts:
        parts.update(inner)
        parts[name] = [Filter(name, branch) for branch in branches]
    return name


def _branch(signed: _Signed, parts: dict[str, list[Filter]]) -> tuple[Constraint, ...]:
    if signed.positive and isinstance(signed.term, _Every):
        return tuple(dict.fromkeys(_constraints(signed.term.terms, parts)))
    return (_constraint(signed, parts),)


def _content(one: Constraint) -> bytes:
    """The content of a constraint, equal on every machine, and its order among others.

    It is what columns hold: kind, number of operands, length of the name, the name; then each operand, a text behind its
    length, or the nearest double and the residue of a number (`model.split`).  Compiled code makes the same bytes
    (`ingest.json.condition_to_filters`).
    """
    name, type_, op, operand = of_constraint(one)
    texts, numbers = column_operands(type_, op, operand)
    packed = [struct.pack("<I", len(text)) + text for text in texts] + [struct.pack("<dh", *split(each)) for each in numbers]
    return struct.pack("<BII", kind_of(type_, op), len(packed), len(name)) + name + b"".join(packed)


def _contents(branch: tuple[Constraint, ...]) -> bytes:
    """The content of a conjunction, whose constraints are in the order of their contents."""
    return struct.pack("<I", len(branch)) + b"".join(map(_content, branch))


def is_part(label: str) -> bool:
    """Tells whether a label is that of a part."""
    return label.startswith(PART_LABEL)


def by_label(filters: Iterable[Filter]) -> dict[str, list[Filter]]:
    """Filters by the label of their interface, as `recompose` takes those of parts."""
    found: dict[str, list[Filter]] = {}
    for item in filters:
        found.setdefault(item.interface, []).append(item)
    return found


def recompose(item: Filter, parts: Mapping[str, list[Filter]]) -> Filter:
    """The filter with a condition, or an equal one, from which a conjunction and the filters of `parts`, by label, were
    made.  Raises ModelError if one of its parts is missing."""
    return without_scopes(_recomposed(item, parts))


def _recomposed(item: Filter, parts: Mapping[str, list[Filter]]) -> Filter:
    plain = tuple(each for each in item.constraints if not is_part(each.name))
    conditions = tuple(_condition(each, parts) for each in item.constraints if is_part(each.name))
    if not conditions:
        return item
    where = conditions[0] if len(conditions) == 1 else Condition(Join.AND, conditions)
    return item._replace(constraints=plain, where=where if isinstance(where, Condition) else Condition(Join.AND, (where,)))


def _condition(asked: Constraint, parts: Mapping[str, list[Filter]]) -> Condition | Constraint:
    if asked.name not in parts:  # without it a condition would never hold, and its complement always
        raise ModelError("a condition asks for a part that is not there; compile the table, or the changes, again")
    branches = list(dict.fromkeys(_of_branch(part, parts) for part in parts[asked.name]))  # equal filters share parts
    found = branches[0] if len(branches) == 1 else Condition(Join.OR, tuple(branches))
    return found if asked.op is Op.EXISTS else Condition(Join.NOT, (found,))


def _of_branch(part: Filter, parts: Mapping[str, list[Filter]]) -> Condition | Constraint:
    terms = tuple(_condition(each, parts) if is_part(each.name) else each for each in part.constraints)
    return terms[0] if len(terms) == 1 else Condition(Join.AND, terms)
