"""Errors that several layers raise and users catch."""

from __future__ import annotations


class EngineError(Exception):
    """An engine cannot serve a table or run on this machine; the text says why and which engine can."""


class OptionError(EngineError):
    """An engine has no such option, a scenario no such parameter, or not that value; the text says what there is."""
