"""Formulas over the parts of a multi grader: `0.5 * form + 0.5 * min(fact, 1)`.

A small parser of its own, never `eval`. A formula is kept as a list of steps for a stack, so
that neither its length nor its nesting can exhaust Python's own stack.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MAX_CHARS = 10_000
MAX_DEPTH = 50
"""Parentheses, signs and powers inside each other."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
          |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
          |(?P<sign>[-+*/^(),]))""",
    re.VERBOSE | re.ASCII,
)
_OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": operator.pow,
}
_FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
}
_CHOICES: Mapping[str, Callable[[Sequence[float]], float]] = {"min": min, "max": max}
FUNCTIONS = (*_CHOICES, *_FUNCTIONS)
"""Names of the functions that a formula may call."""


class FormulaError(ValueError):
    """A formula that cannot be read, or that has no value for these numbers."""


@dataclass(frozen=True)
class _Step:
    """One step of a formula: push a number or a variable, or apply `name` to the topmost `count` values."""

    name: str
    count: int = 0
    number: float = 0.0


@dataclass(frozen=True)
class Formula:
    """A formula that has been read."""

    text: str
    steps: tuple[_Step, ...]

    @property
    def names(self) -> frozenset[str]:
        """The variables that it needs."""
        return frozenset(step.name for step in self.steps if not step.count and step.name)

    def value(self, values: Mapping[str, float]) -> float:
        """The result, a finite number. Raises FormulaError for a division by zero, an overflow and the like."""
        stack: list[float] = []
        for step in self.steps:
            if step.count:
                arguments = stack[-step.count :]
                del stack[-step.count :]
                stack.append(_applied(step.name, arguments))
            else:
                stack.append(float(values[step.name]) if step.name else step.number)
        return stack[0]


def parse_formula(text: str) -> Formula:
    """Raises FormulaError with the place and what was expected there."""
    if len(text) > MAX_CHARS:
        raise FormulaError(f"it has {len(text):,} characters; the limit is {MAX_CHARS:,}")
    return Formula(text, _Parser(text).formula())


class _Parser:
    """Recursive descent; each method reads one level of precedence and emits its steps."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0
        self._steps: list[_Step] = []

    def formula(self) -> tuple[_Step, ...]:
        self._sum()
        if self._at < len(self._tokens):
            raise self._unexpected("an operator or the end")
        return tuple(self._steps)

    def _sum(self) -> None:
        self._product()
        while (sign := self._take("+", "-")) is not None:
            self._product()
            self._steps.append(_Step(sign, 2))

    def _product(self) -> None:
        self._signed()
        while (sign := self._take("*", "/")) is not None:
            self._signed()
            self._steps.append(_Step(sign, 2))

    def _signed(self) -> None:
        """A minus binds weaker than a power: -2^2 is -4."""
        self._deeper()
        if (sign := self._take("-", "+")) is None:
            self._power()
        else:
            self._signed()
            self._steps += [_Step("negative", 1)] if sign == "-" else []
        self._depth -= 1

    def _power(self) -> None:
        self._atom()
        if self._take("^") is not None:
            self._signed()  # From the right: 2^3^2 is 2^9.
            self._steps.append(_Step("^", 2))

    def _atom(self) -> None:
        kind, token, _ = self._peek()
        if kind == "number":
            self._at += 1
            self._steps.append(_Step("", number=_number(token)))
        elif kind == "name":
            self._at += 1
            if self._take("(") is None:
                self._steps.append(_Step(token))
            else:
                self._call(token)
        elif self._take("(") is not None:
            self._sum()
            self._expect(")")
        else:
            raise self._unexpected("a number, a name or '('")

    def _call(self, name: str) -> None:
        if name not in FUNCTIONS:
            raise FormulaError(f"unknown function {name!r}; there are {', '.join(FUNCTIONS)}")
        count = 1
        self._sum()
        while self._take(",") is not None:
            self._sum()
            count += 1
        self._expect(")")
        if (count == 1) == (name in _CHOICES):
            wanted = "two or more values" if name in _CHOICES else "one value"
            raise FormulaError(f"{name} takes {wanted}, found {count}")
        self._steps.append(_Step(name, count))

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FormulaError(f"it is nested more than {MAX_DEPTH} levels deep")

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "", len(self._text))

    def _take(self, *signs: str) -> str | None:
        kind, token, _ = self._peek()
        if kind != "sign" or token not in signs:
            return None
        self._at += 1
        return token

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            raise self._unexpected(f"{sign!r}")

    def _unexpected(self, wanted: str) -> FormulaError:
        kind, token, place = self._peek()
        found = "the end" if kind == "end" else repr(token)
        return FormulaError(f"expected {wanted} at character {place + 1}, found {found}")


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Kind, text and place of each token."""
    found = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            place = position + len(text[position:]) - len(text[position:].lstrip())
            raise FormulaError(f"{text[place]!r} at character {place + 1} has no place in a formula")
        kind = str(match.lastgroup)
        found.append((kind, match[kind], match.start(kind)))
        position = match.end()
    return found


def _number(token: str) -> float:
    number = float(token)
    if not math.isfinite(number):
        raise FormulaError(f"the number {token[:20]} is too large")
    return number


def _applied(name: str, arguments: Sequence[float]) -> float:
    try:
        result = _result(name, arguments)
    except ZeroDivisionError:
        raise FormulaError(f"division by zero in {_call_text(name, arguments)}") from None
    except OverflowError:
        raise FormulaError(f"{_call_text(name, arguments)} is too large") from None
    except ValueError:
        raise FormulaError(f"{_call_text(name, arguments)} has no value") from None
    # A negative number to a broken power is complex in Python.
    if isinstance(result, complex):
        raise FormulaError(f"{_call_text(name, arguments)} has no value")
    if not math.isfinite(result):
        raise FormulaError(f"{_call_text(name, arguments)} is too large")
    return float(result)


def _result(name: str, arguments: Sequence[float]) -> float | complex:
    if name == "negative":
        return -arguments[0]
    if name in _OPERATORS:
        return _OPERATORS[name](*arguments)
    return _CHOICES[name](arguments) if name in _CHOICES else _FUNCTIONS[name](*arguments)


def _call_text(name: str, arguments: Sequence[float]) -> str:
    shown = [f"{argument:g}" for argument in arguments]
    return f" {name} ".join(shown) if name in _OPERATORS else f"{name}({', '.join(shown)})"
