#!/usr/bin/env python3
"""Draws docs/house.svg: the folders as rooms, each on the floor above all that it includes. Names and purposes are
those of section 2 of docs/design.md, arrows those of the sources' includes, without those that a longer way implies.

  docs/house.py           draws it anew
  docs/house.py --check   fails if it is out of date, or if two rooms include each other
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
STYLE = """text{font:12px system-ui,sans-serif}
.page{fill:#fff}
.ink{fill:#1b1f23;font-weight:bold;font-size:14px}
.soft{fill:#59636e}
.room{fill:#f3f5f7;stroke:#8b949e}
.way{stroke:#0072b2;stroke-width:1.5;fill:none}
.head{fill:#0072b2}
@media (prefers-color-scheme:dark){
.page{fill:#14171a}
.ink{fill:#e6e8ea}
.soft{fill:#a3acb5}
.room{fill:#1d2125;stroke:#4b535b}
.way{stroke:#56b4e9}
.head{fill:#56b4e9}
}"""


def purposes():
    """{room: what it is for}, from the page's list."""
    section = (ROOT / "docs" / "design.md").read_text().split("\n## 2.")[1]
    out = {}
    for line in section.split("```")[1].strip().splitlines():
        rooms, purpose = re.match(r"(\S.*?) +-> .*?(?:  +|\t)(.*)", line).groups()
        for room in rooms.split():
            out[room] = purpose
    return out


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
                if other and other != room:
                    out[room].add(other)
    return out


def floors(below):
    """{room: its floor}: 1 where nothing is below. Rooms that include each other have none."""
    out = {}

    def floor(room, way):
        if room in way:
            sys.exit("house.py: rooms include each other: " + " -> ".join(way[way.index(room):] + [room]))
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


def picture():
    rooms = purposes()
    below = includes(rooms)
    level = floors(below)
    top = max(level.values())
    place = {}  # room: x, y, width
    for floor in range(1, top + 1):
        here = [room for room in rooms if level[room] == floor]
        width = (WIDTH - 2 * MARGIN - GAP * (len(here) - 1)) / len(here)
        for i, room in enumerate(here):
            place[room] = (MARGIN + i * (width + GAP), MARGIN + (top - floor) * (HEIGHT + GAP), width)
    height = 2 * MARGIN + top * HEIGHT + (top - 1) * GAP
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" role="img">', "<title>The folders and what they include</title>",
           f"<style>\n{STYLE}\n</style>", f'<rect class="page" width="{WIDTH}" height="{height}"/>']
    for upper, lower in direct(below):
        (x0, y0, w0), (x1, y1, w1) = place[upper], place[lower]
        left, right = max(x0, x1), min(x0 + w0, x1 + w1)
        begin = end = (left + right) / 2
        if left > right:  # they are not above each other
            begin, end = (x0 + w0 - 30, x1 + 30) if x0 < x1 else (x0 + 30, x1 + w1 - 30)
        elif level[upper] - level[lower] > 1:  # behind the floors between
            begin = end = right - 24
        out.append(f'<path class="way" d="M{begin:g},{y0 + HEIGHT:g}L{end:g},{y1 - 7:g}"/>')
        out.append(f'<path class="head" d="M{end:g},{y1:g}l-4.5,-8h9z"/>')
    for room, (x, y, width) in place.items():
        out.append(f'<rect class="room" x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="4"/>')
        out.append(f'<text class="ink" x="{x + 12:g}" y="{y + 22:g}">{escape(room)}</text>')
        lines = textwrap.wrap(rooms[room], int((width - 24) / 6.1), max_lines=3, placeholder=" ...")
        for i, line in enumerate(lines):
            out.append(f'<text class="soft" x="{x + 12:g}" y="{y + 39 + 14 * i:g}">{escape(line)}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    drawn = picture()
    if not sys.argv[1:]:
        PICTURE.write_text(drawn)
    elif not PICTURE.exists() or PICTURE.read_text() != drawn:
        sys.exit("house.py: docs/house.svg is out of date; docs/house.py draws it anew")


main()
