"""Score a Python function by the tests of its row.

The model's code never runs in this process. It may use a small part of Python only: no
imports, no attributes but harmless methods of strings, lists, dicts and sets, no double
underscores. What keeps to that runs in a process of its own, for two seconds at most.
"""

import ast
import json
import re
import subprocess
import sys
from typing import Any

SECONDS = 2.0
BUILTINS = """
abs all any bool chr dict divmod enumerate filter float int isinstance len list map max min ord
range reversed round set sorted str sum tuple zip
Exception IndexError KeyError TypeError ValueError ZeroDivisionError
""".split()
METHODS = """
add append capitalize clear copy count discard endswith extend find get index insert isalnum
isalpha isdigit islower isspace isupper items join keys lower lstrip pop remove replace reverse
rfind rsplit rstrip sort split startswith strip swapcase title union update upper values
""".split()
REFUSED = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.AsyncFunctionDef, ast.Global, ast.Nonlocal, ast.Delete)

RUNNER = """
import builtins, json, sys
work = json.load(sys.stdin)
offered = {name: getattr(builtins, name) for name in work["builtins"]}
scope = {"__builtins__": {**offered, "print": lambda *values, **options: None}}
passed = 0
try:
    exec(compile(work["code"], "answer", "exec"), scope)
    for test in work["tests"]:
        try:
            passed += scope[work["function"]](test["argument"]) == test["expected"]
        except Exception:
            pass
except Exception:
    passed = -1
print(passed)
"""


def grade(sample: Any, item: Any) -> dict[str, float]:
    """0.2 for a function of the right name that can be run, and 0.8 times the share of passed tests."""
    code = code_of(sample.output_text)
    tests = item.metadata.tests
    passed = run(code, item.metadata.function, tests) if allowed(code, item.metadata.function) else -1
    return {"runs": 0.2 if passed >= 0 else 0.0, "tests": 0.8 * max(passed, 0) / len(tests)}


def code_of(text: str) -> str:
    """The first block of code of an answer, or all of it where there is none."""
    block = re.search(r"```(?:python)?\n(.*?)(?:```|$)", text, re.DOTALL)
    return block.group(1) if block else text


def allowed(code: str, function: str) -> bool:
    """Whether the code defines the function and keeps within the part of Python that may run."""
    if "__" in code:
        return False
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if not any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body):
        return False
    return all(harmless(node) for node in ast.walk(tree))


def harmless(node: ast.AST) -> bool:
    """Whether one node of the syntax tree may run."""
    return node.attr in METHODS if isinstance(node, ast.Attribute) else not isinstance(node, REFUSED)


def run(code: str, function: str, tests: list[dict[str, Any]]) -> int:
    """How many tests pass, or -1 where the code cannot be run at all or runs too long."""
    work = json.dumps({"code": code, "function": function, "tests": tests, "builtins": BUILTINS})
    command = [sys.executable, "-I", "-S", "-c", RUNNER]
    try:
        done = subprocess.run(command, input=work, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return -1
    return int(done.stdout) if re.fullmatch(r"-?\d+\n", done.stdout) else -1
