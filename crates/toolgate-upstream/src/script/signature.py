# Derives JSON Schemas from the functions of a Python tool, and converts arguments to the types of a signature.
#
# Run by `worker.py`, in its process, only if a function has annotations that need it. Invariant: nothing here calls a
# function of the tool; the types of its annotations are constructed from arguments, as the function expects.
import collections.abc
import dataclasses
import datetime
import decimal
import difflib
import enum
import inspect
import json
import pathlib
import re
import types
import typing
import uuid

MISSING = inspect.Parameter.empty
NONE = type(None)
# Types with a form of their own in JSON: the schema, and the conversion from JSON.
TEXT_TYPES = {
    datetime.datetime: ({"type": "string", "format": "date-time"}, datetime.datetime.fromisoformat),
    datetime.date: ({"type": "string", "format": "date"}, datetime.date.fromisoformat),
    datetime.time: ({"type": "string", "format": "time"}, datetime.time.fromisoformat),
    uuid.UUID: ({"type": "string", "format": "uuid"}, uuid.UUID),
    decimal.Decimal: ({"type": ["string", "number"]}, lambda value: decimal.Decimal(str(value))),
    datetime.timedelta: (
        {"type": "number", "description": "Seconds."},
        lambda value: datetime.timedelta(seconds=value),
    ),
}
PLAIN_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NONE: "null"}
SEQUENCES = (list, set, frozenset, collections.abc.Iterable, collections.abc.Collection, collections.abc.Set)
CONSTRAINTS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


class WrongSignature(Exception):
    """A parameter that cannot be an argument of a tool."""


class WrongArgument(Exception):
    """An argument that does not fit its parameter."""


def is_class(kind, base):
    return isinstance(kind, type) and issubclass(kind, base)


def is_typed_dict(kind):
    return is_class(kind, dict) and hasattr(kind, "__total__") and hasattr(kind, "__annotations__")


def is_pydantic(kind):
    return isinstance(kind, type) and (hasattr(kind, "model_json_schema") or hasattr(kind, "__get_validators__"))


def is_dataclass(kind):
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def name_of(kind):
    return getattr(kind, "__name__", None) or str(kind)


def hints_of(thing):
    """Annotations with names in quotes resolved; as written if a name cannot be resolved."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except Exception as error:
        raise WrongSignature("an annotation cannot be resolved: %s" % error)


def unwrap(kind):
    """Removes wrappers that do not change the JSON form. Returns the type and the metadata of `Annotated`."""
    extras = []
    while True:
        origin = typing.get_origin(kind)
        if hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif hasattr(kind, "__metadata__") and hasattr(kind, "__origin__"):
            extras.extend(kind.__metadata__)
            kind = kind.__origin__
        elif hasattr(kind, "__value__") and hasattr(kind, "__type_params__"):
            kind = kind.__value__
        elif getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly", "Final", "ClassVar"):
            kind = typing.get_args(kind)[0]
        else:
            return kind, extras


class Schemas:
    """Builds schemas. A type that contains itself becomes an entry of `$defs`."""

    def __init__(self):
        self.definitions = {}
        self.open = []
        self.recursive = set()

    def of(self, kind):
        kind, extras = unwrap(kind)
        schema = dict(self.plain(kind))
        for extra in extras:
            self.constrain(schema, extra)
        return schema

    def constrain(self, schema, extra):
        text = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
        text = text or getattr(extra, "description", None)
        if isinstance(text, str):
            schema["description"] = text
        for source in [extra] + list(getattr(extra, "metadata", None) or ()):
            for name, key in CONSTRAINTS.items():
                value = getattr(source, name, None)
                if isinstance(value, (int, float, str)) and not isinstance(value, bool):
                    if schema.get("type") == "array":
                        key = {"minLength": "minItems", "maxLength": "maxItems"}.get(key, key)
                    schema[key] = value

    def plain(self, kind):
        if kind is MISSING or kind is typing.Any or kind is object or isinstance(kind, typing.TypeVar):
            return {}
        if kind is None:
            return {"type": "null"}
        if kind in PLAIN_TYPES:
            return {"type": PLAIN_TYPES[kind]}
        if kind in TEXT_TYPES:
            return TEXT_TYPES[kind][0]
        origin, args = typing.get_origin(kind) or kind, typing.get_args(kind)
        if origin is typing.Literal:
            return self.choices(args)
        if origin is typing.Union or origin is getattr(types, "UnionType", None):
            return self.union(args)
        if is_pydantic(kind):
            return self.pydantic(kind)
        if is_class(kind, enum.Enum):
            return self.choices([member.value for member in kind])
        if is_dataclass(kind) or is_typed_dict(kind):
            return self.record(kind)
        if is_class(kind, tuple) and hasattr(kind, "_fields"):
            hints = hints_of(kind)
            return self.tuple([hints.get(name, typing.Any) for name in kind._fields])
        if origin is tuple:
            if len(args) == 2 and args[1] is Ellipsis:
                return {"type": "array", "items": self.of(args[0])}
            return self.tuple(args) if args else {"type": "array"}
        if is_class(origin, collections.abc.Mapping):
            schema = {"type": "object"}
            if len(args) == 2 and args[1] is not typing.Any:
                schema["additionalProperties"] = self.of(args[1])
            return schema
        if origin in SEQUENCES or is_class(origin, (list, set, frozenset)) or (
            is_class(origin, collections.abc.Sequence) and not is_class(origin, (str, bytes))
        ):
            schema = {"type": "array"}
            if args and args[0] is not typing.Any:
                schema["items"] = self.of(args[0])
            if is_class(origin, collections.abc.Set):
                schema["uniqueItems"] = True
            return schema
        for base in (str, bool, int, float):
            if is_class(kind, base):
                return {"type": PLAIN_TYPES[base]}
        if is_class(kind, pathlib.PurePath):
            return {"type": "string"}
        raise WrongSignature("the type `%s` has no JSON form" % name_of(kind))

    def choices(self, values):
        values = [value.value if isinstance(value, enum.Enum) else value for value in values]
        if not all(value is None or isinstance(value, (str, int, float)) for value in values):
            raise WrongSignature("a choice is neither a string nor a number")
        schema = {"enum": values}
        kinds = {PLAIN_TYPES.get(type(value)) for value in values}
        if len(kinds) == 1 and None not in kinds:
            schema = {"type": kinds.pop(), "enum": values}
        return schema

    def union(self, args):
        parts = []
        for arm in args:
            schema = self.of(NONE if arm is None else arm)
            if schema not in parts:
                parts.append(schema)
        if len(parts) == 1:
            return parts[0]
        if all(set(part) == {"type"} and isinstance(part["type"], str) for part in parts):
            return {"type": [part["type"] for part in parts]}
        return {"anyOf": parts}

    def tuple(self, args):
        items = [self.of(arm) for arm in args]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}

    def record(self, kind):
        if kind in self.open:
            self.recursive.add(kind)
            return {"$ref": "#/$defs/" + kind.__name__}
        self.open.append(kind)
        hints = hints_of(kind)
        properties, required = {}, []
        documented = parse_docstring(inspect.getdoc(kind) if has_own_doc(kind) else None)
        if is_typed_dict(kind):
            for name, hint in hints.items():
                properties[name] = self.of(hint)
            # With annotations in quotes, `__required_keys__` does not know of `Required` and `NotRequired`.
            marks = {name: getattr(typing.get_origin(hint), "_name", None) for name, hint in hints.items()}
            required = [
                name
                for name in hints
                if marks[name] == "Required" or (name in kind.__required_keys__ and marks[name] != "NotRequired")
            ]
        else:
            for field in dataclasses.fields(kind):
                if not field.init:
                    continue
                properties[field.name] = schema = self.of(hints.get(field.name, typing.Any))
                has_factory = field.default_factory is not dataclasses.MISSING
                if field.default is dataclasses.MISSING and not has_factory:
                    required.append(field.name)
                elif not has_factory:
                    add_default(schema, field.default)
                text = field.metadata.get("description")
                if isinstance(text, str):
                    schema["description"] = text
        for name, text in documented.parameters.items():
            if name in properties:
                properties[name].setdefault("description", text)
        self.open.pop()
        schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        if documented.text:
            schema["description"] = documented.text
        if kind not in self.recursive:
            return schema
        self.definitions[kind.__name__] = schema
        return {"$ref": "#/$defs/" + kind.__name__}

    def pydantic(self, kind):
        if hasattr(kind, "model_json_schema"):
            schema = kind.model_json_schema(ref_template="#/$defs/{model}")
        elif hasattr(kind, "schema"):
            schema = kind.schema(ref_template="#/$defs/{model}")
        else:
            raise WrongSignature("the type `%s` has no JSON form" % name_of(kind))
        schema = dict(schema)
        for key in ("$defs", "definitions"):
            self.definitions.update(schema.pop(key, {}))
        return schema

    def whole(self, schema):
        if self.definitions:
            schema["$defs"] = self.definitions
        return schema


def has_own_doc(kind):
    """A dataclass without docstring gets its signature as one, and other classes inherit one."""
    doc = kind.__dict__.get("__doc__")
    return bool(doc) and not doc.startswith(kind.__name__ + "(")


def add_default(schema, value):
    value = to_json(value)
    if value is None and not allows_null(schema):
        return  # The parameter may be left out, but its type does not allow `null`.
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return
    schema["default"] = value


def allows_null(schema):
    kinds = schema.get("type", [])
    return "null" in ([kinds] if isinstance(kinds, str) else kinds) or any(map(allows_null, schema.get("anyOf", [])))


class Docstring:
    def __init__(self, text, parameters, returns):
        self.text, self.parameters, self.returns = text, parameters, returns


SECTIONS = ("args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters")
ENDS = ("returns", "return", "yields", "raises", "example", "examples", "note", "notes", "see also", "attributes")


def parse_docstring(doc):
    """Splits a docstring of any common style (Google, NumPy, Sphinx) into text, parameters and returned value."""
    lines = inspect.cleandoc(doc).splitlines() if doc else []
    text, returns, parameters = [], [], {}
    section, current, indent = "text", None, 0
    at = 0
    while at < len(lines):
        line, stripped = lines[at], lines[at].strip()
        head = stripped.rstrip(":").lower()
        underlined = at + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[at + 1].strip())
        is_head = line[:1] not in (" ", "\t") and (stripped.endswith(":") or underlined)
        sphinx = re.match(r":(param|parameter|arg|argument|return|returns|type|rtype|raises?)\b([^:]*):\s*(.*)", stripped)
        if is_head and head in SECTIONS + ENDS + ("attributes",):
            section = "parameters" if head in SECTIONS or head == "attributes" else head
            current, indent = None, None
            at += 2 if underlined else 1
            continue
        if sphinx:
            kind, names, rest = sphinx.groups()
            if kind in ("param", "parameter", "arg", "argument") and names.split():
                section, current = "sphinx", names.split()[-1]
                parameters[current] = [rest]
            elif kind in ("return", "returns"):
                section, current = "returns", None
                returns.append(rest)
            else:
                section = "other"
        elif section == "text":
            text.append(line)
        elif section == "sphinx":
            parameters[current].append(stripped)
        elif section == "parameters" and stripped:
            depth = len(line) - len(line.lstrip())
            if indent is None:
                indent = depth
            entry = re.match(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*(?::\s*(.*))?$", stripped)
            if depth <= indent and entry:
                current = entry.group(1)
                # In NumPy style the type follows the name, and the text is in the next lines.
                parameters[current] = [] if indent == 0 else [entry.group(2) or ""]
            elif current:
                parameters[current].append(stripped)
        elif section in ("returns", "return"):
            returns.append(stripped)
        at += 1
    join = lambda parts: " ".join(part for part in parts if part).strip()
    parameters = {name: join(parts) for name, parts in parameters.items() if join(parts)}
    return Docstring("\n".join(text).strip(), parameters, join(returns))


def line_of(function):
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_firstlineno if code else None


def describe(function, name):
    """Describes a function as a tool: name, line, description and schemas."""
    function_of = inspect.unwrap(function)
    documented = parse_docstring(inspect.getdoc(function_of))
    hints = hints_of(function_of)
    schemas, properties, required, is_open = Schemas(), {}, [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "context":
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            sign = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
            raise WrongSignature("the parameter `%s%s` cannot be passed by name" % (sign, parameter.name))
        try:
            schema = schemas.of(hints.get(parameter.name, MISSING))
        except WrongSignature as error:
            raise WrongSignature("parameter `%s`: %s" % (parameter.name, error))
        if parameter.name in documented.parameters:
            schema["description"] = documented.parameters[parameter.name]
        if parameter.default is MISSING:
            required.append(parameter.name)
        else:
            add_default(schema, parameter.default)
        properties[parameter.name] = schema
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = is_open
    text = documented.text
    if documented.returns:
        text = ("%s\n\nReturns: %s" % (text, documented.returns)).strip()
    return {
        "name": name,
        "line": line_of(function),
        "description": text,
        "input_schema": schemas.whole(schema),
        "output_schema": output_schema(hints.get("return", MISSING)),
    }


def output_schema(kind):
    """The schema of a result with a known structure: only objects have one in MCP."""
    schemas = Schemas()
    try:
        schema = schemas.of(kind)
    except WrongSignature:
        return None
    if schema.get("type") == "object" and ("properties" in schema or "additionalProperties" in schema):
        return schemas.whole(schema)
    return None


def public_functions(module):
    """Functions that the file itself defines, in the order of their definition."""
    listed = getattr(module, "__all__", None)
    found = []
    for name, value in vars(module).items():
        is_own = inspect.isfunction(value) and inspect.unwrap(value).__module__ == module.__name__
        if is_own and (name in listed if listed is not None else not name.startswith("_")):
            found.append((name, value))
    return sorted(found, key=lambda pair: line_of(pair[1]) or 0)


def describe_module(module):
    functions = []
    for name, function in public_functions(module):
        try:
            functions.append(describe(function, name))
        except WrongSignature as error:
            functions.append({"name": name, "line": line_of(function), "problem": str(error)})
    version = getattr(module, "__version__", None)
    return {"functions": functions, "version": version if isinstance(version, str) else None}


def convert(kind, value, where):
    """Converts a JSON value to a type. A value that no rule covers stays as it is."""
    kind, _ = unwrap(kind)
    if kind is MISSING or kind is typing.Any or kind in (None, object, str, bool, NONE):
        return value
    if kind is int:
        return int(value) if isinstance(value, float) and value.is_integer() else value
    if kind is float:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if kind in TEXT_TYPES:
        return construct(TEXT_TYPES[kind][1], value, where)
    origin, args = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is typing.Literal:
        for choice in args:
            if isinstance(choice, enum.Enum) and choice.value == value:
                return choice
        return value
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        return convert_union(args, value, where)
    if hasattr(kind, "model_validate"):
        return construct(kind.model_validate, value, where)
    if hasattr(kind, "__get_validators__") and hasattr(kind, "parse_obj"):
        return construct(kind.parse_obj, value, where)
    if is_class(kind, enum.Enum):
        return construct(kind, value, where)
    if is_dataclass(kind) and isinstance(value, dict):
        return convert_dataclass(kind, value, where)
    if is_typed_dict(kind) and isinstance(value, dict):
        hints = hints_of(kind)
        return {key: convert(hints.get(key, typing.Any), one, "%s.%s" % (where, key)) for key, one in value.items()}
    if isinstance(value, list):
        return convert_list(kind, origin, args, value, where)
    if isinstance(value, dict) and is_class(origin, collections.abc.Mapping) and len(args) == 2:
        pairs = value.items()
        return {convert_key(args[0], key): convert(args[1], one, "%s.%s" % (where, key)) for key, one in pairs}
    if is_class(kind, pathlib.PurePath):
        return construct(kind, value, where)
    if is_class(kind, (str, int, float)) and kind not in PLAIN_TYPES:
        return construct(kind, value, where)
    return value


def convert_key(kind, key):
    return int(key) if kind is int and re.fullmatch(r"-?\d+", key) else key


def convert_list(kind, origin, args, value, where):
    place = lambda index: "%s[%d]" % (where, index)
    if is_class(kind, tuple) and hasattr(kind, "_fields"):
        hints = hints_of(kind)
        kinds = [hints.get(name, typing.Any) for name in kind._fields]
        return kind(*[convert(one, item, place(at)) for at, (one, item) in enumerate(zip(kinds, value))])
    if origin is tuple:
        if not args or (len(args) == 2 and args[1] is Ellipsis):
            args = (args[0] if args else typing.Any,) * len(value)
        return tuple(convert(one, item, place(at)) for at, (one, item) in enumerate(zip(args, value)))
    item_kind = args[0] if args else typing.Any
    items = [convert(item_kind, item, place(at)) for at, item in enumerate(value)]
    if is_class(origin, frozenset):
        return frozenset(items)
    return set(items) if is_class(origin, collections.abc.Set) or origin is set else items


def convert_dataclass(kind, value, where):
    hints = hints_of(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for name in value:
        if name not in fields:
            close = difflib.get_close_matches(name, fields, 1)
            raise WrongArgument(
                "`%s`: `%s` has no field `%s`%s"
                % (where, kind.__name__, name, "; did you mean `%s`?" % close[0] if close else "")
            )
    for name, field in fields.items():
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in value and not has_default:
            raise WrongArgument("`%s`: the field `%s` of `%s` is missing" % (where, name, kind.__name__))
    converted = {name: convert(hints.get(name, typing.Any), one, "%s.%s" % (where, name)) for name, one in value.items()}
    return construct(lambda fields: kind(**fields), converted, where)


def fits(kind, value):
    """Tells if a JSON value has the basic type that a kind expects."""
    kind, _ = unwrap(kind)
    origin = typing.get_origin(kind) or kind
    if kind is None or kind is NONE:
        return value is None
    if kind is bool:
        return isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if origin is typing.Literal:
        return value in [one.value if isinstance(one, enum.Enum) else one for one in typing.get_args(kind)]
    if is_class(kind, enum.Enum):
        return value in [member.value for member in kind]
    if is_pydantic(kind) or is_dataclass(kind) or is_class(origin, collections.abc.Mapping):
        return isinstance(value, dict)
    if kind is str or kind in TEXT_TYPES or is_class(kind, pathlib.PurePath):
        return isinstance(value, str)
    if isinstance(origin, type) and origin is not object:
        return isinstance(value, list) if origin not in (str, bytes) else isinstance(value, str)
    return True


def convert_union(args, value, where):
    problem = None
    for arm in args:
        if fits(arm, value):
            try:
                return convert(arm, value, where)
            except WrongArgument as error:
                problem = problem or error
    if problem:
        raise problem
    return value


def construct(kind, value, where):
    try:
        return kind(value)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise WrongArgument("`%s`: %s" % (where, error_text(error)))


def error_text(error):
    """The message of an error. One of Pydantic has a list of problems, each with its place."""
    if callable(getattr(error, "errors", None)):
        problems = ["%s: %s" % (".".join(map(str, one["loc"])), one["msg"]) for one in error.errors()[:6]]
        return "; ".join(problems)
    return "; ".join(str(error).splitlines()[:6]) or type(error).__name__


def needs_conversion(kind):
    return kind not in (str, bool, dict, list, typing.Any, MISSING, None)


def converters(function):
    """The parameters whose arguments are converted, with their types."""
    try:
        hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except Exception:
        return {}
    return {name: kind for name, kind in hints.items() if name != "return" and needs_conversion(kind)}


def check_arguments(signature, arguments, extra):
    """Reports arguments that the function does not take, or lacks."""
    parameters = signature.parameters.values()
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if not any(one.kind is one.VAR_KEYWORD for one in parameters):
        for name in arguments:
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                hint = "; did you mean `%s`?" % close[0] if close else ""
                raise WrongArgument("there is no parameter `%s`%s" % (name, hint))
    for one in parameters:
        is_named = one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        if is_named and one.default is MISSING and one.name not in arguments and one.name != extra:
            raise WrongArgument("the parameter `%s` is missing" % one.name)


def to_json(value):
    """Converts values with a JSON form of their own, for the encoder."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (uuid.UUID, decimal.Decimal, pathlib.PurePath)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if hasattr(value, "__get_validators__") and hasattr(value, "dict"):
        return value.dict()
    return value


def encode_other(value):
    """Called by the encoder for values that are not JSON."""
    converted = to_json(value)
    if converted is value:
        raise TypeError("Object of type %s is not JSON serializable" % type(value).__name__)
    return converted
