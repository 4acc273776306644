"""A filter in Python, the interpreter that runs it, and where that one has its library."""

import subprocess

PYTHON = "/usr/bin/python3"
#: What a filter in Python is: bundles from descriptor 3, and on to descriptor 4. Its words say what it does.
FILTER = r"""
import json, os, signal, socket, struct, sys, time

inward, onward = socket.socket(fileno=3), socket.socket(fileno=4)
FIXED = struct.Struct("<BBQ18s18sBI")
deeds = sys.argv[1:]

def own():
    # What it is and what it can do, as JSON.
    try:
        socket.create_connection(("127.0.0.1", int(deeds[1])), 2)
        network = True
    except OSError:
        network = False
    try:
        shadow = bool(os.listdir("/etc"))
    except OSError:
        shadow = False
    return json.dumps({
        "pid": os.getpid(), "uid": os.getuid(), "fds": [n for n in range(100) if is_open(n)], "network": network,
        "etc": shadow, "environment": dict(os.environ), "folder": os.getcwd(), "files": os.listdir("."),
    })

def is_open(number):
    try:
        os.fstat(number)
        return True
    except OSError:
        return False

def answer(client, status, text):
    with socket.socket(fileno=client) as client:
        client.setblocking(True)
        body = text.encode()
        client.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)) + body)
        client.shutdown(socket.SHUT_WR)

def babble():
    # More than two gates hear, without end.
    while True:
        onward.send(b"nonsense")

if "babble" in deeds:
    babble()
if "fail" in deeds:
    sys.exit("this filter is of no use")
def begin(word, wait):
    # As long as that file is there.
    if os.path.exists("filters/" + word):
        print("filter is busy" if word == "busy" else "filter sleeps", file=sys.stderr, flush=True)
    while os.path.exists("filters/" + word):
        wait()

if "busy" in deeds:
    begin("busy", lambda: None)
begin("asleep", lambda: time.sleep(1000))
print("filter begins:", *deeds, file=sys.stderr, flush=True)
while True:
    data, clients, _, _ = socket.recv_fds(inward, 70000, 1)
    if not data:
        break
    version, kind, number, peer, local, relayed, length = FIXED.unpack_from(data)
    head = data[FIXED.size:]
    assert (version, kind, len(head)) == (1, 1, length), data[:100]
    line = head.split(b"\r\n")[0]
    if b" /refused " in line:
        answer(clients[0], b"403 Forbidden", "no")
        continue
    if b" /own " in line and "own" in deeds:
        answer(clients[0], b"200 OK", own())
        continue
    if b" /drop " in line:
        os.close(clients[0])
        continue
    if b" /die " in line:
        os._exit(7)
    if b" /babble " in line:
        babble()
    if b" /hold " in line:
        print("filter holds", *deeds, file=sys.stderr, flush=True)
        while not os.path.exists("filters/go"):
            time.sleep(0.01)
    if b" /hang " in line:
        print("filter hangs", file=sys.stderr, flush=True)
        while True:
            signal.pause()
    for deed in deeds:
        # a=b: requests for /a become requests for /b.
        before, _, after = deed.partition("=")
        head = head.replace(b" /%s " % before.encode(), b" /%s " % after.encode(), 1)
    data = FIXED.pack(version, kind, number, peer, local, relayed, len(head)) + head
    socket.send_fds(onward, [data], clients)
    os.close(clients[0])
"""


def library():
    """Where that interpreter has what it needs."""
    text = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    return subprocess.run([PYTHON, "-c", text], capture_output=True, text=True, check=True).stdout.strip()
