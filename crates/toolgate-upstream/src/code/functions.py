"""Start of a program with functions: connects it to the gateway, then runs `program.py`.

Frames are lines of JSON: out `{"print": TEXT}` and `{"call": NAME, "arguments": {}}`, in `{"result": VALUE}` or
`{"error": {}}`. The descriptors of the frames are private to this process, so child processes cannot mix with them.
"""

import io as _io
import json as _json
import os as _os
import sys as _sys
import threading as _threading

_MAX_FRAME = 1 << 20
_CHUNK = 32 << 10


class ToolError(Exception):
    """A call failed. `code`, `message` and `hint` say why."""

    def __init__(self, code, message, hint=None):
        super().__init__(f"{code}: {message}" + (f" (hint: {hint})" if hint else ""))
        self.code, self.message, self.hint = code, message, hint


class _Channel:
    def __init__(self):
        # Copies of descriptors are not inherited by child processes.
        self.replies = _io.TextIOWrapper(_io.FileIO(_os.dup(0)), encoding="utf-8", newline="\n")
        self.frames = _os.dup(1)
        self.lock = _threading.RLock()
        reader, writer = _os.pipe()
        _os.close(writer)
        _os.dup2(reader, 0)
        _os.close(reader)
        _os.dup2(2, 1)

    def send(self, frame):
        data = _json.dumps(frame).encode("ascii") + b"\n"
        if len(data) > _MAX_FRAME:
            raise ToolError("invalid_arguments", f"the arguments have more than {_MAX_FRAME} bytes")
        with self.lock:
            while data:
                data = data[_os.write(self.frames, data):]

    def call(self, name, arguments):
        with self.lock:
            _sys.stdout.flush()
            self.send({"call": name, "arguments": arguments})
            line = self.replies.readline()
        if not line:
            raise ToolError("cancelled", "the gateway ended the program")
        reply = _json.loads(line)
        error = reply.get("error")
        if error:
            raise ToolError(error["code"], error["message"], error.get("hint"))
        return reply["result"]


class _Output(_io.TextIOBase):
    encoding = "utf-8"

    def __init__(self, channel):
        self.channel, self.text, self.size = channel, [], 0

    def writable(self):
        return True

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self.channel.lock:
            self.text.append(text)
            self.size += len(text)
            if self.size >= _CHUNK or text.endswith("\n"):
                self.flush()
        return len(text)

    def flush(self):
        with self.channel.lock:
            text, self.text, self.size = "".join(self.text), [], 0
            for at in range(0, len(text), _CHUNK):
                self.channel.send({"print": text[at:at + _CHUNK]})


def _function(channel, name, parameters):
    def call(*values, **arguments):
        if len(values) > len(parameters):
            raise TypeError(f"{name}() takes at most {len(parameters)} arguments")
        for parameter, value in zip(parameters, values):
            if parameter in arguments:
                raise TypeError(f"{name}() got two values for `{parameter}`")
            arguments[parameter] = value
        return channel.call(name, arguments)

    call.__name__ = call.__qualname__ = name
    return call


def _main(functions):
    channel = _Channel()
    _sys.stdout = _Output(channel)
    names = {"__name__": "__main__", "ToolError": ToolError}
    for name, parameters in functions.items():
        names[name] = _function(channel, name, parameters)
    try:
        with open("program.py", encoding="utf-8") as file:
            source = file.read()
        exec(compile(source, "program.py", "exec"), names)
    except SystemExit:
        raise
    except BaseException:
        import traceback

        kind, error, place = _sys.exc_info()
        traceback.print_exception(kind, error, place.tb_next)
        _sys.stdout.flush()
        _sys.exit(1)
    _sys.stdout.flush()


