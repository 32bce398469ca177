"""Fail when a file, a function or a list of parameters outgrows its room.

A file may have 500 lines. A function may have 60, from `def` to its last line: its docstring is not counted, the functions inside it are.
It may take 7 parameters besides self and cls, starred ones included.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("protocols", "compaction", "teams", "tests", "examples", "benchmarks", "tools")
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 7

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _code_lines(function: Function) -> int:
    """Count the lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def _parameters(function: Function) -> int:
    """Count what a caller may pass."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    if named and named[0].arg in ("self", "cls"):
        named = named[1:]
    return len(named) + len(arguments.kwonlyargs) + (arguments.vararg is not None) + (arguments.kwarg is not None)


def find_oversized(path: Path, source: str) -> Iterator[str]:
    """Tell each limit that a file breaks, as `path:line: what`."""
    length = len(source.splitlines())
    if length > MAX_FILE_LINES:
        yield f"{path}:{MAX_FILE_LINES + 1}: the file has {length} lines; at most {MAX_FILE_LINES}"
    for node in ast.walk(ast.parse(source, str(path))):
        if not isinstance(node, Function):
            continue
        if (lines := _code_lines(node)) > MAX_FUNCTION_LINES:
            yield f"{path}:{node.lineno}: {node.name} has {lines} lines without its docstring; at most {MAX_FUNCTION_LINES}"
        if (parameters := _parameters(node)) > MAX_PARAMETERS:
            yield f"{path}:{node.lineno}: {node.name} takes {parameters} parameters; at most {MAX_PARAMETERS}"


def main() -> int:
    """Check every Python file of the project; print what is too large."""
    files = sorted(path for folder in FOLDERS for path in Path(folder).rglob("*.py"))
    found = [line for path in files for line in find_oversized(path, path.read_text(encoding="utf-8"))]
    for line in found:
        print(line)
    print(f"{len(files)} files checked, {len(found)} too large")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
