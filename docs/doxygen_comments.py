#!/usr/bin/env python3
"""Filters a header for Doxygen: plain comments above or behind a declaration become its documentation.

  docs/doxygen_comments.py HEADER    prints it; docs/Doxyfile calls this

What is indented in a comment stays as it is, comments in bodies of functions are left out, and a table of operations
(X macros, kernels/*.h) becomes the declarations that it stands for.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMENT = re.compile(r"^ *// ?(.*)$")
TRAILING = re.compile(r"^( *[^ /\"][^\"]*?(?:\"[^\"]*\"[^\"]*?)*)  +// (.*)$")
SCOPE = re.compile(r"^\s*(template <.*> *)?(typedef )?(namespace|struct|class|union|enum|extern \"C\")\b")
TABLES = re.compile(r"((?:^//.*\n)*)^#define X\((name.*?)\)((?:.*\\\n)*.*\n)((?:RT_\w+_OPS\(X\)\n)+)#undef X\n", re.M)


def fields(text):
    """The arguments of a call that begins here, up to its closing parenthesis."""
    out, depth = [""], 0
    for c in text:
        depth += (c in "({[") - (c in ")}]")
        if depth < 0:
            break
        if c == "," and depth == 0:
            out.append("")
        else:
            out[-1] += c
    return [field.strip() for field in out]


def rows(table):
    """The rows of a table of operations, which may be made of others: their fields."""
    for file in sorted((ROOT / "kernels").glob("*.h")):
        if found := re.search(rf"#define {table}\(X\)((?:.*\\\n)*.*)", file.read_text()):
            text = re.sub(r"\\\n", " ", found[1])
            others = [row for other in re.findall(r"\b(RT_\w+_OPS)\(X\)", text) for row in rows(other)]
            return others + [fields(text[at.end():]) for at in re.finditer(r"\bX\(", text)]
    sys.exit(f"doxygen_comments.py: there is no table {table}")


def written_out(match):
    comment, parameters, body, tables = match.groups()
    lines = [line.rstrip(" \\").strip() for line in body.splitlines() if line.strip(" \\")]
    out = ""
    for row in (row for table in re.findall(r"RT_\w+_OPS", tables) for row in rows(table)):
        given = dict(zip(parameters.replace(" ", "").split(","), row))
        for line in lines:
            out += comment + re.sub(r"\w+", lambda m: given.get(m[0], m[0]), line) + "\n"
    return out


def escaped(text):
    """Text that Doxygen shows as it is; what is in quotes it does not read."""
    return re.sub(r"\"[^\"]*\"|[\\@<&#%*]", lambda m: {"*": "&lowast;"}.get(m[0], "\\" * (len(m[0]) == 1) + m[0]), text)


def documentation(lines, command=""):
    """A comment of Doxygen's; lines that are indented further keep their form."""
    out, verbatim = ["/**" + command], False
    for line in lines:
        formula = line.startswith(" ")
        if formula != verbatim:
            out.append("@verbatim" if formula else "@endverbatim")
            verbatim = formula
        out.append(line if formula else escaped(line))
    return out + (["@endverbatim"] if verbatim else []) + ["*/"]


def name_of(line):
    """What a declaration of a function declares; empty: none."""
    found = re.match(r"[\w:<>,&* \[\]]*?\b(\w+)\(", line.strip())
    return found[1] if found else ""


def filtered(text, header):
    out, block, last = [], [], ("", [])  # the comment that waits for its declaration; the last function and its comment
    scopes, named = [], False            # for each open brace whether declarations follow; whether the file has its own
    for line in TABLES.sub(written_out, text).split("\n"):
        inside = not all(scopes)
        if found := COMMENT.match(line):
            if not inside:
                block.append(found[1])
            continue
        trailing = TRAILING.match(line)
        code, behind = trailing.groups() if trailing else (line, "")
        if inside:
            behind, block = "", []
        if block and (not code.strip() or code.startswith(("namespace", "#include"))):
            out += documentation(block, "" if named else "@file")  # nothing follows: it is the file's
            named, block = True, []
        elif block:
            out += documentation(block)
            last, block = (name_of(code), block), []
        elif not inside and name_of(code) and "->" not in behind and (
                name_of(code) == last[0] or last[0] and not code.startswith(" ")):
            out += documentation(last[1] + ([behind[0].upper() + behind[1:]] if behind else []))  # of several functions
            behind = ""
        else:
            last = ("", [])
        if code.endswith("{") and behind:
            out += documentation([behind])  # of what begins here
        elif behind and not re.match(r"\s*((struct|class) \w+;$|[#}]|(public|protected|private):)", code):
            code += f"  ///< {escaped(behind)}"
        if not inside and re.match(r"\s*(template <.*> *)?(class|struct) .*\{", code):
            out.append(f"/** @headerfile {header} <ringtape/{header}> */")  # as programs include it
        if not code.startswith("#include"):  # Doxygen would read that file, too
            out.append(code)
        for brace in re.findall("[{}]", re.sub(r"\"(\\.|[^\"])*\"|'(\\.|[^'])'", "", line.split("  // ")[0])):
            if brace == "{":
                scopes.append(bool(SCOPE.match(code)) and all(scopes))
            elif scopes:
                scopes.pop()
    return "\n".join(out if named else ["/** @file */", *out])


if len(sys.argv) != 2:
    sys.exit(__doc__)
path = pathlib.Path(sys.argv[1]).resolve()
print(filtered(path.read_text(), path.relative_to(ROOT)), end="")
