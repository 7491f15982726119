"""Finds the functions in C files and the identifiers that they use, without a C compiler.

Run as a program, this module is a worker of `ParserWorkers`: it reads pickled lists of
`(path, content)` from its standard input and writes a pickled `Batch` for each. It needs only
the standard library, so a worker starts in milliseconds.
"""

import array
import pickle
import re
import sys
from typing import NamedTuple

CALLED, CONSTANT, FIELD = 1, 2, 4  # Kinds of an identifier in a function's body.

# Keywords of C, and of its dialect in the kernel, that may precede a parenthesis.
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
# The line of the name: from column 0 the type or its last part, then the name and `(`.
_FIRST_LINE = re.compile(r"^[A-Za-z_][\w \t*]*[ \t*](\w+)\(", re.MULTILINE)
_AT_COLUMN_0 = re.compile(r"^[A-Za-z_]", re.MULTILINE)
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_CONSTANT = re.compile(r"\b(?!NULL\b)_*[A-Z][A-Z0-9_]*\b")
_FIELD = re.compile(r"(?:->|\.)\s*([A-Za-z_]\w*)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[a-z0-9]+")


class Function(NamedTuple):
    """A function definition, without comments and with empty strings.

    Attributes:
        name: Name of the function.
        header: Text from the return type to the closing parenthesis.
        body: Text between the braces.
    """

    name: str
    header: str
    body: str


class Batch(NamedTuple):
    """The functions in a list of files that call other functions. Ids are positions in `words`.

    Attributes:
        words: Features and identifiers.
        names: Id of each function's name.
        files: Position of each function's file in the list of files.
        features, feature_lengths: Ids of each function's features, and their number.
        labels, kinds, label_lengths: Ids of the identifiers in each function's body, their
            kinds (sums of `CALLED`, `CONSTANT`, `FIELD`), and their number.
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
    """Replaces comments by a space, and string and character literals by `""`."""
    return _COMMENT_OR_STRING.sub(lambda m: " " if m[0][0] == "/" else '""', text)


def functions(text):
    """Finds the function definitions of a C file.

    A definition starts with a header. Its type, name and `(` are in one line from column 0,
    further lines are indented, and it ends with `)` before a line that begins with `{`. The
    body ends at the next line that begins with `}`.

    Args:
        text: Result of `without_comments_and_strings`.

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
    """Returns `(name, header)` if `text` ends with a header, else None."""
    starts = [match.start() for match in _AT_COLUMN_0.finditer(text)]
    if not text.endswith(")") or not starts:
        return None
    header = text[starts[-1] :]
    first_line = _FIRST_LINE.match(header)
    return (first_line[1], header) if first_line else None


def identifiers(function):
    """Finds the identifiers that the body of a function uses.

    Returns:
        Dict from identifiers to the sum of their kinds: `CALLED` (a parenthesis follows),
        `CONSTANT` (in capitals, except NULL) and `FIELD` (follows `->` or `.`). Within each
        kind, identifiers are in order of appearance.
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
    """Returns the distinct features of a function.

    Returns:
        List of `name:w`, `path:w`, `type:w` and `argument:w`, in this order. `w` is a word of
        the function's name, its file's path, the types of the function and its arguments, or
        the names of the arguments. Words are letters and digits, in lower case.
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
    """Returns the `Batch` of a list of `(path, text)`."""
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
    """Parses batches from the standard input until its end."""
    while True:
        try:
            files = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        batch = parse_files([(path, text.decode("latin-1")) for path, text in files])
        pickle.dump(batch._asdict(), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
