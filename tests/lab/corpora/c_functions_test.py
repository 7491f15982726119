import pytest

from lab.corpora import c_functions
from lab.corpora.c_functions import CALLED, CONSTANT, FIELD


def found(text):
    clean = c_functions.without_comments_and_strings(text)
    return {function.name: function for function in c_functions.functions(clean)}


def used(body, name="f"):
    return c_functions.identifiers(c_functions.Function(name, f"void {name}(void)", body))


@pytest.mark.parametrize(
    "text, clean",
    [
        ("a /* b(c) */ d", "a   d"),
        ("a // b(c)\nd", "a  \nd"),
        ('x("b /* c */ \\" d");', 'x("");'),
        ("x('\"', '\\'');", 'x("", "");'),
        ("a /* two\nlines */ b", "a   b"),
        ('/* " */ f("*/")', '  f("")'),
    ],
)
def test_comments_and_strings_are_stripped(text, clean):
    assert c_functions.without_comments_and_strings(text) == clean


def test_a_function_is_a_header_and_braces_at_column_0():
    functions = found("static int add(int a,\n\t       int b)\n{\n\treturn plus(a, b);\n}\n")
    assert list(functions) == ["add"]
    assert functions["add"].header == "static int add(int a,\n\t       int b)"
    assert functions["add"].body == "\n\treturn plus(a, b);"


@pytest.mark.parametrize(
    "text",
    [
        "\nstruct point\n{\n\tint x;\n}\n",
        "\nint table[] =\n{\n\tf(1),\n}\n",
        "\nint declared(int a);\n",
        "\n  int indented(void)\n  {\n  }\n",
        "\nint\ntype_on_its_own_line(void)\n{\n\tg();\n}\n",
        "\nint unfinished(void)\n{\n\tg();\n",
        "\n/* int commented(void)\n{\n\tg();\n}\n*/\n",
    ],
)
def test_code_that_is_not_a_function_in_kernel_style_is_ignored(text):
    assert not found(text)


def test_directives_and_earlier_statements_are_not_part_of_a_header():
    text = (
        "int x;\nEXPORT_SYMBOL(x);\n#ifdef A\n#define B(c) \\\n\td(c)\n\n"
        "long f(void)\n{\n\tg();\n}\n#endif\nvoid h(void)\n{\n}\n"
    )
    assert [(f.name, f.header) for f in found(text).values()] == [
        ("f", "long f(void)"),
        ("h", "void h(void)"),
    ]


def test_a_body_ends_at_the_first_closing_brace_at_column_0():
    functions = found(
        "int f(void)\n{\n\tif (a) {\n\t\tb();\n\t}\n\tc();\n}\nint g(void)\n{\n}\n"
    )
    assert functions["f"].body.rstrip().endswith("c();") and "g" in functions


def test_callees_exclude_keywords_and_the_function_itself():
    assert used("if (a) while (b()) return (c (d)); f(); sizeof(e);") == {
        "b": CALLED,
        "c": CALLED,
    }


def test_an_identifier_has_all_its_kinds():
    assert used("p->ops(MAX_LEN); s.size = LOCK(NULL); x.LOCK;") == {
        "ops": CALLED | FIELD,
        "LOCK": CALLED | CONSTANT | FIELD,
        "MAX_LEN": CONSTANT,
        "size": FIELD,
    }


def test_a_function_without_calls_is_not_an_example():
    batch = c_functions.parse_files([("a/b.c", "int f(void)\n{\n\treturn MAX_LEN;\n}\n")])
    assert not batch.names and not batch.words


def test_a_batch_numbers_its_words():
    text = "void put_it(struct box *b)\n{\n\tadd(b, MAX_LEN);\n}\n"
    batch = c_functions.parse_files([("a.c", ""), ("lib/box.c", text)])
    words = batch.words
    assert [words[i] for i in batch.names] == ["put_it"]
    assert list(batch.files) == [1]
    (row,) = [[words[i] for i in batch.features]]
    assert row == [
        *("name:put", "name:it", "path:lib", "path:box"),
        *("type:void", "type:struct", "type:box", "argument:b"),
    ]
    assert [words[i] for i in batch.labels] == ["add", "MAX_LEN"]
    assert list(batch.kinds) == [CALLED, CONSTANT]


def test_features_have_the_position_of_a_word():
    function = c_functions.Function(
        "get_X2", "static u8 *get_X2(struct box *box,\n\tconst unsigned, size_t max_len)", ""
    )
    assert c_functions.features(function, "drivers/net/box-4.c") == [
        *("name:get", "name:x2", "path:drivers", "path:net", "path:box", "path:4"),
        *("type:static", "type:u8", "type:struct", "type:box", "type:const", "type:size"),
        *("type:t", "argument:box", "argument:unsigned", "argument:max", "argument:len"),
    ]
    empty = c_functions.Function("f", "void f()", "")
    assert c_functions.features(empty, "a.c") == ["name:f", "path:a", "type:void"]
