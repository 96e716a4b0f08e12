from __future__ import annotations

import pytest

from geartrain.models._offline._evidence import Finding, Kind, kind_of, rank
from geartrain.models._offline._observed import Seen
from geartrain.models._offline._question import analyse
from geartrain.models._offline._scope import body, definition_of, documented, enclosing
from geartrain.models._offline._standing import file_factor
from geartrain.models._offline._syntax import title_of


def seen(**files: str) -> Seen:
    """Return files by name (a double underscore stands for a slash, a single one before the ending for a dot)."""
    known = Seen()
    for name, text in files.items():
        path = ".".join(name.replace("__", "/").rsplit("_", 1))
        for number, line in enumerate(text.split("\n"), 1):
            known.add(path, number, line)
    return known


def best(question: str, known: Seen) -> Finding:
    return rank(analyse(question), known)[0]


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("a.py", "class Timeout(Exception):", Kind.DEFINITION),
        ("a.py", "    async def get(self):", Kind.DEFINITION),
        ("a.py", "    class of service, in a text", Kind.COMMENT),
        ("a.go", "func (s *Server) Close() error {", Kind.DEFINITION),
        ("a.go", "type Config struct {", Kind.DEFINITION),
        ("a.rs", "pub(crate) fn parse<T>(x: T) -> T {", Kind.DEFINITION),
        ("a.js", "export const load = async (path) => {", Kind.DEFINITION),
        ("a.ts", "export interface Options {", Kind.DEFINITION),
        ("a.c", "static int count_lines(FILE *file)", Kind.DEFINITION),
        ("a.h", "#define LIMIT 10", Kind.DEFINITION),
        ("a.rb", "  def start", Kind.DEFINITION),
        ("a.py", "MAX_SIZE: Final = 10", Kind.CONSTANT),
        ("a.py", "        raise ValueError('x')", Kind.RAISE),
        ("a.js", "  throw new Error('x');", Kind.RAISE),
        ("a.py", "size = 10", Kind.ASSIGNMENT),
        ("a.yaml", "size: 10", Kind.ASSIGNMENT),
        ("a.py", "# a size", Kind.COMMENT),
        ("a.py", "import size", Kind.IMPORT),
        ("a.c", '#include "size.h"', Kind.IMPORT),
        ("a.c", "#ifndef SIZE", Kind.PLAIN),
        ("a.py", "if size == 10:", Kind.PLAIN),
        ("a.md", "## Size", Kind.HEADING),
        ("a.txt", "THE SIZE OF IT", Kind.HEADING),
        ("a.txt", "It has some size.", Kind.PROSE),
    ],
)
def test_a_line_is_known_by_what_it_looks_like(path: str, text: str, kind: Kind) -> None:
    assert kind_of(path, text) is kind


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("def f(x):", "f"),
        ("class A:", "A"),
        ("func (s *Server) Close() {", "Close"),
        ("const go = () => 1", "go"),
        ("_LIMIT = 3", "_LIMIT"),
        ("x = 3", ""),
        ("this function then calls", ""),
        ("the object supports it", ""),
    ],
)
def test_a_definition_gives_its_name(text: str, title: str) -> None:
    assert title_of("a.py", text) == title


def test_a_definition_counts_more_than_a_use() -> None:
    known = seen(a_py="x = retry(1)\ny = 2\n\n\n\n\n\n\ndef retry(times):\n    return times")

    assert best("Where is the retry?", known).line == 9


def test_a_line_where_several_words_meet_counts_more_than_one_with_one_word() -> None:
    known = seen(a_py="# a buffer\n\n\n\n\n\n\n# the size of the buffer\n\n\n\n\n\n\n# a size")

    assert best("What is the buffer size?", known).line == 8


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    common = "\n".join(f"value {number} of the server" for number in range(50))

    assert best("What about the server and the walrus?", seen(a_txt=common, b_txt="a walrus")).path == "b.txt"


def test_a_test_counts_less_unless_the_question_is_about_tests() -> None:
    known = seen(tests__test_queue_py="def drain_queue(): ...", queue_py="def drain_queue(): ...")

    assert best("How is the queue drained?", known).path == "queue.py"
    assert file_factor("tests/test_queue.py", analyse("How is the queue tested in test_queue?")) == 1.0


def test_a_constant_that_the_best_lines_name_comes_before_other_constants() -> None:
    text = (
        "_WIDTH = 80\n_MAXFIELDS = 100" + "\n" * 7 + "def read_fields(fp):\n    # limited by _MAXFIELDS fields\n    ..."
    )

    found = rank(analyse("What is the maximum number of fields?"), seen(a_py=text))

    assert 2 in [finding.line for finding in found[:3]]
    assert 1 not in [finding.line for finding in found]


def test_a_name_that_is_its_own_value_counts_less_than_a_value() -> None:
    known = seen(a_py='class Code:\n    TIMEOUT = "timeout"\n\n\n\n\n\n\n\nTIMEOUT = 30')

    assert best("What is the default time-out?", known).line == 10


def test_equal_lines_are_ordered_by_path_and_line() -> None:
    known = seen(b_txt="a walrus\n\n\n\n\n\n\na walrus", a_txt="a walrus")

    assert [(f.path, f.line) for f in rank(analyse("Any walrus?"), known)] == [("a.txt", 1), ("b.txt", 1), ("b.txt", 8)]


SOURCE = """class Queue:
    \"\"\"A queue that is bounded.\"\"\"

    def put(self, item):
        # Refuse rather than wait.
        if self.full():
            raise QueueFull
        self.items.append(item)


def other():
    pass"""


def test_a_line_knows_what_it_stands_in() -> None:
    lines = seen(a_py=SOURCE).lines["a.py"]

    assert enclosing("a.py", lines, 7) == "Queue.put"
    assert enclosing("a.py", lines, 1) == ""


def test_what_a_line_stands_in_is_not_guessed_over_a_gap() -> None:
    lines = dict(seen(a_py=SOURCE).lines["a.py"])
    del lines[6]

    assert enclosing("a.py", lines, 7) == ""


def test_a_body_ends_where_the_indentation_does() -> None:
    lines = seen(a_py=SOURCE).lines["a.py"]

    assert [number for number, _ in body(lines, 4)] == [4, 5, 6, 7, 8, 9, 10]


def test_a_definition_is_found_with_what_documents_it() -> None:
    known = seen(a_py=SOURCE, b_go="// Close ends it all.\n// Twice is harmless.\nfunc Close() {")

    assert definition_of("Queue", known, lambda _: 1.0) == ("a.py", 1)
    assert documented(known.lines["a.py"], 1) == (2, "A queue that is bounded.")
    assert documented(known.lines["b.go"], 3) == (1, "Close ends it all.")
    assert documented(known.lines["a.py"], 11) is None
