"""JSON as pages write it: what they put around and between it that is none is taken out, in one pass."""

from __future__ import annotations

import re

#: Characters at which something may begin that is no JSON, or that a comma's fate hangs on.
_NEXT = re.compile(r'["/<,;\-\]}]')
#: A string; one that nothing ends goes to the end. No start is ever looked at twice, so time grows with length alone.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_CDATA = re.compile(r"(?://\s*|/\*\s*)?(?:<!\[CDATA\[|\]\]>)(?:\s*\*/)?")
_TO_THE_END = re.compile(r";\s*\Z")
_LINE = re.compile(r"[^\n]*")
#: Characters of a comment of HTML in front of JSON.
_COMMENT_CHARS = 500


def repaired(text: str) -> str:
    """``text`` without the wrappings of scripts, comments of HTML and JavaScript, a semicolon or comma at the end, and
    commas before a closing bracket. What stands in strings stays. Takes time in proportion to the text."""
    kept: list[str] = []
    comma = False  # one was read and waits for what follows it
    unended = False  # a comment began that nothing ends
    at = done = 0
    while found := _NEXT.search(text, at):
        start = found.start()
        sign = text[start]
        stop = start
        if sign == '"':
            string = _STRING.match(text, start)
            at = string.end() if string else len(text)
        elif sign == ",":
            stop = start + 1
        elif sign in "/<]" and (cdata := _CDATA.match(text, start)):
            stop = cdata.end()
        elif sign == "/" and text.startswith("//", start):
            line = _LINE.match(text, start)
            stop = line.end() if line else len(text)
        elif sign == "/" and text.startswith("/*", start) and not unended:
            end = text.find("*/", start + 2)
            unended = end < 0
            stop = start if unended else end + 2
        elif sign == "<" and text.startswith("<!--", start):
            end = text.find("-->", start + 4, start + 4 + _COMMENT_CHARS + 3)
            inside = text[start + 4 : end] if end >= 0 else "{"
            stop = start + 4 if "{" in inside or "[" in inside else end + 3
        elif sign == "-" and text.startswith("-->", start):
            stop = start + 3
        elif sign == ";" and (tail := _TO_THE_END.match(text, start)):
            stop = tail.end()
        before = text[done:start]
        if comma and before and not before.isspace():
            kept.append(",")
            comma = False
        kept.append(before)
        if stop > start:
            if sign == ",":
                if comma:
                    kept.append(",")
                comma = True
            at = done = stop
            continue
        if comma and sign not in "]}":
            kept.append(",")
        comma = False
        done = start
        if sign != '"':
            at = start + 1
    if comma and not (done >= len(text) or text[done:].isspace()):
        kept.append(",")
    kept.append(text[done:])
    return "".join(kept)
