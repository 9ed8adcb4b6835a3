"""A subject that greets and then does what no subject may: its argument says what. Standard library alone."""

import json
import os
import signal
import struct
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


def blob(metadata, name="y", shape=(0,), dtype="F32", data=b""):
    header = {"__metadata__": metadata}
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def say(body, length=None):
    replies.write(struct.pack("<Q", len(body) if length is None else length) + body)
    replies.flush()


hello = load()
say(blob({"kind": "hello", "protocol": hello["protocol"], "name": how, "supports": "{}"}))
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
    elif how == "hang":
        if len(sys.argv) > 2:  # a file that says that the case is here, and in which process
            with open(sys.argv[2] + ".new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(sys.argv[2] + ".new", sys.argv[2])
        time.sleep(3600)
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
