"""What a question asks for: its aims, and the words that a search can use.

Nothing here knows the files. A question becomes data; what is then searched follows from the data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from geartrain.models._offline._words import american, parts, related, search_root, stem, word_set

TERMS_MAX: Final = 12
# More of a question than this is not read: a pasted log is no question.
QUESTION_CHARS_MAX: Final = 4_000


class Aim(StrEnum):
    """What kind of answer is wanted. A question may have several aims, or none of these."""

    OVERVIEW = "overview"
    WHERE = "where"
    DEFAULTS = "defaults"
    EXCEPTIONS = "exceptions"
    CALLERS = "callers"
    HOW = "how"
    WHAT_IS = "what is"
    FILES = "files"
    WHY = "why"
    AMOUNT = "amount"
    SETTINGS = "settings"
    TESTS = "tests"
    INSTALL = "install"
    RUN = "run"
    LICENCE = "licence"
    NEEDS = "needs"


# How a project is worked with: what its texts say for strangers, not what its code says.
PRACTICES: Final = frozenset({Aim.TESTS, Aim.INSTALL, Aim.RUN, Aim.LICENCE, Aim.NEEDS})

_THINGS: Final = (
    r"(?:project|package|library|code ?base|code|repo(?:sitory)?|program|folder|directory|files|texts|notes|here)?"
)
_TELL: Final = r"\b(?:what (?:does|do|is|are)|describe|explain|summari[sz]e|overview of|tell me about)\b"
_HERE: Final = rf"\b(?:this|these|the|here)\b ?(?:whole )?{_THINGS}"
_RAISING: Final = r"\b(?:exceptions?|errors?)\b.{0,60}\b(?:raise[sd]?|throw[sn]?|occur)\b"
_CALLING: Final = r"\b(?:calls?|uses?|invokes?|called|used|invoked)\b"
_VALUES: Final = (
    r"(?:limits?|settings?|options?|defaults?|constants?|thresholds?|configurations?|parameters?|bounds|"
    r"time-?outs?|environment variables|default values?)"
)
_SETTING: Final = (
    rf"\b(?:which|what|list|show)\b(?: \w+){{0,5}} {_VALUES}\b|"
    rf"\b(?:which|what) (?:\w+ ){{1,3}}are defined\b|\bhow\b.{{0,30}}\bconfigured?\b|"
    rf"\b{_VALUES} (?:does|do|are|can|is) (?:it|there|this|they|the|i|you|we)\b"
)
_TESTING: Final = (
    r"\bhow\b.{0,40}\b(?:tests?|tested|testing)\b|\b(?:what|which|are there|any) (?:\w+ ){0,2}tests?\b|"
    r"\btest (?:suite|strategy|command)\b|\bis (?:it|this|the \w+|this \w+) (?:well )?tested\b"
)
_RUNNING: Final = (
    r"\bhow\b.{0,30}\b(?:run|start|launch|try|use) (?:it|this|the (?:project|program|app|server|thing))\b|"
    r"\b(?:get|getting) started\b|\bquick ?start\b|\bhow (?:is|can) (?:it|this) (?:be )?(?:used|run|started)\b"
)
_NEEDING: Final = (
    r"\bdependenc(?:y|ies)\b|\bdepends? on\b|\b(?:python|node|java|go|rust) version\b|\brequirements\b|"
    r"\bversions? of (?:python|node|java)\b|\bwhat does (?:it|this(?: \w+)?|the \w+) (?:need|require)\b"
)
_AIMS: Final = (
    (Aim.SETTINGS, _SETTING),
    (Aim.TESTS, _TESTING),
    (Aim.INSTALL, r"\binstall(?:ed|ation|ing)?\b|\bset (?:it |this )?up\b"),
    (Aim.RUN, _RUNNING),
    (Aim.LICENCE, r"\blicen[cs]ed?\b"),
    (Aim.NEEDS, _NEEDING),
    (Aim.OVERVIEW, rf"{_TELL}.{{0,20}}?{_HERE}(?: (?:do|about|for|good for|contain))?\s*(?:[?.!]|$)"),
    (Aim.OVERVIEW, r"\bwhat (?:is|are|does) \w+ (?:about|for)\b|\boverview\b|\bpurpose of (?:this|the)\b"),
    (Aim.WHERE, r"\bwhere\b|\bwhich (?:files?|modules?|places?|parts?)\b|\bin what file"),
    (Aim.DEFAULTS, r"\bdefaults?\b|\bby default\b|\bif (?:not|nothing is) (?:given|set)\b"),
    (Aim.EXCEPTIONS, rf"\b(?:which|what) (?:kinds? of )?(?:exceptions?|errors?)\b|{_RAISING}"),
    (Aim.EXCEPTIONS, r"\b(?:can|may|does|do|could)\b.{0,60}\b(?:raise|throw)\b"),
    (Aim.CALLERS, rf"\b(?:who|what|which \w+|where)\b.{{0,30}}{_CALLING}|\bcallers? of\b|\bus(?:es|ages?) of\b"),
    (Aim.FILES, r"\b(?:which|what|list|show)\b.{0,20}\b(?:files|modules|folders|directories)\b.{0,20}(?:\?|there|$)"),
    (Aim.AMOUNT, r"\bhow (?:many|much|long|big|large|often|old)\b|\bnumber of\b|\b(?:maxim|minim|limit)\w*"),
    (Aim.HOW, r"\bhow (?:do|does|is|are|can|did|was|were|to)\b|\bexplain how\b"),
    (Aim.WHY, r"\bwhy\b|\bwhat for\b|\breasons?\b"),
    (Aim.WHAT_IS, r"\bwhat(?:'s| is| are)\b|\bwhat does\b|\bdefine\b|\bmeaning of\b|\bwho (?:is|was)\b|\bexplain\b"),
)
_AIM_PATTERNS: Final = tuple((aim, re.compile(pattern, re.IGNORECASE)) for aim, pattern in _AIMS)

# Words that carry the question and not its subject.
_EMPTY: Final = word_set(
    "a about all also am an and any anything anyone are aren as at be because been before being between both but by "
    "can could did do does doing don done each either else ever every few find first for from get give given gives "
    "had happen happened happening happens has have having he her here his how i if in instead into is isn it its "
    "just know like list long look made make many may me mean meaning might mine more most much must my no not of "
    "often on once one only or other our out over own perhaps please possible quite read said same say says see "
    "shall she should show so some somebody someone something such t take taken tell than thank thanks that the "
    "their them then there these they thing things this those to too under until up us used using very want was we "
    "well were what when where which while who whom whose why will with within without work working works would "
    "offer offers offered provide provides provided support supports supported "
    "you your yes use uses mention mentioned mentions called call calls caller callers called"
)
# Words that say a little: used for ranking, searched only if there is nothing better.
_SOFT: Final = word_set(
    "code codebase file files folder directory project package library module modules function functions class "
    "classes method methods value values default defaults handled handle handles handling defined define defines "
    "implemented implement implements implementation describe explain summarise summarize overview purpose source "
    "text texts notes note document documents docs documentation question answer part parts place places kind "
    "raise raised raises throw throws exception exceptions error errors different available exactly actually "
    "behaviour behavior return returns returned set declared declare declares"
)

_QUOTED: Final = re.compile(r"`([^`\n]{1,120})`|\"([^\"\n]{2,120})\"|“([^”\n]{2,120})”")
_PATH: Final = re.compile(
    r"(?<![\w/.@-])(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,7}(?![\w/(])|(?<![\w/.:-])(?:[\w.-]+/)+[\w.-]*"
)
_NAME: Final = re.compile(r"\b[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
_SUBJECT: Final = (
    re.compile(
        r"\b(?:calls?|uses?|invokes?|callers? of|usages? of|uses of)\s+(?!the\b)`?([A-Za-z_][\w.]*)", re.IGNORECASE
    ),
    re.compile(r"\bwhere (?:is|are)\s+`?([A-Za-z_][\w.]*)`?(?:\(\))?\s+(?:called|used|invoked)", re.IGNORECASE),
    re.compile(r"\b(?:can|does|may|could)\s+`?([A-Za-z_][\w.]*)`?(?:\(\))?\s+(?:raise|throw)", re.IGNORECASE),
)
# A capital beside a word for a kind of thing, or in the place of one: "the Console class", "where is Console defined".
_KINDS: Final = r"(?:class|exception|struct|enum|interface|trait|function|method|constructor)"
_KINDED: Final = (
    re.compile(rf"\b([A-Z]\w+) {_KINDS}\b"),
    re.compile(rf"\b{_KINDS} ([A-Z]\w+)"),
    re.compile(r"\b[Ww]here (?:is|are) (?:the )?([A-Z]\w+) (?:defined|implemented|declared)\b"),
    re.compile(r"\bdefaults? (?:\w+ ){1,3}(?:of|in|for) (?:an? |the )?([A-Z][a-z]\w*)"),
)
# A dotted word with one of these endings is a file; `queue.get` is a name.
_FILE_ENDINGS: Final = word_set(
    "adoc asm bash bat c cc cfg cmake conf cpp cs css csv cxx dart el erl ex exs f90 go gradle h hpp hs htm html "
    "in ini ipynb java jl js json jsx kt less lisp lock log lua m md ml mjs mm mk nim org pas php pl pm proto ps1 "
    "py pyi pyx r rb rs rst s sass scala scss sh sql swift tex toml ts tsv tsx txt vb vue xml yaml yml zig"
)


# Words of questions about the work with a project; any other makes the question one about something in it.
_PRACTICAL: Final = re.compile(
    r"(?:(?:unit |automatic )?test\w*|suite|strategy|command|run\w*|start\w*|launch\w*|install\w*|set|setup|terms|"
    r"licen[cs]ed?|dependenc\w+|depend\w*|need\w*|requir\w+|version\w*|python|node|quick ?start|quick|try|under|free|"
    r"well| )+"
)
_POINTS_BACK: Final = re.compile(r"\b(?:it|its|they|them|their|these|those)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for. `forms` are compared with `words.forms`.

    `wider` are the words that answer for it, the closest first, and `related` their stems, which count half;
    `weight` says how much the term says about the question.
    `pattern` is a regular expression for a search in which upper and lower case are the same. An `exact` term is an
    identifier and matches only as it is written.
    """

    word: str
    forms: frozenset[str]
    pattern: str
    weight: float = 1.0
    related: tuple[str, ...] = ()
    wider: tuple[str, ...] = ()
    soft: bool = False
    root: str = ""
    exact: bool = False

    @property
    def wide_pattern(self) -> str:
        """The pattern, or any word that answers for the term."""
        return "|".join([self.pattern, *(found_as(word) for word in self.wider[:5])])


@dataclass(frozen=True, slots=True)
class Question:
    """A question as data. `names` are identifiers, exactly as written; `paths` look like files or folders."""

    text: str
    aims: frozenset[Aim]
    terms: tuple[Term, ...]
    names: tuple[str, ...]
    paths: tuple[str, ...]
    subject: str = ""
    echoes: tuple[str, ...] = ()

    @property
    def practice(self) -> Aim | None:
        """What the question wants to know of how the project is worked with; None if it is about something else."""
        return next((aim for aim in Aim if aim in self.aims and aim in PRACTICES), None)

    @property
    def strong(self) -> tuple[Term, ...]:
        """The terms that say something, or all if none does."""
        return tuple(term for term in self.terms if not term.soft) or self.terms

    @property
    def about_file(self) -> bool:
        """Whether a file as such is asked about, and nothing in it."""
        in_path = {word for path in self.paths for word in parts(path.rpartition("/")[2].partition(".")[0])}
        return bool(self.paths) and all(term.soft or term.word in in_path for term in self.terms) and not self.names

    def following(self, earlier: Question | None) -> Question:
        """Return this question with the terms of *earlier*, if it has none of its own ("and where is it used?")."""
        if earlier is None or earlier.practice or self.paths or self.practice or self.aims & {Aim.OVERVIEW, Aim.FILES}:
            return self
        own = [term for term in self.terms if not term.soft]
        points_back = bool(_POINTS_BACK.search(self.text)) and not self.names
        if (own and not points_back) or (own and not any(not term.soft for term in earlier.terms)):
            return self
        taken = tuple(
            replace(term, weight=term.weight * 0.8) if own else term for term in earlier.terms if not term.soft
        )
        return replace(
            self,
            terms=(*self.terms, *taken)[:TERMS_MAX] if own else (*taken, *self.terms)[:TERMS_MAX],
            names=self.names or earlier.names,
            paths=earlier.paths,
            subject=self.subject or earlier.subject,
        )


def analyse(text: str) -> Question:
    """Return what *text* asks for."""
    text = text[:QUESTION_CHARS_MAX]
    aims = frozenset(aim for aim, pattern in _AIM_PATTERNS if pattern.search(text))
    paths = _paths(text)
    bare = text
    for path in paths:
        bare = bare.replace(path, " ")
    subject = next((found.group(1).rstrip(".") for found in (p.search(bare) for p in _SUBJECT) if found), "")
    if subject.lower() in _EMPTY | _SOFT:
        subject = ""
    names = _names(bare, subject)
    terms = _terms(_without_owner(bare), names, paths)
    if not any(not term.soft for term in terms):
        terms = _terms(bare, names, paths)
    if Aim.DEFAULTS in aims:
        terms = tuple(replace(term, weight=1.0) if term.word.startswith("default") else term for term in terms)
    counted = re.search(r"\bhow (?:many|much) (\w+)", bare, re.IGNORECASE)
    if counted:
        terms = tuple(replace(t, weight=t.weight * 2) if t.word == counted.group(1).lower() else t for t in terms)
    if Aim.OVERVIEW in aims and any(not term.soft for term in terms):
        aims -= {Aim.OVERVIEW}
    if any(not term.soft and not _PRACTICAL.fullmatch(term.word) for term in terms) or names:
        aims -= PRACTICES
    if aims & PRACTICES:
        aims -= {Aim.SETTINGS, Aim.OVERVIEW}
    return Question(text=text, aims=aims, terms=terms, names=names, paths=paths, subject=subject.rpartition(".")[2])


def _paths(text: str) -> tuple[str, ...]:
    found = []
    for match in _PATH.finditer(text):
        path = match.group().strip(".")
        ending = path.rpartition(".")[2].lower()
        if "/" in path or ending in _FILE_ENDINGS:
            found.append(path)
    return tuple(dict.fromkeys(path for path in found if path and ".." not in path.split("/")))[:4]


def _without_owner(text: str) -> str:
    """Return *text* without the name of the whole ("how does rich …", "the email package"): it is in every file."""
    text = re.sub(
        r"\b([Hh]ow (?:does|do|can|did)) (?!the |a |an |you |we |they |it )([a-z][a-z0-9]+) (?=[a-z]{3,})",
        r"\1 , ",
        text,
    )
    return re.sub(r"\b\w+ (package|library|module|project|code ?base)\b", r", \1", text, flags=re.IGNORECASE)


def _names(text: str, subject: str) -> tuple[str, ...]:
    """Return the identifiers in *text*: in back-ticks, with an underscore, a dot, a hump, or called."""
    names = [subject] if subject else []
    names.extend(match.group(1).strip() for match in _QUOTED.finditer(text) if match.group(1))
    kinded = (match.group(1) for pattern in _KINDED for match in pattern.finditer(text))
    names.extend(name for name in kinded if name.lower() not in _EMPTY | _SOFT)
    for match in _NAME.finditer(text):
        word = match.group()
        bare = word.removesuffix("()")
        hump = re.search(r"[a-z][A-Z]|[A-Z]{2,}[a-z]", bare)
        if bare != word or "_" in bare.strip("_") or hump or ("." in bare and len(bare) > 4) or bare.startswith("_"):
            names.append(bare)
    simple = (piece for name in names for piece in reversed(name.removesuffix("()").split(".")[-2:]))
    return tuple(dict.fromkeys(name for name in simple if re.fullmatch(r"[^\W\d]\w+", name)))[:4]


def _terms(text: str, names: tuple[str, ...], paths: tuple[str, ...]) -> tuple[Term, ...]:
    found: dict[frozenset[str], Term] = {}

    def add(term: Term) -> None:
        if term.forms and term.forms not in found:
            found[term.forms] = term

    for name in names:
        add(_name_term(name))
    for match in _QUOTED.finditer(text):
        phrase = match.group(2) or match.group(3)
        if phrase and len(phrase.split()) > 1:
            add(_compound(parts(phrase)[:2], 1.5))
    named = {name.lower() for name in names}
    for words in _runs(text):
        for left, right in pairwise(words):
            if not {left, right} & _SOFT:
                add(_compound([left, right], 1.4))
        for word in words:
            if word.lower() not in named:
                add(_word_term(word))
    if not found:
        for path in paths:
            for word in parts(path.rpartition("/")[2].partition(".")[0]):
                add(_word_term(word))
    inside = {piece for term in found.values() for piece in term.word.split() if " " in term.word}
    # The words of a compound say less by themselves; else each compound would count three times.
    weighed = [replace(term, weight=term.weight * 0.6) if term.word in inside else term for term in found.values()]
    ordered = sorted(weighed, key=lambda term: (term.soft, -term.weight))
    return tuple(ordered[:TERMS_MAX])


def _runs(text: str) -> list[list[str]]:
    """Return the telling words of *text* in runs that nothing parts; a hyphenated word is one of them."""
    runs: list[list[str]] = [[]]
    for token in re.findall(r"[^\W_]+(?:[-_'’][^\W_]+)*|[^\w\s]", text):
        word = re.sub(r"['’]s?$|['’].*$", "", token)
        lower = word.lower()
        if not word or not word[0].isalnum() or lower in _EMPTY or (len(lower) < 3 and not lower.isdigit()):
            runs.append([])
        else:
            runs[-1].append(word if re.search(r"[a-z][A-Z]", word) else lower)
    return [run for run in runs if run]


def _name_term(name: str) -> Term:
    return Term(word=name, forms=frozenset([name]), pattern=rf"\b{re.escape(name)}\b", weight=2.0, exact=True)


def _compound(words: list[str], weight: float) -> Term:
    pieces = [piece for word in words for piece in parts(word)]
    if len(pieces) < 2:
        return Term(word=" ".join(words), forms=frozenset(), pattern="")
    left, right = pieces[0], pieces[1]
    pattern = f"{re.escape(left)}[-_ ]?{re.escape(search_root(right))}"
    own = frozenset([left + stem(right), stem(left) + stem(right)])
    if len(words) > 1:
        # Two words of a question may stand the other way round in a name: "parse headers", HeaderParser.
        pattern = f"{pattern}|{re.escape(right)}[-_ ]?{re.escape(search_root(left))}"
        own |= {right + stem(left), stem(right) + stem(left)}
    return Term(
        word=" ".join(words),
        forms=own,
        pattern=pattern,
        weight=weight,
        related=_related_stems(left + search_root(right)),
        wider=_related_words(left + search_root(right)),
    )


def _word_term(word: str) -> Term:
    lower = word.lower()
    if len(parts(word)) > 1:
        return replace(_compound([word], 1.2), word=word)
    root = search_root(american(lower))
    # A short root stands inside many words that have nothing to do with it.
    pattern = re.escape(root) if len(root) > 4 else rf"\b{re.escape(root)}|_{re.escape(root)}"
    if not lower.startswith(root):
        pattern = f"{pattern}|{re.escape(lower)}"
    soft = lower in _SOFT
    return Term(
        word=lower,
        forms=frozenset([stem(lower)]),
        pattern=pattern,
        weight=0.4 if soft else 1.0,
        related=_related_stems(lower),
        wider=_related_words(lower),
        soft=soft,
        root=root,
    )


def _related_words(word: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(other for other in related(word) if other not in _EMPTY and len(other) > 2))


def _related_stems(word: str) -> tuple[str, ...]:
    # Of a word that is written in two, the stem is that of both together, as `forms` joins them.
    return tuple(
        dict.fromkeys("".join(parts(other)) if "_" in other else stem(other) for other in _related_words(word))
    )


def found_as(word: str) -> str:
    """Return a pattern that finds the regular forms of *word* at the beginning of a word or a part of a name."""
    *first, last = parts(word)
    pieces = [re.escape(piece) for piece in (*first, search_root(last))]
    return rf"(?:\b|_){'[-_ ]?'.join(pieces)}"
