"""A subject that greets and then does what no subject may: its argument says what. Standard library alone."""

import json
import os
import signal
import struct
import subprocess
import sys
import time

how = sys.argv[1]
requests, replies = sys.stdin.buffer, sys.stdout.buffer


def load():
    head = requests.read(8)
    if len(head) < 8:
        sys.exit(0)
    blob = requests.read(struct.unpack("<Q", head)[0])
    (size,) = struct.unpack("<Q", blob[:8])
    return json.loads(blob[8 : 8 + size])["__metadata__"]


def blob(metadata, name="y", shape=(0,), dtype="F32", data=b"", beside={}):
    header = {"__metadata__": metadata}
    for name, (dtype, shape, more) in {name: (dtype, shape, data), **beside}.items():
        start = sum(tensor["data_offsets"][1] - tensor["data_offsets"][0] for tensor in list(header.values())[1:])
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, start + len(more)]}
    data += b"".join(more for _, _, more in beside.values())
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def say(body, length=None):
    replies.write(struct.pack("<Q", len(body) if length is None else length) + body)
    replies.flush()


def tell(path):
    """A file that says that the moment has come, and which processes run then."""
    pids = [os.getpid()]
    if how.endswith("with-a-child"):
        pids.append(subprocess.Popen(["sleep", "3600"]).pid)
    with open(path + ".new", "w") as file:
        file.write(" ".join(map(str, pids)))
    os.rename(path + ".new", path)


hello = load()
greeting = {"kind": "hello", "protocol": hello["protocol"], "name": how, "supports": "{}"}
if how == "greet-never":
    print("importing", file=sys.stderr, flush=True)
    print("hm", end="", flush=True)
    if len(sys.argv) > 2:
        tell(sys.argv[2])
    time.sleep(3600)
elif how == "greet-without-a-name":
    del greeting["name"]
elif how == "greet-without-supports":
    del greeting["supports"]
elif how == "greet-with-min-above-max":
    greeting["supports"] = json.dumps({"min": {"tokens": 5}, "max": {"tokens": 3}})
elif how == "expert":
    greeting["supports"] = '{"routes_itself": true}'
say(blob(greeting))
wrong_replies = 0
while True:
    asked = load()
    plan = json.loads(asked["plan"])
    said = {"kind": "reply", "id": asked["id"]}
    shape = [len(plan["ranks"]), plan["tokens"], plan["hidden"]]
    size = shape[0] * shape[1] * shape[2]
    print("about to", how, file=sys.stderr, flush=True)
    if how == "exit":
        os._exit(3)
    elif how == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "hang-after-a-wrong-reply" and wrong_replies == 0:
        wrong_replies += 1
        say(blob(said, shape=shape, data=struct.pack("<f", 1e30) * size))
    elif how.startswith("hang"):
        if len(sys.argv) > 2:
            tell(sys.argv[2])
        time.sleep(3600)
    elif how == "signal-beside-a-holder":
        # A process of a session of its own keeps the pipes open.
        subprocess.Popen(["sleep", "20"], start_new_session=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "exit-with-a-child":
        tell(sys.argv[2])
        os._exit(3)
    elif how == "enormous-shape":
        say(blob(said, shape=[1 << 63, 1 << 63, 4], data=bytes(4 * size)))
    elif how == "stop-reading":
        requests.close()
        time.sleep(3600)
    elif how == "close":
        os.close(1)
        time.sleep(3600)
    elif how == "print":
        print("Done in 0.1 s", flush=True)
        time.sleep(3600)
    elif how == "short":
        say(blob(said, shape=shape, data=bytes(4 * size)), length=40)
    elif how == "huge":
        say(b"", length=1 << 62)
    elif how == "cut":
        say(b"half", length=100)
        os._exit(0)
    elif how == "rubbish":
        say(os.urandom(64))
    elif how == "shape":
        say(blob(said, shape=shape[::-1], data=bytes(4 * size)))
    elif how == "dtype":
        say(blob(said, shape=shape, dtype="BF16", data=bytes(2 * size)))
    elif how == "nan":
        say(blob(said, shape=shape, data=struct.pack("<f", float("nan")) * size))
    elif how == "stage":
        say(blob(said, shape=shape, data=bytes(4 * size), beside={"stage.foo": ("F32", [0], b"")}))
    elif how == "expert":
        ids = [plan["tokens"], plan["top_k"]]
        minus = struct.pack("<i", -1) * (ids[0] * ids[1])
        say(blob(said, shape=shape, data=bytes(4 * size), beside={"topk_ids": ("I32", ids, minus)}))
    elif how == "nameless":
        say(blob(said, name="out", shape=shape, data=bytes(4 * size)))
    elif how == "other-id":
        say(blob({"kind": "reply", "id": "0"}, shape=shape, data=bytes(4 * size)))
    elif how == "twice":
        for _ in range(2):
            say(blob(said, shape=shape, data=bytes(4 * size)))
    elif how == "complain":
        say(blob({"kind": "error", "id": asked["id"], "message": "no kernel image"}))
    else:
        sys.exit("unknown misbehaviour " + how)
