#!/usr/bin/env python3
"""Draws docs/house.svg: the folders, and in some the rooms below them, each on the floor above all that it includes.
Names and purposes are those of section 2 of docs/design.md, arrows those of the sources' includes between folders,
without those that a longer way implies.

  docs/house.py           draws it anew
  docs/house.py --check   fails if it is out of date, if two folders include each other, or if a room is not listed
"""
import pathlib
import re
import sys
import textwrap
from html import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "house.svg"
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
WIDTH, MARGIN, HEIGHT, GAP = 960, 20, 74, 26
INSIDE = 8  # between rooms of a folder
STYLE = """text{font:12px system-ui,sans-serif}
.page{fill:#fff}
.ink{fill:#1b1f23;font-weight:bold;font-size:14px}
.soft{fill:#59636e}
.room{fill:#f3f5f7;stroke:#8b949e}
.inner{fill:#fff;stroke:#c3cad1}
.way{stroke:#0072b2;stroke-width:1.5;fill:none}
.head{fill:#0072b2}
@media (prefers-color-scheme:dark){
.page{fill:#14171a}
.ink{fill:#e6e8ea}
.soft{fill:#a3acb5}
.room{fill:#1d2125;stroke:#4b535b}
.inner{fill:#14171a;stroke:#3b4249}
.way{stroke:#56b4e9}
.head{fill:#56b4e9}
}"""


def purposes():
    """{folder: what it is for}, and {room: what it is for}, from the page's two lists."""
    lists = (ROOT / "docs" / "design.md").read_text().split("\n## 2.")[1].split("```")
    folders = re.findall(r"^(\S+) +-> .*?  +(.*)", lists[1], re.M)
    return dict(folders), dict(re.findall(r"^(\S+)  +(.*)", lists[3], re.M))


def room_of(path, rooms):
    """The innermost room that has this file, of a path below the root; None: none."""
    return max((r for r in rooms if path.startswith(r + "/")), key=len, default=None)


def includes(rooms):
    """{room: other rooms that its sources include}"""
    out = {room: set() for room in rooms}
    for top in {room.split("/")[0] for room in rooms}:
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix not in SOURCES:
                continue
            room = room_of(file.relative_to(ROOT).as_posix(), rooms)
            for target in re.findall(r'^#include "([^"]+)"', file.read_text(errors="replace"), re.M):
                other = room_of(target, rooms)
                if room and other and other != room:
                    out[room].add(other)
    return out


def floors(below):
    """{room: its floor}: 1 where nothing is below. Rooms that include each other have none."""
    out = {}

    def floor(room, way):
        if room in way:
            sys.exit("house.py: folders include each other: " + " -> ".join(way[way.index(room):] + [room]))
        if room not in out:
            out[room] = 1 + max((floor(other, way + [room]) for other in sorted(below[room])), default=0)
        return out[room]

    for room in below:
        floor(room, [])
    return out


def direct(below):
    """The arrows that no longer way implies."""
    def reached(room):
        return below[room].union(*(reached(other) for other in below[room]))

    return [(room, other) for room in below for other in sorted(below[room])
            if not any(other in reached(between) for between in below[room] - {other})]


def rows(below):
    """The rooms of each floor, from the lowest."""
    level = floors(below)
    return [[room for room in below if level[room] == floor] for floor in range(1, max(level.values()) + 1)]


def rows_inside(folder, folders, rooms):
    """The rows of the rooms of a folder."""
    own = [room for room in rooms if room.startswith(folder + "/")]
    if own:
        there = {f"{folder}/{path.name}" for path in (ROOT / folder).iterdir() if path.is_dir()} - set(folders)
        if there != set(own):
            sys.exit(f"house.py: docs/design.md does not list {sorted(there ^ set(own))} as they are")
    below = {room: others & set(own[:own.index(room)]) for room, others in includes(own).items()}
    return rows(below) if own else []


def wrapped(text, width):
    return textwrap.wrap(text, int((width - 24) / 6.1), max_lines=3, placeholder=" ...")


def widths(count, width, gap):
    """x from the left, and width, of so many rooms side by side."""
    each = (width - gap * (count - 1)) / count
    return [(i * (each + gap), each) for i in range(count)]


def box(kind, x, y, width, height, name, lines):
    out = [f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>',
           f'<text class="ink" x="{x + 12:g}" y="{y + 22:g}">{escape(name)}</text>']
    return out + [f'<text class="soft" x="{x + 12:g}" y="{y + 39 + 14 * i:g}">{escape(line)}</text>'
                  for i, line in enumerate(lines)]


def inside(rows_of_rooms, rooms, width):
    """What is drawn in a folder of this width, from the top: [(y, height, x, width, room)], and its height."""
    out, y = [], 0
    for row in reversed(rows_of_rooms):
        places = widths(len(row), width, INSIDE)
        height = 34 + 14 * max(len(wrapped(rooms[room], w)) for room, (_, w) in zip(row, places))
        out += [(y, height, x, w, room) for room, (x, w) in zip(row, places)]
        y += height + INSIDE
    return out, y


def picture():
    folders, rooms = purposes()
    below = includes(folders)
    level = floors(below)
    place, drawn = {}, []  # folder: x, y, width, height
    y = MARGIN
    for here in reversed(rows(below)):
        places = widths(len(here), WIDTH - 2 * MARGIN, GAP)
        inner = {f: inside(rows_inside(f, folders, rooms), rooms, w - 24) for f, (_, w) in zip(here, places)}
        bottom = y + HEIGHT + max(tall for _, tall in inner.values())
        for folder, (left, width) in zip(here, places):
            some, tall = inner[folder]
            x, top = MARGIN + left, bottom - tall - HEIGHT
            place[folder] = (x, top, width, HEIGHT + tall)
            drawn += box("room", x, top, width, HEIGHT + tall, folder, wrapped(folders[folder], width))
            for down, high, right, wide, room in some:
                drawn += box("inner", x + 12 + right, top + HEIGHT - 4 + down, wide, high,
                             room.removeprefix(folder + "/"), wrapped(rooms[room], wide))
        y = bottom + GAP
    total = y - GAP + MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{total}" '
           f'viewBox="0 0 {WIDTH} {total}" role="img">', "<title>The folders and what they include</title>",
           f"<style>\n{STYLE}\n</style>", f'<rect class="page" width="{WIDTH}" height="{total}"/>']
    for upper, lower in direct(below):
        (x0, y0, w0, h0), (x1, y1, w1, _) = place[upper], place[lower]
        left, right = max(x0, x1), min(x0 + w0, x1 + w1)
        begin = end = (left + right) / 2
        if left > right:  # they are not above each other
            begin, end = (x0 + w0 - 30, x1 + 30) if x0 < x1 else (x0 + 30, x1 + w1 - 30)
        elif level[upper] - level[lower] > 1:  # behind the floors between
            begin = end = right - 24
        out.append(f'<path class="way" d="M{begin:g},{y0 + h0:g}L{end:g},{y1 - 7:g}"/>')
        out.append(f'<path class="head" d="M{end:g},{y1:g}l-4.5,-8h9z"/>')
    return "\n".join(out + drawn + ["</svg>", ""])


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    drawn = picture()
    if not sys.argv[1:]:
        PICTURE.write_text(drawn)
    elif not PICTURE.exists() or PICTURE.read_text() != drawn:
        sys.exit("house.py: docs/house.svg is out of date; docs/house.py draws it anew")


main()
