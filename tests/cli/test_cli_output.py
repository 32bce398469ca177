"""Text as a terminal shows it."""

import io

import pytest

from teams.cli.output import Cell, Column, Terminal, amount, cells, clean, duration, find_terminal, fit, names, table


class _Tty(io.StringIO):
    """A stream that says it is a terminal, and has no size to tell."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("no descriptor")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-3, "0 s"), (0.4, "0 s"), (99, "99 s"), (150, "2 min"), (5999, "100 min"), (7200, "2 h"), (172_800, "2 d")]
)
def test_duration_is_one_figure_and_one_unit(seconds: float, shown: str) -> None:
    """A span of time is shown in the unit that a person would say it in."""
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (999, "999"), (1000, "1.0k"), (12_440, "12.4k"), (999_950, "1.0M"), (3_100_000_000, "3.1G")]
)
def test_amount_is_short(number: int, shown: str) -> None:
    """A large number is shown with one digit behind the point."""
    assert amount(number) == shown


def test_clean_leaves_nothing_that_a_terminal_obeys() -> None:
    """Escapes, carriage returns, bells, other directions and lone surrogates are gone; letters of any script stay."""
    cleaned = clean("a\x1b[31m\r\nb\x07\u202ec\ud800 \u65e5\u672c")
    assert cleaned.isprintable()
    assert cleaned.startswith("a")
    assert cleaned.endswith("\u65e5\u672c")
    cleaned.encode("utf-8")


@pytest.mark.parametrize("width", range(12))
def test_fit_never_takes_more_than_its_cells(width: int) -> None:
    """A cut text fits its width, also where letters take two cells, and shows that it was cut."""
    for text in ("abcdefghijklmno", "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059", "a\u0301bcdefghijklm"):
        cut = fit(text, width)
        assert cells(cut) <= width
        assert not width or cut.endswith("\u2026")


def test_fit_leaves_alone_what_fits() -> None:
    """A text that fits is not changed; without a width everything fits."""
    assert fit("abc", 3) == "abc"
    assert fit("abc" * 100, None) == "abc" * 100


def test_table_aligns_drops_empty_columns_and_gives_way() -> None:
    """Columns line up, empty ones are left out, and only flexible ones are cut when the line is too long."""
    columns = (Column("NAME"), Column("EMPTY"), Column("TEXT", flexible=True), Column("N", right=True))
    rows = [["ann", "", "a long text that cannot stay", "1"], ["benedict", "", "short", "22"]]
    wide = table(columns, rows, Terminal())
    assert wide == [
        "NAME      TEXT                           N",
        "ann       a long text that cannot stay   1",
        "benedict  short                         22",
    ]
    narrow = table(columns, rows, Terminal(30))
    assert narrow[1:] == ["ann       a long text tha\u2026   1", "benedict  short             22"]


def test_colour_does_not_move_columns() -> None:
    """A coloured cell takes the cells of its text alone."""
    rows: list[list[str | Cell]] = [[Cell("ann", "red"), "x"], [Cell("benedict"), "y"]]
    plain = table((Column("A"), Column("B")), rows, Terminal())
    coloured = table((Column("A"), Column("B")), rows, Terminal(None, colour=True))
    assert coloured[1] == plain[1].replace("ann", "\x1b[31mann\x1b[0m")


def test_terminal_honours_no_color_dumb_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR and TERM=dumb switch colours off, COLUMNS gives the width, and a pipe has neither."""
    for name in ("COLUMNS", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert find_terminal(_Tty()) == Terminal(80, colour=True)
    assert find_terminal(io.StringIO()) == Terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    assert find_terminal(_Tty()).colour is False
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "dumb")
    assert find_terminal(_Tty()).colour is False
    monkeypatch.setenv("COLUMNS", "44")
    assert find_terminal(_Tty()).width == 44
    assert find_terminal(io.StringIO()) == Terminal(44)


def test_names_read_as_a_sentence() -> None:
    """Lists are joined as a person would say them."""
    assert [names([]), names(["a"]), names(["a", "b"]), names("abc", last="or")] == ["", "a", "a and b", "a, b or c"]
