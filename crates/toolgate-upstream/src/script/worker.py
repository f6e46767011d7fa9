# Loads a Python tool and serves calls to it. Started by Toolgate; the tool itself never sees this module.
#
# Requests arrive on stdin: four bytes of length, then JSON (the second one is the source of the tool). Frames go to
# the original stdout: four bytes of length, one byte of kind, then the body. Invariant: only frames are written there.
# Everything that the tool prints, itself or through a program that it starts, goes to stderr. The first argument is the
# source of `signature.py`, which most tools do not need.
import sys

if sys.path and sys.path[0] in ("", "."):
    del sys.path[0]  # A file beside the tool must not shadow the imports of this module.

import os
import inspect
import json
import traceback

source = os.fdopen(os.dup(0), "rb")
target = os.fdopen(os.dup(1), "wb", buffering=0)
nothing = os.open(os.devnull, os.O_RDONLY)
os.dup2(nothing, 0)
os.close(nothing)
os.dup2(2, 1)
process = os.getpid()


def receive():
    head = source.read(4)
    if len(head) < 4:
        sys.exit(0)
    return source.read(int.from_bytes(head, "big"))


def send(kind, body):
    if os.getpid() != process:
        os._exit(0)  # A fork of the tool returned to this code.
    rest = memoryview((len(body) + 1).to_bytes(4, "big") + kind + body)
    while rest:
        rest = rest[target.write(rest):]


def encode(value):
    other = lambda value: signature().encode_other(value)
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=other)
    return text.encode("utf-8")


signature_source = sys.argv[1]
signature_module = None


def signature():
    """The module `signature`, loaded by its first use."""
    global signature_module
    if signature_module is None:
        module = type(sys)("toolgate_signature")
        sys.modules[module.__name__] = module
        exec(compile(signature_source, "toolgate_signature", "exec"), module.__dict__)
        signature_module = module
    return signature_module


def failure(error, skip):
    """Encodes an exception with its traceback, without the frames of this file."""
    trace = error.__traceback__
    for _ in range(skip):
        trace = trace.tb_next if trace else None
    try:
        message = str(error)
    except Exception:
        message = "the exception has no printable message"
    try:
        lines = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:
        lines = ""
    fields = {"type": type(error).__name__, "message": message, "traceback": lines[-8000:]}
    fields["missing"] = error.name if isinstance(error, ModuleNotFoundError) else None
    for name in ("code", "hint"):
        text = getattr(error, name, None)
        fields[name] = text if isinstance(text, str) else None
    return json.dumps(fields).encode("utf-8")


class NoFunction(Exception):
    pass


def load(setup, code):
    """Returns the function of the tool, and its calling convention. To describe a file, returns its module."""
    module = type(sys)("toolgate_tool")
    module.__file__ = setup["path"]
    sys.modules[module.__name__] = module
    sys.path.insert(0, os.path.dirname(setup["path"]))
    sys.argv = [setup["path"]]
    exec(compile(code, setup["path"], "exec"), module.__dict__)
    if setup["describe"]:
        return module
    function = getattr(module, setup["entrypoint"], None)
    if not callable(function):
        names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        raise NoFunction(", ".join(names[:20]))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return function, False, None
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    names = [one.name for one in parameters]
    rest = any(one.kind == one.VAR_POSITIONAL for one in parameters)
    # `run(text, language)` takes the arguments by name, `run(args)` takes all of them as one dict.
    by_name = not rest and (not places or places[0].name in setup["properties"])
    if "context" in names and "context" not in setup["properties"]:
        return function, by_name, "context"
    second = not by_name and len(places) > 1 and places[1].default is places[1].empty
    return function, by_name, places[1].name if second else None


# Types of arguments that need no conversion, as they are and in quotes.
TRIVIAL = (str, int, float, bool, dict, list, "str", "int", "float", "bool", "dict", "list")


def is_trivial(function, context):
    try:
        annotations = inspect.unwrap(function).__annotations__
        return all(kind in TRIVIAL for name, kind in annotations.items() if name not in ("return", context))
    except Exception:
        return False


class Arguments:
    """Prepares the arguments of a function that takes them by name."""

    def __init__(self, function, context):
        self.function, self.context = function, context
        self.parameters = inspect.signature(function)
        self.types = {} if is_trivial(function, context) else signature().converters(function)
        self.types.pop(context, None)

    def prepare(self, arguments, named):
        try:
            self.parameters.bind(**arguments, **named)
        except TypeError as error:
            signature().check_arguments(self.parameters, arguments, self.context)
            raise signature().WrongArgument(str(error))
        for name, kind in self.types.items():
            if name in arguments:
                arguments[name] = signature().convert(kind, arguments[name], name)
        return arguments

    def refusal(self, error):
        fields = {"message": str(error), "function": getattr(self.function, "__name__", "")}
        fields["line"] = signature().line_of(self.function)
        return json.dumps(fields).encode("utf-8")


loop = None


def finish(value):
    """Runs the awaitable of an `async` function to completion."""
    global loop
    if loop is None:
        import asyncio

        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop.run_until_complete(value)


def main():
    setup = json.loads(receive())
    code = receive()
    try:
        loaded = load(setup, code)
        if setup["describe"]:
            return send(b"d", encode(signature().describe_module(loaded)))
        function, by_name, context = loaded
        arguments = Arguments(function, context) if by_name else None
    except BaseException as error:
        send(b"x", failure(error, 9 if isinstance(error, (SyntaxError, NoFunction)) else 2))
        return
    del code
    send(b"y", b"1" if context else b"0")
    largest = setup["max_output"]
    while True:
        request = json.loads(receive())
        ends = False
        try:
            named = {context: request["context"]} if context else {}
            if by_name:
                try:
                    request["arguments"] = arguments.prepare(request["arguments"], named)
                except Exception as error:
                    if signature_module is None or not isinstance(error, signature_module.WrongArgument):
                        raise
                    send(b"a", arguments.refusal(error))
                    continue
                value = function(**request["arguments"], **named)
            elif context == "context" or not named:
                value = function(request["arguments"], **named)
            else:
                value = function(request["arguments"], request["context"])
            if inspect.isawaitable(value):
                value = finish(value)
        except BaseException as error:
            ends = isinstance(error, (MemoryError, SystemExit, KeyboardInterrupt, GeneratorExit))
            kind, body = b"e", failure(error, 1)
        else:
            try:
                kind, body = b"r", encode(value)
                if len(body) > largest:
                    kind, body = b"l", b""
            except MemoryError as error:
                ends, kind, body = True, b"e", failure(error, 9)
            except Exception as error:
                kind, body = b"n", failure(error, 9)
        value = None
        send(kind, body)
        if ends:
            return


main()
