# SPDX-License-Identifier: Apache-2.0
"""The program that turns a bare Python on a host into the agent: it finds, receives, checks and starts the file."""

ANSWER = "vgpuctl-agent"

# It answers one line, `vgpuctl-agent have|need|old X.Y|damaged`, and after `need` reads the file's bytes from stdin.
# It runs under Python 3.6 and later far enough to say that it is too old. A host whose home is not writable
# keeps the file in /run, or in memory alone. Files that nobody used for a month go.
# Beside the file lies the same agent compiled by the host's own Python, after 64 digits with its sha256: modules in a
# zip would be compiled at each start. Its pycs are of the kind that is never checked against a source (PEP 552).
BOOTSTRAP = """\
import hashlib, os, pwd, stat, sys, time
def say(text):
    os.write(1, ("vgpuctl-agent " + text + "\\n").encode())
def folders():
    home = pwd.getpwuid(os.geteuid()).pw_dir
    return [home + "/.cache/vgpuctl", "/run/vgpuctl-agent-%d" % os.geteuid()]
def is_ours(folder):
    try:
        info = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o77
def make(folder):
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        if stat.S_ISDIR(os.lstat(folder).st_mode):
            os.chmod(folder, 0o700)
    except OSError:
        pass
    return is_ours(folder)
def has(path, digest):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False
def receive(size):
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 16))
        if not part:
            sys.exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
def keep(data, path):
    temporary = "%s.%d" % (path, os.getpid())
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.rename(temporary, path)
        return True
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        return False
def touch(path):
    try:
        os.utime(path)
    except OSError:
        pass
def clean(folder):
    try:
        for entry in os.scandir(folder):
            if entry.name.startswith("agent-") and entry.stat().st_mtime < time.time() - 30 * 86400:
                os.unlink(entry.path)
    except OSError:
        pass
def compiled(path):
    import importlib.util, io, marshal, zipfile
    target = "%s.%s" % (path[:-4], sys.implementation.cache_tag)
    try:
        with open(target, "rb") as file:
            found = file.read()
        if found[:64] == hashlib.sha256(found[64:]).hexdigest().encode():
            touch(target)
            return target
    except OSError:
        pass
    buffer = io.BytesIO()
    header = importlib.util.MAGIC_NUMBER + b"\\1\\0\\0\\0" + bytes(8)
    with zipfile.ZipFile(path) as sources, zipfile.ZipFile(buffer, "w") as codes:
        for name in sources.namelist():
            code = compile(sources.read(name), path + "/" + name, "exec", dont_inherit=True)
            codes.writestr(name + "c", header + marshal.dumps(code))
    data = buffer.getvalue()
    return target if keep(hashlib.sha256(data).hexdigest().encode() + data, target) else path
def in_memory(data):
    descriptor = os.memfd_create("vgpuctl-agent")
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]
    return "/proc/self/fd/%d" % descriptor
def start(digest, size):
    if sys.version_info < (3, 9):
        say("old %d.%d" % sys.version_info[:2])
        sys.exit(0)
    name = "/agent-" + digest + ".pyz"
    path = next((each + name for each in folders() if is_ours(each) and has(each + name, digest)), None)
    if path:
        say("have")
        touch(path)
        clean(os.path.dirname(path))
    else:
        say("need")
        data = receive(size)
        if hashlib.sha256(data).hexdigest() != digest:
            say("damaged")
            sys.exit(0)
        path = next((each + name for each in folders() if make(each) and keep(data, each + name)), None)
    kept = path is not None
    path = path or in_memory(data)
    sys.argv = [path]
    sys.path.insert(0, compiled(path) if kept else path)
start(sys.argv[1], int(sys.argv[2]))
from vgpuctl.agent.__main__ import main
main()
"""
