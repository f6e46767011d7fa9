"""Counts the lines, words and characters of a text."""


def run(args):
    text = args["text"]
    return {
        "lines": len(text.splitlines()),
        "words": len(text.split()),
        "characters": len(text),
    }
