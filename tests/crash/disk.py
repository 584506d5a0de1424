"""What a disk may hold after a power loss, from the calls that were made until then.

Three kinds of disk:
    ext4     names change in the order they were changed in, up to some moment not before the last fsync of anything;
             what was written to a file after its own last fsync may be missing from its end
    mkdirs   any change of a name since its folder's last fsync may be missing, but for folders that were made
    posix    these, too; of what was written to a file after its own last fsync, anything
"""
from dataclasses import dataclass, field

KINDS = ("ext4", "mkdirs", "posix")


@dataclass
class Node:
    kind: str  # folder, file, link
    target: str = ""
    changes: list = field(default_factory=list)  # (when, what...) of its names or of its bytes
    synced: int = -1  # when it last was
    names: dict = field(default_factory=dict)  # of a folder, as they are for who looks now


class Tree:
    def __init__(self):
        self.root = Node("folder")
        self.last_sync = -1

    def find(self, path):
        node = self.root
        for name in [] if path == "." else path.split("/"):
            node = node.names[name]
        return node

    def place(self, path):
        folder, _, name = path.rpartition("/")
        return self.find(folder or "."), name

    def link(self, when, path, node):
        folder, name = self.place(path)
        folder.names[name] = node
        folder.changes.append((when, "add", name, node))

    def unlink(self, when, path):
        folder, name = self.place(path)
        del folder.names[name]
        folder.changes.append((when, "remove", name, None))

    def apply(self, when, call):
        if call.name in ("create", "mkdir", "symlink"):
            kind = {"create": "file", "mkdir": "folder", "symlink": "link"}[call.name]
            self.link(when, call.path, Node(kind, call.words[0] if kind == "link" else ""))
        elif call.name in ("unlink", "rmdir"):
            self.unlink(when, call.path)
        elif call.name == "rename":
            old, new = call.words
            node = self.find(old)
            (folder, before), (other, after) = self.place(old), self.place(new)
            assert folder is other, "a rename to another folder"
            del folder.names[before]
            folder.names[after] = node
            folder.changes.append((when, "rename", (before, after), node))
        elif call.name in ("fsync", "fdatasync", "syncdir"):
            self.find(call.path).synced = self.last_sync = when
        elif call.name == "write":
            self.find(call.path).changes.append((when, "write", int(call.words[1]), call.data))
        elif call.name == "truncate":
            self.find(call.path).changes.append((when, "cut", int(call.words[1]), None))


def tree_of(calls):
    out = Tree()
    for when, call in enumerate(calls):
        out.apply(when, call)
    return out


def names_left(node, lasts):
    """name -> Node, of the changes that lasted."""
    out = {}
    for change in node.changes:
        if not lasts(change):
            continue
        _, what, name, child = change
        if what == "add":
            out[name] = child
        elif what == "remove":
            out.pop(name, None)
        else:
            before, after = name
            if out.get(before) is child:
                del out[before]
            out[after] = child
    return out


def bytes_left(node, kind, rng):
    out, torn = bytearray(), False
    for when, what, where, data in node.changes:
        if when > node.synced:
            if torn or rng.random() < 0.4:
                torn = torn or kind == "ext4"
                continue
            if what == "write" and rng.random() < 0.4:
                torn, data = torn or kind == "ext4", data[:rng.randrange(len(data) + 1)]
        if what == "cut":
            out = out[:where] + bytes(max(0, where - len(out)))
        else:
            out[len(out):where] = bytes(max(0, where - len(out)))
            out[where:where + len(data)] = data
    return bytes(out)


def write_state(tree, kind, rng, folder):
    """Puts below `folder` one of the states that such a disk may have."""
    journal = rng.randint(tree.last_sync, max(tree.last_sync, newest(tree.root)))

    def put(node, at):
        def lasts(change):
            if kind == "ext4":
                return change[0] <= journal
            made = kind == "mkdirs" and change[1] == "add" and change[3].kind == "folder"
            return change[0] <= node.synced or made or rng.random() < 0.5

        for name, child in names_left(node, lasts).items():
            if child.kind == "folder":
                (at / name).mkdir()
                put(child, at / name)
            elif child.kind == "link":
                (at / name).symlink_to(child.target)
            else:
                (at / name).write_bytes(bytes_left(child, kind, rng))

    put(tree.root, folder)


def newest(node):
    """When the last name was changed."""
    below = [newest(child) for child in node.names.values() if child.kind == "folder"]
    return max([change[0] for change in node.changes] + below, default=-1)
