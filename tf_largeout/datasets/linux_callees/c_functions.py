"""Finds the functions of C files, and what they call, without a C compiler.

Run as a program this module is a worker: it reads pickled lists of `(path, text)` from its
standard input and answers each with a pickled `Batch`. It needs the standard library only, so
that a worker starts in milliseconds.
"""

import array
import pickle
import re
import sys
from typing import NamedTuple

CALLED, CONSTANT, FIELD = 1, 2, 4  # What an identifier is in a function's body.

# The words of the language, and of its kernel dialect, that can stand before a parenthesis.
_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while _Bool typeof __typeof__ __attribute__ asm __asm__ "
    "defined".split()
)
_COMMENT_OR_STRING = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_BRACE_AT_COLUMN_0 = re.compile(r"\n\{")
_PREPROCESSOR_LINE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.DOTALL | re.MULTILINE)
# Column 0 of the line that has the name: the type, or its end, then name and parenthesis.
_FIRST_LINE = re.compile(r"^[A-Za-z_][\w \t*]*[ \t*](\w+)\(", re.MULTILINE)
_AT_COLUMN_0 = re.compile(r"^[A-Za-z_]", re.MULTILINE)
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_CONSTANT = re.compile(r"\b(?!NULL\b)_*[A-Z][A-Z0-9_]*\b")
_FIELD = re.compile(r"(?:->|\.)\s*([A-Za-z_]\w*)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[a-z0-9]+")


class Function(NamedTuple):
    """A function definition, without comments and without what strings contain.

    Attributes:
        name: the function's name.
        header: from its type to the closing parenthesis.
        body: what stands between the braces.
    """

    name: str
    header: str
    body: str


class Batch(NamedTuple):
    """The functions of some files that call something; ids are positions in `words`.

    Attributes:
        words: features and identifiers.
        names: for each function its name's id.
        files: for each function the position of its file in the list that was read.
        features, feature_lengths: ids of each function's features, and how many.
        labels, kinds, label_lengths: ids of the identifiers in each function's body, what they
            are there (sums of `CALLED`, `CONSTANT`, `FIELD`), and how many.
    """

    words: list[str]
    names: array.array
    files: array.array
    features: array.array
    feature_lengths: array.array
    labels: array.array
    kinds: array.array
    label_lengths: array.array


def without_comments_and_strings(text):
    """`text` with a space for each comment and `""` for each string or character."""
    return _COMMENT_OR_STRING.sub(lambda m: " " if m[0][0] == "/" else '""', text)


def functions(text):
    """The function definitions of a C file.

    A definition is a header that begins at column 0 with type, name and parenthesis in one
    line, goes on in indented lines, and ends with `)` before a line that begins with `{`; its
    body ends at the next line that begins with `}`.

    Args:
        text: as `without_comments_and_strings` gives it.

    Yields:
        `Function`.
    """
    position = 0
    for brace in _BRACE_AT_COLUMN_0.finditer(text):
        if brace.start() < position:
            continue
        end = text.find("\n}", brace.end())
        if end < 0:
            continue
        before = text[position : brace.start()]
        position = end + 2
        before = before[max(before.rfind(character) for character in ";{}") + 1 :]
        before = _PREPROCESSOR_LINE.sub("", before).strip()
        header = _header(before)
        if header is not None:
            yield Function(header[0], header[1], text[brace.end() : end])


def _header(text):
    """`(name, header)` of the header that ends `text`, or None."""
    starts = [match.start() for match in _AT_COLUMN_0.finditer(text)]
    if not text.endswith(")") or not starts:
        return None
    header = text[starts[-1] :]
    first_line = _FIRST_LINE.match(header)
    return (first_line[1], header) if first_line else None


def identifiers(function):
    """What the body of a function uses, in order of appearance within each kind.

    Returns:
        dict from identifier to the sum of `CALLED` (a parenthesis follows it), `CONSTANT` (it
        is written in capitals, and not NULL) and `FIELD` (it follows `->` or `.`).
    """
    found = {}
    for word in _CALL.findall(function.body):
        found[word] = CALLED
    for pattern, kind in ((_CONSTANT, CONSTANT), (_FIELD, FIELD)):
        for word in pattern.findall(function.body):
            found[word] = found.get(word, 0) | kind
    found.pop(function.name, None)
    return {word: kind for word, kind in found.items() if word not in _KEYWORDS}


def features(function, path):
    """What a function is described by, each once, in this order.

    Returns:
        list of `name:w`, `path:w`, `type:w` and `argument:w`, where `w` is a word of the
        function's name, of its file's path, of its own and its arguments' types, and of the
        arguments' names: letters and digits, cut at all other signs, in lower case.
    """
    before, _, arguments = function.header.partition(function.name + "(")
    types, names = [before], []
    for argument in arguments.rpartition(")")[0].split(","):
        *argument_types, name = _IDENTIFIER.findall(argument) or [""]
        types += argument_types or [name]  # `void`, or a type alone.
        names += [name] if argument_types else []
    parts = (
        ("name", function.name),
        ("path", path.removesuffix(".c")),
        ("type", " ".join(types)),
        ("argument", " ".join(names)),
    )
    tagged = (f"{tag}:{word}" for tag, text in parts for word in _WORD.findall(text.lower()))
    return list(dict.fromkeys(tagged))


def parse_files(files):
    """`Batch` of a list of `(path, text)`."""
    ids = {}
    batch = Batch([], *(array.array("i") for _ in Batch._fields[1:]))

    def ids_of(words):
        return [ids.setdefault(word, len(ids)) for word in words]

    for number, (path, text) in enumerate(files):
        for function in functions(without_comments_and_strings(text)):
            used = identifiers(function)
            if not any(kind & CALLED for kind in used.values()):
                continue
            words = ids_of(features(function, path))
            batch.names.extend(ids_of([function.name]))
            batch.files.append(number)
            batch.features.extend(words)
            batch.feature_lengths.append(len(words))
            batch.labels.extend(ids_of(used))
            batch.kinds.extend(used.values())
            batch.label_lengths.append(len(used))
    batch.words.extend(ids)
    return batch


def main():
    """Answers batches until there are no more."""
    while True:
        try:
            files = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer = parse_files([(path, text.decode("latin-1")) for path, text in files])
        pickle.dump(answer._asdict(), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
