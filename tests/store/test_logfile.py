"""Pages of log files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.store.logfile import MAX_LINE_CHARS, MAX_SCAN_BYTES, Level, LogFile, LogFilter, LogPage

ALL = LogFilter()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "training.log"


def texts(page: LogPage) -> list[str]:
    return [line.text for line in page.lines]


def level(text: str, path: Path) -> Level:
    path.write_text(text + "\n", encoding="utf-8")
    return LogFile(path).before(None, 1, ALL).lines[0].level


def test_a_log_that_is_not_there_yet_is_empty(path: Path) -> None:
    assert LogFile(path).before(None, 10, ALL) == LogPage((), 0, 0, 0)
    assert LogFile(path).after(0, ALL) == LogPage((), 0, 0, 0)


def test_the_last_lines_come_first_and_older_ones_from_where_they_start(path: Path) -> None:
    path.write_text("".join(f"line {number}\n" for number in range(10)))
    newest = LogFile(path).before(None, 4, ALL)
    assert texts(newest) == ["line 6", "line 7", "line 8", "line 9"]
    assert (newest.start, newest.end, newest.size) == (42, 70, 70)
    older = LogFile(path).before(newest.start, 4, ALL)
    assert texts(older) == ["line 2", "line 3", "line 4", "line 5"]
    oldest = LogFile(path).before(older.start, 4, ALL)
    assert (texts(oldest), oldest.start) == (["line 0", "line 1"], 0)


def test_a_line_that_is_being_written_is_shown_and_comes_again_whole(path: Path) -> None:
    path.write_text("done\nhalf")
    page = LogFile(path).before(None, 5, ALL)
    assert (texts(page), page.end) == (["done", "half"], 5)
    assert texts(LogFile(path).after(page.end, ALL)) == []
    path.write_text("done\nhalf and more\n")
    new = LogFile(path).after(page.end, ALL)
    assert (texts(new), new.lines[0].offset, new.end) == (["half and more"], 5, 19)


def test_a_file_that_became_shorter_is_read_from_its_start(path: Path) -> None:
    path.write_text("new\n")
    assert texts(LogFile(path).after(100, ALL)) == ["new"]


@given(st.lists(st.text("ab\r\té", max_size=200), max_size=60), st.integers(1, 7), st.booleans())
def test_pages_backwards_hold_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], count: int, closed: bool
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(("\n".join(lines) + ("\n" if closed and lines else "")).encode())
    log = LogFile(path)
    page = log.before(None, count, ALL)
    found = list(page.lines)
    while page.start:
        page = log.before(page.start, count, ALL)
        assert page.lines
        found = [*page.lines, *found]
    data = path.read_bytes()
    assert [line.offset for line in found] == [
        place for place in range(len(data)) if place == 0 or data[place - 1 : place] == b"\n"
    ]


def test_lines_longer_than_a_block_are_found_and_cut_for_show(path: Path) -> None:
    path.write_text("first\n" + "x" * 200_000 + "\nlast\n")
    page = LogFile(path).before(None, 3, ALL)
    assert [len(text) for text in texts(page)] == [5, MAX_LINE_CHARS + len(" [192000 more]"), 4]
    assert page.start == 0


def test_a_line_without_end_is_paged_through_all_the_same(path: Path) -> None:
    path.write_bytes(b"y" * (2 * MAX_SCAN_BYTES + 10))
    page = LogFile(path).before(None, 10, ALL)
    starts = [page.start]
    while page.start:
        page = LogFile(path).before(page.start, 10, ALL)
        starts.append(page.start)
    assert len(starts) == 3
    assert LogFile(path).after(0, ALL).end == MAX_SCAN_BYTES


def test_a_rare_word_is_looked_for_no_further_than_the_limit_and_then_asked_for_again(path: Path) -> None:
    path.write_bytes(b"needle here\n" + b"nothing to see\n" * (MAX_SCAN_BYTES // 15 + 1000))
    page = LogFile(path).before(None, 5, LogFilter(text="NEEDLE"))
    assert page.lines == ()
    assert 0 < page.start < MAX_SCAN_BYTES
    assert texts(LogFile(path).before(page.start, 5, LogFilter(text="NEEDLE"))) == ["needle here"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02 10:00:00 loss 4.11e-5 • grad 0.505 @ step 3", "info"),
        ("2026-01-02 10:00:00 failed: out of memory", "error"),
        ("ERROR:strop.api:no space left", "error"),
        ("ValueError: no", "error"),
        ("UserWarning: soon gone", "warning"),
        ("WARNING:root:careful", "warning"),
        ("DEBUG:root:detail", "debug"),
        ("no ErrorBars here", "info"),
    ],
)
def test_levels_are_told_from_words(text: str, expected: Level, path: Path) -> None:
    assert level(text, path) == expected


def test_all_of_a_traceback_is_an_error(path: Path) -> None:
    path.write_text('before\nTraceback (most recent call last):\n  File "a.py", line 1\n    x\nKeyError: 1\nafter\n')
    page = LogFile(path).before(None, 10, LogFilter(level="error"))
    assert len(page.lines) == 4
    assert texts(LogFile(path).before(None, 10, LogFilter(text="after"))) == ["after"]


def test_escapes_overwritten_states_and_bad_bytes_become_plain_text(path: Path) -> None:
    path.write_bytes(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07ok\n10%\r50%\r100%\r\n\xff\x00\x07 <b>bold</b>\n\n")
    assert texts(LogFile(path).before(None, 9, ALL)) == ["red ok", "100%", "\ufffd <b>bold</b>", ""]
