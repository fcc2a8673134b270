"""Options of an engine: parameters and variants of its algorithm, with the section of the paper that describes each."""

from __future__ import annotations

from dataclasses import dataclass

from mpi_match.errors import OptionError

OptionValue = str | int | float | bool


@dataclass(frozen=True)
class Option:
    """One option of an engine.

    default   its value when none is given; all its values have the default's type
    says      its effect, in one line
    section   the section of the paper that describes it; "ours" for an addition of this program
    choices   its possible values; if empty, every number from `least` to `most`
    measured  a value that only `bench` may choose, since answers are inexact or need more of events; None if there is none
    """

    name: str
    default: OptionValue
    says: str
    section: str
    choices: tuple[OptionValue, ...] = ()
    least: float | None = None
    most: float | None = None
    measured: OptionValue | None = None

    @property
    def values(self) -> str:
        """Its possible values in words: `kernel|memset`, `on|off`, `1..64`."""
        if isinstance(self.default, bool):
            return "on|off"
        if self.choices:
            return "|".join(map(str, self.choices))
        return "..".join("" if bound is None else f"{bound:g}" for bound in (self.least, self.most))

    def read(self, given: object) -> OptionValue:
        """Convert a value or its text to a value of the option.  Raises OptionError, which lists the possible values."""
        value = self._typed(given)
        if value is None or not self._is_within(value) or (self.choices and value not in self.choices):
            raise OptionError(f"{self.name} is {given!r}; it can be {self.values}")
        return value

    def _is_within(self, value: OptionValue) -> bool:
        """Tells whether the value lies between the option's bounds, or if the option has none."""
        if self.least is None and self.most is None:
            return True
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)  # type: ignore[operator]

    def _typed(self, given: object) -> OptionValue | None:
        """The value converted to the option's type; None if it cannot be converted."""
        kind = type(self.default)
        if kind is bool:
            return {"on": True, "off": False, True: True, False: False}.get(given)
        if isinstance(given, bool) or not isinstance(given, (str, int, float)):
            return None
        try:
            value = kind(given)
        except ValueError:
            return None
        return value if isinstance(given, str) or value == given else None

    def written(self, value: OptionValue) -> str:
        """Format a value as on the command line."""
        return ("on" if value else "off") if isinstance(self.default, bool) else str(value)

    def spelled(self, value: OptionValue) -> str:
        """Format `name=value` as on the command line."""
        return f"{self.name}={self.written(value)}"
