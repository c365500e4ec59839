#!/usr/bin/env python3
"""Compares our template interpreter with jinja2 in the environment that transformers makes, on generated templates.

usage: template_diff.py HARNESS [--count N] [--seed N] [--show N] [--file CASES.json]

HARNESS is build/tests/tools/template_harness. The templates depend on the seed alone. Both sides must give the same text,
or both an error. Differences that docs/text.md explains are counted by kind; others are shown and make the exit code 1.
With --file the templates and contexts of a case file are compared instead (tests/data/template_cases.json)."""
import argparse
import copy
import datetime as real_datetime
import json
import os
import random
import signal
import subprocess
import sys
import warnings

os.environ["TZ"] = "UTC"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")
import jinja2  # noqa: E402
from transformers.utils import chat_template_utils as ctu  # noqa: E402

NOW = 1796047509


class FixedNow(real_datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


ctu.datetime = FixedNow

CONTEXT = {
    "s": "Hello World", "u": "Grüße, 世界 👍", "w": "  two  words\n", "q": "it's \"q\" <b>&\\", "m": "a\nb\n\n c", "em": "",
    "n": 7, "neg": -3, "z": 0, "big": 123456789012, "f": 2.5, "g": -0.125, "h": 1e20, "nul": None, "t": True, "fa": False,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "lm": [1, "x", None, 2.5, [1], {"k": "v"}, True], "e": [], "ll": [[1, 2], [3], []],
    "d": {"b": 2, "a": 1, "C": 3}, "dd": {"x": {"y": [1, {"z": "deep"}]}, "items": "I", "é": "ü"}, "ed": {},
    "parts": [{"name": "bolt", "qty": 12, "tags": ["m8", "zinc"], "dim": {"w": 8}},
              {"name": "Nut", "qty": 400, "tags": [], "dim": {"w": 6}},
              {"name": "washer", "qty": 12, "tags": ["m8"], "dim": {"w": 16.5}}],
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>"},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!", "tool_calls": [
                     {"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": "x", "c": None, "d": True, "e": 1.0}}}]},
                 {"role": "tool", "content": "42", "name": "f"}, {"role": "user", "content": [{"type": "text", "text": "part"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "Does \"f\" & more", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "enum": [1, 2]}, "b": {"type": ["string", "null"]}},
        "required": ["a"]}}}],
    "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
}

STR = ["s", "u", "w", "q", "m", "em", "parts[0].name", "messages[1].content", "bos_token", "dd.x.y[1].z", "messages[2]['content']"]
INT = ["n", "neg", "z", "big", "parts[1].qty", "l[0]", "l | length", "messages | length"]
FLT = ["f", "g", "h", "parts[2].dim.w"]
LST = ["l", "ls", "lm", "e", "ll", "parts", "messages", "tools", "dd.x.y", "parts[0].tags"]
DCT = ["d", "dd", "ed", "parts[0]", "messages[0]", "tools[0].function.parameters"]
ANY = ["nul", "t", "fa", "missing", "d.nope", "l[99]", "lm", "namespace", "dict"]
LITS = ["'a'", "'</think>'", "'\\n'", "'é'", "\"it's\"", "' '", "''", "'x y'", "'ab' 'cd'", "'\\u00e9\\x41\\t'", "'o'", "'%s-%s'", "'l'"]


class Gen:
    def __init__(self, rng):
        self.r = rng
        self.vars = []
        self.macros = []
        self.loop = 0
        self.n = 0

    def pick(self, *options):
        return self.r.choice(options)

    def chance(self, p):
        return self.r.random() < p

    # ---- expressions; `d` is the depth left ----
    def expr(self, kind, d):
        if self.chance(0.02):
            kind = self.pick("str", "int", "flt", "lst", "dct", "any", "bool")
        if d > 0 and self.chance(0.12):
            c = f"{self.expr(kind, d - 1)} if {self.expr('bool', d - 1)}"
            return f"({c} else {self.expr(kind, d - 1)})" if self.chance(0.9) else f"({c})"
        if self.vars and self.chance(0.12):
            return self.r.choice(self.vars)
        return getattr(self, kind)(d)

    def atom(self, kind, d):
        e = self.expr(kind, d)
        return e if all(c.isalnum() or c in "_.'\"[]" for c in e) and not e[0].isdigit() else f"({e})"

    def str(self, d):
        if d <= 0 or self.chance(0.25):
            return self.r.choice(LITS) if self.chance(0.4) else self.r.choice(STR)
        a = self.atom("str", d - 1)
        k = self.r.randrange(13)
        if k == 0:
            return f"{self.expr('str', d - 1)} ~ {self.expr(self.pick('str', 'int', 'any', 'flt', 'lst'), d - 1)}"
        if k == 1:
            return f"{a} + {self.atom('str', d - 1)}"
        if k == 2:
            return f"{a}[{self.slice(d)}]"
        if k in (3, 4):
            x = self.atom("str", 0)
            y = self.atom("str", 0)
            return a + self.pick(".strip()", ".lstrip()", ".rstrip('\\n')", ".upper()", ".lower()", ".title()", ".capitalize()",
                                 f".replace({x}, {y})", f".split({x})[0]", f".split({x})[-1]", f".split({x}, 1)[-1]",
                                 ".split()[0]", f".rsplit({x}, 1)[0]", f".strip({x})", ".swapcase()", ".zfill(9)",
                                 f".join({self.pick('ls', chr(39) + 'abc' + chr(39), 'd')})", f".partition({x})[2]",
                                 f".removeprefix({x})", f".removesuffix({x})", ".center(20, '*')", ".ljust(9)", ".rjust(9)",
                                 ".casefold()", ".expandtabs(4)", f".splitlines()[0]")
        if k in (5, 6):
            return a + " | " + self.pick("upper", "lower", "title", "capitalize", "trim", "string", "e", "safe", "reverse", "first",
                                         "last", "indent", "indent(2, true)", "indent(width=3, blank=true)", f"replace({self.atom('str', 0)}, '-')",
                                         "default('x')", "default('x', true)", "center(12)", "trim('H ')", "truncate(8)", "truncate(5, true, '~')",
                                         "urlencode", "escape", "join('-')", "list | join", "tojson", "length | string", "forceescape")
        if k == 7:
            return f"{self.atom(self.pick('lst', 'dct', 'any', 'str', 'int', 'flt'), d - 1)} | tojson" + self.pick(
                "", "", "(indent=2)", "(indent=4)", "(ensure_ascii=true)", "(sort_keys=true)", "(separators=(',', ':'))", "(indent='\\t')")
        if k == 8:
            return f"{self.atom('lst', d - 1)} | join({self.pick('', chr(39) + ', ' + chr(39), self.atom('str', 0))})"
        if k == 9:
            spec = self.pick("%s", "%5s|", "%-6s|", "%r", "%d", "%05d", "%+d", "%x", "%.2f", "%8.3f", "%e", "%g", "%%%s", "%.3s", "%c")
            v = self.atom("int" if spec[-1] in "dx" or spec[-1] in "c" else "flt" if spec[-1] in "feg" else self.pick("str", "int", "lst"), d - 1)
            return f"'{spec}' % ({v},)" if self.chance(0.7) else f"'{spec}' | format({v})"
        if k == 10:
            spec = self.pick("{}", "{:>8}", "{:*^9}", "{!r}", "{:d}", "{:,}", "{:08.3f}", "{:.2e}", "{:x}", "{:<5}|", "{0}{0}", "{:.3}", "{:+}", "{:.1%}", "{:g}")
            kind = "int" if spec in ("{:d}", "{:x}", "{:,}") else "flt" if spec[-2] in "feg%" else self.pick("str", "int", "flt")
            return f"'{spec}'.format({self.expr(kind, d - 1)})"
        if k == 11 and self.macros:
            name, params = self.r.choice(self.macros)
            args = [self.expr(self.pick("str", "int"), d - 1) for _ in range(self.r.randrange(len(params) + 1))]
            if params and self.chance(0.3):
                args.append(f"{self.r.choice(params)}={self.expr('str', 0)}")
            return f"{name}({', '.join(args)})"
        return self.pick("strftime_now('%Y-%m-%d')", "strftime_now('%d %b %Y %H:%M')", f"{self.atom(self.pick('int', 'flt', 'lst', 'dct', 'bool', 'any'), d - 1)} | string",
                         f"{self.atom('dct', 0)}.get('a', 'none')", f"messages[{self.slice(0)}] | map(attribute='role') | join(',')")

    def slice(self, d):
        def part():
            return self.pick("", "", "1", "-1", "2", "-3", "n", "0", "none", "99")
        return f"{part()}:{part()}" + (f":{self.pick('', '1', '2', '-1', '-2')}" if self.chance(0.35) else "")

    def int(self, d):
        if d <= 0 or self.chance(0.25):
            return str(self.r.choice([0, 1, 2, 3, 10, 255, 1000])) if self.chance(0.4) else self.r.choice(INT)
        a, b = self.atom("int", d - 1), self.atom("int", d - 1)
        k = self.r.randrange(8)
        if k <= 2:
            return f"{a} {self.pick('+', '-', '*', '//', '%')} {b}"
        if k == 3:
            return f"{a} ** {self.r.randrange(4)}"
        if k == 4:
            return self.pick("-", "+") + a
        if k == 5:
            s, x = self.atom("str", d - 1), self.atom("str", 0)
            return s + self.pick(" | length", f".find({x})", f".count({x})", f".rfind({x})", " | int", " | int(5)", " | int(0, 16)", " | wordcount")
        if k == 6:
            return f"{self.atom(self.pick('lst', 'dct'), d - 1)} | {self.pick('length', 'count')}"
        return f"{self.atom(self.pick('flt', 'str', 'any'), d - 1)} | {self.pick('int', 'int(default=3)', 'abs', 'round | int')}"

    def flt(self, d):
        if d <= 0 or self.chance(0.3):
            return self.pick("0.1", "1e-7", "1.5e300", "2.0", "1e16", "123456.789", "0.30000000000000004", "1e22") if self.chance(0.5) else self.r.choice(FLT)
        a, b = self.atom(self.pick("flt", "int"), d - 1), self.atom(self.pick("flt", "int"), d - 1)
        k = self.r.randrange(4)
        if k <= 1:
            return f"{a} {self.pick('+', '-', '*', '/', '//', '%')} {b}"
        if k == 2:
            return f"{a} | {self.pick('round', 'round(1)', 'round(3)', 'round(-1)', 'abs', 'float', 'round(2, chr)'.replace('chr', repr('ceil')), 'round(1, ' + repr('floor') + ')')}"
        return f"{self.atom('str', d - 1)} | float"

    def lst(self, d):
        if d <= 0 or self.chance(0.3):
            return self.r.choice(LST)
        a = self.atom("lst", d - 1)
        k = self.r.randrange(9)
        if k == 0:
            return "[" + ", ".join(self.expr(self.pick("str", "int", "flt", "any", "lst"), d - 1) for _ in range(self.r.randrange(4))) + "]"
        if k == 1:
            return f"{a}[{self.slice(d)}]"
        if k == 2:
            return f"{a} + {self.atom('lst', d - 1)}"
        if k == 3:
            return f"{self.atom('str', d - 1)}.split({self.pick('', self.atom('str', 0))})"
        if k == 4:
            return self.pick("range(5) | list", "range(1, 9, 3) | list", "range(n)", "range(5, 0, -2) | list", "d.items() | list", "d | items | list",
                             "d.keys() | list", "d.values() | list", "dd | list", "(1, 'a', none)", "d | dictsort", "d | dictsort(by='value', reverse=true)", "d | dictsort(true)")
        if k == 5:
            return f"{a} | {self.pick('reverse | list', 'sort', 'sort(reverse=true)', 'unique | list', 'list', 'batch(2) | list', 'slice(2) | list')}"
        if k == 6:
            t = self.pick("string", "number", "none", "defined", "mapping", "iterable", "sequence", "integer", "boolean", "odd", "'eq', 1", "'in', l", "'gt', 1")
            t = t if t.startswith("'") else f"'{t}'"
            return f"{a} | {self.pick('select', 'reject')}({self.pick('', t, t)}) | list"
        if k == 7:
            return f"{self.pick('parts', 'messages', a)} | {self.pick('selectattr', 'rejectattr')}({self.pick(repr('tags'), repr('qty') + ', ' + repr('gt') + ', 50', repr('role') + ', ' + repr('equalto') + ', ' + repr('user'), repr('content') + ', ' + repr('string'), repr('tool_calls') + ', ' + repr('defined'), repr('dim.w') + ', ' + repr('>=') + ', 8')}) | list"
        return f"{self.pick('parts', 'messages', 'ls', a)} | map({self.pick('attribute=' + repr('name'), 'attribute=' + repr('role'), repr('upper'), repr('string'), repr('tojson'), repr('length'), repr('first'), repr('default') + ', 1', 'attribute=' + repr('dim.w') + ', default=0', repr('replace') + ', ' + repr('a') + ', ' + repr('b'))}) | list"

    def dct(self, d):
        if d <= 0 or self.chance(0.5):
            return self.r.choice(DCT)
        k = self.r.randrange(4)
        if k == 0:
            keys = self.r.sample(["'a'", "'b'", "1", "none", "'é'", "true", "2.5", "s"], self.r.randrange(4))
            return "{" + ", ".join(f"{key}: {self.expr(self.pick('str', 'int', 'lst', 'any'), d - 1)}" for key in keys) + "}"
        if k == 1:
            return f"dict({self.atom('dct', d - 1)}, z={self.expr('int', 0)})"
        if k == 2:
            return f"{self.pick('parts', 'messages')} | {self.pick('first', 'last')}"
        return f"dict([('k', {self.expr('int', 0)})])"

    def any(self, d):
        if self.chance(0.6):
            return self.r.choice(ANY[:-2])
        return self.expr(self.pick("str", "int", "flt", "lst", "dct", "bool"), d - 1)

    def bool(self, d):
        if d <= 0 or self.chance(0.15):
            return self.pick("t", "fa", "true", "false", "missing", "nul", "n", "em", "l", "ed")
        k = self.r.randrange(9)
        kind = self.pick("int", "str", "flt", "lst")
        if k == 0:
            return f"{self.atom(kind, d - 1)} {self.pick('==', '!=', '<', '<=', '>', '>=')} {self.atom(kind, d - 1)}"
        if k == 1:
            return f"{self.atom('int', d - 1)} {self.pick('<', '<=', '==')} {self.atom('int', 0)} {self.pick('<', '>', '!=')} {self.atom('int', 0)}"
        if k == 2:
            return f"{self.atom(self.pick('str', 'int'), d - 1)} {self.pick('in', 'not in')} {self.atom(self.pick('str', 'lst', 'dct'), d - 1)}"
        if k in (3, 4):
            t = self.pick("defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true",
                          "false", "odd", "even", "eq 1", "equalto(2)", "divisibleby 3", "in l", "lower", "upper", "ne 'x'", "gt 2", "callable")
            return f"{self.atom(self.pick('any', 'str', 'int', 'lst', 'dct', 'flt'), d - 1)} is {self.pick('', '', 'not ')}{t}"
        if k == 5:
            return f"{self.atom('str', d - 1)}{self.pick('.startswith', '.endswith')}({self.expr('str', 0)})"
        if k == 6:
            return f"({self.expr('bool', d - 1)} {self.pick('and', 'or')} {self.expr(self.pick('bool', 'str', 'any'), d - 1)})"
        if k == 7:
            return f"not {self.expr('bool', d - 1)}"
        return f"{self.atom('str', d - 1)}.{self.pick('isdigit', 'isalpha', 'isupper', 'islower', 'isspace', 'isalnum', 'istitle')}()"

    # ---- statements ----
    def tag(self, body, block=True):
        left, right = ("{%", "%}") if block else ("{{", "}}")
        return left + self.pick("", "", "-", "+" if block and self.chance(0.1) else "-") + " " + body + " " + self.pick("", "", "-") + right

    def text(self):
        return self.pick("", "\n", " ", "  \n", "\n  ", "text", "<|im_start|>", "\n\n", " x ", "\t", "é{ ", "} ", "line\n", "{# c #}", "{#- c -#}\n", "{# a\nb #}  \n")

    def fresh(self):
        self.n += 1
        return f"v{self.n}"

    def body(self, depth, count=None):
        keep, macros = list(self.vars), list(self.macros)
        out = "".join(self.text() + self.statement(depth) for _ in range(count or self.r.randrange(1, 4))) + self.text()
        self.vars, self.macros = keep, macros
        return out

    def statement(self, depth):
        k = self.r.randrange(20)
        if depth <= 0 or k < 8:
            return self.tag(self.expr(self.pick("str", "str", "int", "flt", "lst", "dct", "any", "bool"), 3), block=False)
        if k < 10:
            out = self.tag("if " + self.expr("bool", 2)) + self.body(depth - 1)
            if self.chance(0.3):
                out += self.tag("elif " + self.expr("bool", 2)) + self.body(depth - 1)
            if self.chance(0.5):
                out += self.tag("else") + self.body(depth - 1)
            return out + self.tag("endif")
        if k < 13:
            return self.for_loop(depth)
        if k < 15:
            name = self.pick(self.fresh(), "s", "n")
            out = self.tag(f"set {name} = {self.expr(self.pick('str', 'int', 'lst'), 3)}")
            if name.startswith("v"):
                self.vars.append(name)
            return out
        if k == 15:
            name = self.fresh()
            out = self.tag(f"set {name}" + self.pick("", " | upper", " | trim | replace('a', 'b')")) + self.body(depth - 1, 1) + self.tag("endset")
            self.vars.append(name)
            return out
        if k == 16:
            name = "m" + self.fresh()
            params = [f"p{i}" for i in range(self.r.randrange(3))]
            sig = ", ".join(p if i == 0 else f"{p}={self.expr(self.pick('str', 'int'), 0)}" for i, p in enumerate(params))
            keep = list(self.vars)
            self.vars += params
            caller = self.chance(0.2)
            body = self.body(depth - 1) + (self.tag("caller() if caller else 'no caller'", block=False) if caller else "")
            self.vars = keep
            out = self.tag(f"macro {name}({sig})") + body + self.tag("endmacro")
            self.macros.append((name, params))
            if caller:
                out += self.tag(f"call {name}()") + self.body(depth - 1, 1) + self.tag("endcall")
            return out
        if k == 17:
            return self.tag("filter " + self.pick("upper", "trim", "indent(2)", "replace('a', 'o') | title")) + self.body(depth - 1) + self.tag("endfilter")
        if k == 18:
            ns = "ns" + self.fresh()
            body = self.tag(f"set {ns}.x = {ns}.x + {self.pick('1', 'loop.index')}") + self.text()
            return (self.tag(f"set {ns} = namespace(x=0, y={self.expr('str', 1)})") + self.tag(f"for i in {self.atom('lst', 1)}") + body +
                    self.tag("endfor") + self.tag(f"{ns}.x ~ {ns}.y ~ {ns}.nope", block=False))
        return self.pick(self.tag("generation") + self.body(depth - 1) + self.tag("endgeneration"),
                         "{% raw %}" + self.pick("{{ x }}", "{% if %}\n", " # ") + "{% endraw %}",
                         self.tag(f"with a = {self.expr('int', 1)}, b = s") + self.body(depth - 1) + self.tag("endwith"),
                         "{% if fa %}" + self.tag("raise_exception('never')", block=False) + "{% endif %}")

    def for_loop(self, depth):
        keep = list(self.vars)
        x = self.fresh()
        head = self.pick(f"{x} in {self.expr('lst', 2)}", f"{x} in {self.expr('lst', 2)}", f"{x}, {x}k in {self.atom('dct', 1)}.items()",
                         f"{x}, {x}k in {self.atom('dct', 1)} | dictsort", f"{x} in {self.expr('str', 1)}", f"{x} in {self.pick('messages', 'parts')}",
                         f"{x} in {self.expr('lst', 1)} if {x} is {self.pick('string', 'number', 'defined', 'mapping')}")
        self.vars.append(x)
        self.loop += 1
        body = self.body(depth - 1)
        if self.chance(0.6):
            body += self.tag("loop." + self.pick("index", "index0", "first", "last", "length", "revindex", "previtem", "nextitem", "revindex0", "depth",
                                                 "cycle('a', 'b')", f"changed({x})"), block=False)
        if self.chance(0.2):
            body += self.tag("if " + self.pick("loop.index > 1", f"{x}", "loop.last")) + self.tag(self.pick("break", "continue")) + self.tag("endif") + self.text()
        self.loop -= 1
        self.vars = keep
        out = self.tag("for " + head) + body
        if self.chance(0.25):
            out += self.tag("else") + self.body(depth - 1, 1)
        return out + self.tag("endfor")

    def template(self):
        return "".join(self.text() + self.statement(3) for _ in range(self.r.randrange(1, 5))) + self.text()


def alarm(*_):
    raise TimeoutError("too slow")


def stock(source, context):
    context = copy.deepcopy(context)  # the indent filter changes lists that it then refuses
    signal.signal(signal.SIGALRM, alarm)
    signal.alarm(10)
    try:
        return {"text": ctu._compile_jinja_template(source).render(**context)}
    except Exception as e:  # noqa: BLE001: any failure is an error for us
        return {"error": f"{type(e).__name__}: {e}"}
    finally:
        signal.alarm(0)


# The kinds of difference that docs/text.md explains.
def kind(theirs, ours):
    error, text = ours.get("error", ""), theirs.get("text", "")
    if "integer is too large" in error:
        return "integers beyond 64 bits"
    if " at 0x" in text or "<function " in text or "<class " in text or "<built-in" in text:
        return "objects without a text of their own"
    if "not supported" in error:
        return "refused as not supported"
    if "a slice of" in error and "text" in theirs:
        return "constant expressions, folded when compiled"
    if "runs too long" in error or "too much memory" in error or "too deep" in error:
        return "limits"
    return None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("harness")
    ap.add_argument("--count", type=int, default=2000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--show", type=int, default=20)
    ap.add_argument("--reasons", action="store_true", help="count the stock errors as well")
    ap.add_argument("--file")
    a = ap.parse_args()
    if a.file:
        with open(a.file, encoding="utf-8") as f:
            cases = json.load(f)
        jobs = []
        for c in cases["cases"]:
            context = c["context"] if isinstance(c["context"], dict) else cases["contexts"][c["context"]]
            jobs.append((c.get("source", cases["templates"].get(c.get("template"))), context))
    else:
        jobs = [(Gen(random.Random(a.seed * 1000003 + i)).template(), CONTEXT) for i in range(a.count)]
    lines = "".join(json.dumps({"template": s, "context": c, "now": NOW}) + "\n" for s, c in jobs)
    p = subprocess.run([a.harness], input=lines, capture_output=True, text=True)
    answers = p.stdout.splitlines() if p.returncode == 0 else None
    if answers is None or len(p.stdout.split("\n")) != len(jobs) + 1:
        sys.exit(f"the harness failed: exit {p.returncode}, {p.stderr}")
    answers = [json.loads(x) for x in p.stdout.split("\n")[:-1]]
    kinds, shown, errors, unexplained, reasons = {}, 0, 0, 0, {}
    for (source, context), ours in zip(jobs, answers):
        theirs = stock(source, context)
        errors += "error" in theirs
        if "error" in theirs:
            reason = " ".join(theirs["error"].split()[:6])
            reasons[reason] = reasons.get(reason, 0) + 1
        if ("error" in theirs and "error" in ours) or theirs == ours:
            continue
        k = kind(theirs, ours)
        kinds[k or "unexplained"] = kinds.get(k or "unexplained", 0) + 1
        if k is None:
            unexplained += 1
            if shown < a.show:
                shown += 1
                print("----", repr(source), "\n  stock", repr(theirs)[:1500], "\n  ours ", repr(ours)[:1500])
    print(f"{len(jobs)} templates, {errors} with an error, jinja2 {jinja2.__version__}, seed {a.seed}: "
          f"{sum(kinds.values())} differences: {json.dumps(kinds, ensure_ascii=False)}")
    if a.reasons:
        for reason, n in sorted(reasons.items(), key=lambda x: -x[1])[:40]:
            print(f"{n:5} {reason}")
    sys.exit(1 if unexplained else 0)


main()
