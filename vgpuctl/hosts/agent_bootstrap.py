# SPDX-License-Identifier: Apache-2.0
"""The program that turns a bare Python on a host into the agent: it finds, receives, checks and starts the file."""

ANSWER = "vgpuctl-agent"

# It answers one line, `vgpuctl-agent have|need|old X.Y|damaged`, and after `need` reads the file's bytes from stdin.
# It runs under Python 3.6 and later far enough to say that it is too old. A host whose home is not writable
# keeps the file in /run, or in memory alone. Files that nobody used for a month go.
# Beside the file lies the same agent compiled by the host's own Python, as modules in a zip would be compiled at each
# start: 64 digits of its sha256, then a marshalled dictionary from module to code. The host's Python names that file,
# since bytecode differs between versions. Bytes that were checked are the bytes that run. Annotations stay text
# (PEP 563): to work out those of all classes was a fifth of the agent's start, and it reads those of a few. To look for
# circles of objects after each 700 new ones, as Python does by default, was a twentieth.
BOOTSTRAP = """\
import gc, hashlib, importlib.machinery, marshal, os, pwd, stat, sys, time
gc.set_threshold(20000)
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
    target = "%s.%s-%x" % (path[:-4], sys.implementation.cache_tag, sys.hexversion)
    try:
        with open(target, "rb") as file:
            digest, data = file.read(64), file.read()
        if digest == hashlib.sha256(data).hexdigest().encode():
            touch(target)
            return marshal.loads(data)
    except OSError:
        pass
    import __future__, zipfile
    codes, unread = {}, __future__.annotations.compiler_flag
    with zipfile.ZipFile(path) as sources:
        for name in sources.namelist():
            code = compile(sources.read(name), path + "/" + name, "exec", unread, True, 2)
            codes[name[:-3].replace("/", ".")] = marshal.dumps(code)
    data = marshal.dumps(codes)
    keep(hashlib.sha256(data).hexdigest().encode() + data, target)
    return codes
class Finder:
    def __init__(self, path):
        self.path = path
        self.codes = compiled(path)
    def find_spec(self, name, target=None):
        for each in (name, name + ".__init__"):
            if each in self.codes:
                spec = importlib.machinery.ModuleSpec(name, self, origin=each, is_package=each != name)
                if each != name:
                    spec.submodule_search_locations.append(self.path)
                return spec
    def create_module(self, spec):
        pass
    def exec_module(self, module):
        exec(marshal.loads(self.codes[module.__spec__.origin]), module.__dict__)
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
    sys.path.insert(0, path)
    if kept:
        sys.path_importer_cache[path] = Finder(path)
start(sys.argv[1], int(sys.argv[2]))
from vgpuctl.agent.__main__ import main
main()
"""
