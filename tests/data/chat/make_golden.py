#!/usr/bin/env python3
"""Writes golden.json and snippets.json: what jinja2 makes of the templates here, in the environment in which Hugging Face
transformers render chat templates. usage: make_golden.py (needs jinja2 3.1)"""

import copy
import itertools
import json
import os
import pathlib
import time

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

os.environ["TZ"] = "UTC"
time.tzset()
NOW = 1_700_000_000
HERE = pathlib.Path(__file__).parent


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    result = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    result.globals["strftime_now"] = lambda form: time.strftime(form, time.localtime(NOW))
    return result


ENVIRONMENT = environment()


def rendered(template, variables):
    """{"text"}, {"refusal"} for what the template itself refuses, or {"error"}: any message will do."""
    try:
        always = {"tools": None, "documents": None, "add_generation_prompt": False}
        return {"text": ENVIRONMENT.from_string(template).render(**{**always, **copy.deepcopy(variables)})}
    except Exception as error:
        return {"refusal": str(error)} if type(error) is TemplateError else {"error": type(error).__name__}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather at a place,\n“now”.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "as in São Paulo <BR> & 'Łódź'"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "default": 1, "minimum": 0.5, "nullable": False}}},
    "return": {"type": "string"}}}
STATION = {"type": "function", "function": {"name": "station", "description": "A station.", "parameters": {"type": "object", "properties": {
    "ids": {"type": "array", "items": {"type": "integer"}, "nullable": True}, "any": {"type": "array"}, "unit": {"type": ["string", "null"], "default": None}, "one": {"type": ["string"]},
    "at": {"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}, "deep": {"type": "array", "items": {"type": "object", "properties": {"name": {"enum": ["a", "b"]}}}}}},
    "kind": {"type": "string", "enum": ["near", "far"], "default": "near"}, "bare": {}}}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}
SYSTEM = {"role": "system", "content": " You are \"terse\" & 'exact'.\n"}
SUM = {"role": "user", "content": "What is 2+2? 你好 🎉\n"}
FOUR = {"role": "assistant", "content": "It is 4."}
PARIS = {"role": "user", "content": "  And the weather in Paris?  "}
CALL = {"id": "abc123def", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Paris \"é\" <x>\n", "days": 2, "deep": {"k": [1, 2.5, None, True, 1e-7, 1e16]}}}}
CALL_TEXT = {"id": "abc123def", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}
CALL_FLAT = {"id": "short", "name": "clock", "arguments": {}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "abc123def", "name": "get_weather", "content": "{\"sky\": \"clear\"}"}

CONVERSATIONS = {
    "empty": [],
    "user": [SUM],
    "system and user": [SYSTEM, SUM],
    "several turns": [SYSTEM, SUM, FOUR, PARIS],
    "ends with the assistant": [SUM, FOUR],
    "thoughts in the text": [SUM, {"role": "assistant", "content": "<think>\nAdd.\n\n</think>\n\nIt is 4."}, PARIS],
    "last thoughts in the text": [SUM, {"role": "assistant", "content": "<think>\nAdd.\n\n</think>\n\nIt is 4."}],
    "thoughts of their own": [SUM, {**FOUR, "reasoning_content": "\nAdd.\n"}, PARIS, {**FOUR, "reasoning_content": "Hm."}],
    "a call": [PARIS, CALLS],
    "a call and its result": [SYSTEM, PARIS, CALLS, RESULT],
    "a call and an answer": [PARIS, {**CALLS, "content": "Let me see."}, RESULT, {"role": "assistant", "content": "Clear."}, SUM],
    "arguments as text": [PARIS, {**CALLS, "tool_calls": [CALL_TEXT]}, RESULT],
    "two calls": [SYSTEM, PARIS, {**CALLS, "tool_calls": [CALL, CALL_TEXT]}, RESULT, {**RESULT, "content": "done"}],
    "a call of another shape": [PARIS, {**CALLS, "tool_calls": [CALL_FLAT]}, RESULT],
    "a result that is an object": [PARIS, CALLS, {**RESULT, "content": {"content": "clear", "n": 1.0}}],
    "parts": [{"role": "system", "content": [{"type": "text", "text": " Be kind. "}]},
              {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image"}]}],
    "two users": [SUM, PARIS],
    "begins with the assistant": [FOUR, SUM],
    "an unknown role": [SUM, {"role": "robot", "content": "beep"}],
    "no content": [{"role": "user"}],
    "a thought before a call": [SYSTEM, PARIS, {"role": "assistant", "thinking": "Ask.", "tool_calls": [CALL]}, RESULT],
    "a thought at the end": [SUM, {**FOUR, "thinking": "Add."}],
    "marks in the text": [SUM, {"role": "assistant", "content": "<|channel|>final<|message|>4"}, PARIS],
}
OPTIONS = [
    {},
    {"add_generation_prompt": True, "tools": [WEATHER, CLOCK]},
    {"add_generation_prompt": True, "enable_thinking": False, "reasoning_effort": "high", "today": "1 May 2030", "tools": []},
    {"enable_thinking": True, "tools": [CLOCK, STATION], "tools_go_to": "system", "builtin_tools": ["search", "interpreter", "get_weather"]},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

VARIABLES = {
    "a": 3, "b": -7, "z": 0, "f": 2.5, "yes": True, "no": False, "nil": None, "big": 9007199254740993, "half": 0.5, "tiny": 1e-7, "huge": 1e16,
    "s": "Hello Wörld", "e": "", "w": "  pad\tded\n", "csv": "a,b,,c", "html": "<a href='x'>\u2028\u0007\u007f é \"q\"</a>", "jp": "日本🎉",
    "l": [1, 2, 3, "x", None], "nums": [5, 3, 9, 3], "strs": ["b", "A", "c", "a"], "el": [], "ed": {},
    "d": {"k": "v", "n": None, "items": [1], "deep": {"x": [1, {"y": "é"}]}},
    "msgs": [{"role": "user", "content": "hi", "tool": 1}, {"role": "assistant", "content": "a<b>&'\"", "tool": 0}, {"role": "user", "content": "日本"}],
}

# Expressions, each printed by itself.
EXPRESSIONS = """
a + b, a - b, a * b, a / 2, b // 2, b % 3, -b // 2, a / 1, f * 2, f // 1, f % 2, -f % 2, a ~ b ~ f, 'x' * 3, [1] * 2, [1] + [2], (1,) + (2, 3)
2 * 3 + 4 ~ 'z', -a | string, (-a) | string, 7 / 2 * 2, 1 - 1 - 1, not yes or yes, not (yes or yes), 1 < 2 < 3, 3 > 2 > 2, 1 == 1.0, yes == 1, '1' == 1
nil, yes, no, f, big, half, tiny, huge, 1e3, 100.0, 1e22, [], {}, (), (1,), l, d, strs, [nil, yes, 1.0, "q'q", 'd"d', "b'\\"b", '\\n\\t\\\\', 'é', '\\u2028']
a and b, z and a, z or e or 'last', e or nil, nil or z, [] or {} or 'x', 'x' if yes, 'x' if no, 'x' if no else 'y', ('x' if no) is undefined, 1 if no else 2 if no else 3
undef, undef is defined, d.nope, d.nope is defined, d['nope'] is undefined, undef or 'x', undef ~ 'x', undef == undef2, undef | default('d'), nil | default('d'), nil | default('d', true), e | d('x', boolean=true)
undef.x, undef['x'], undef(), undef + 1, undef < 1, d.nope.more, nil.x, nil.x.y, a.b, 'x' + 1, 1 + 'x', [] + (), 1 < 'x', nil < 1, 'x' in 3, 1 in 'x', a[0], l[0], l[9], l[-1], l['x'], s[0], s[-1], s[99], jp[0], jp[-1]
l[1:], l[:-1], l[::-1], l[::2], l[-2:], l[5:], l[1:3], l[3:1:-1], s[1:4], s[::-1], jp[::-1], jp[1:], csv[::3], (1, 2, 3)[1:], nil[1:], d[1:], l[::0], s[-100:2], s[2:100]
d.k, d['k'], d.deep.x[1].y, d.deep.x.1.y, d['items'], d.items() | list, d.keys() | list, d.values() | list, d.get('k'), d.get('q'), d.get('q', 'dd'), 'k' in d, 'v' in d, 'k' not in d, d == {'k': 'v'}, {'a': 1, 'b': 2} == {'b': 2, 'a': 1}, {'a': 1, 'a': 2}
'ell' in s, 'x' in l, nil in l, 2.0 in l, 'x' not in l, [1] in [[1], 2], e in s, (1, 2) == (1, 2), [1] == (1,), 'b' < 'c', [1, 2] < [1, 3], 'Z' < 'a', 'é' > 'z', msgs[0] == msgs[-1], msgs[0].role == msgs[-1].role
s is string, s is not string, d is mapping, l is mapping, l is sequence, d is sequence, s is sequence, a is sequence, l is iterable, s is iterable, d is iterable, a is iterable, undef is iterable, a is number, yes is number, f is number, s is number
a is integer, yes is integer, f is float, yes is boolean, a is boolean, yes is true, no is false, 1 is true, z is false, nil is none, undef is none, a is odd, a is even, a is equalto 3, a is eq(3), a is ne 4, a is in [1, 3], a is not in [1, 3], nil is sameas none, yes is sameas true, l is defined and a is defined
(msgs | selectattr('role', 'equalto', 'user')) is iterable, (msgs | map(attribute='role')) is sequence, range(3) is sequence, not s is string
l | length, s | length, jp | length, d | length, e | length, undef | length, a | length, l | count, (nums | map('string')) | length, s | upper, 'STRASSE ß' | lower, 'straße' | upper, s | title, "they're (nice) x-ray\tOK" | title, 'hELLO wORLD' | capitalize, a | upper
w | trim, w | trim | length, 'xxaxx' | trim('x'), s | replace('l', 'L'), s | replace('l', 'L', 1), s | replace('', '-'), csv | replace(',', ''), l | join, strs | join(', '), msgs | join('|', attribute='role'), s | join('.'), d | join, [1, nil, yes, 2.0] | join(' '), undef | join, a | join
strs | sort, strs | sort(reverse=true), strs | sort(case_sensitive=true), nums | sort, msgs | sort(attribute='content') | map(attribute='content') | list, [1, 'a'] | sort, d | dictsort, {'b': 1, 'A': 2} | dictsort, {'b': 1, 'A': 2} | dictsort(by='value'), {'b': 1, 'A': 2} | dictsort(true), {'b': 1, 'A': 2} | dictsort(reverse=true)
nums | min, nums | max, strs | min, strs | max, strs | max(true), msgs | max(attribute='content'), msgs | min(attribute='role') == msgs[1], el | min, el | max is undefined, [1, 'a'] | max, a | min, undef | min
dict(*[{'a': 1}]), dict(**{'b': 2}), dict({'a': 1}, **{'b': 2}), dict(b=1, **{'b': 2}), dict(**l), dict(*nil), range(*[1, 4]) | list, range(1, *[4]) | list, dict(**d, a=1), dict(*l, *l), dict(*[d], 1), dict(*[d], z=1), s.replace(*['l', 'L']), s | replace(*['l', 'L'])
s | list, d | list, l | list, undef | list, a | list, l | first, l | last, s | first, s | last, el | first, el | last is undefined, d | first, undef | first, l | reverse | list, s | reverse, jp | reverse, d | items | list, undef | items | list, l | items | list
msgs | selectattr('tool') | map(attribute='content') | list, msgs | selectattr('tool', 'defined') | list | length, msgs | rejectattr('role', 'equalto', 'user') | list, l | select('string') | list, l | reject('none') | list, l | select | list, nums | select('odd') | list, nil | map('upper') | list, strs | map('upper') | join, strs | map('replace', 'a', 'o') | list, msgs | map(attribute='tool', default=9) | list, [d] | map(attribute='deep.x.0') | list, [d] | selectattr('deep.x') | list | length
'42' | int, ' 42 ' | int, '4.9' | int, 'x' | int, 'x' | int(7), 4.9 | int, -4.9 | int, nil | int, yes | int, '1e3' | float, 'x' | float, 'x' | float(1.5), 3 | float, '-2.50' | float, 5 | string, nil | string, l | string, e | string | length, s | safe
d | tojson, l | tojson, html | tojson, html | tojson(ensure_ascii=true), jp | tojson(ensure_ascii=true), d | tojson(indent=2), l | tojson(indent=4), [] | tojson(indent=2), {} | tojson(indent=2), [[], {}] | tojson(indent=1), d | tojson(separators=(',', ':')), {'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true), (1, 2) | tojson, [1.0, 0.1, 1e-7, 1e16, 123456789.123] | tojson, yes | tojson, nil | tojson, undef | tojson, (l | map('string')) | tojson, d.items() | tojson, s | tojson | length, d | tojson(indent='--')
'a\\nb\\n\\nc' | indent, 'a\\nb\\n\\nc' | indent(2, true), 'a\\nb\\n\\nc' | indent(width=1, blank=true), 'a\\nb' | indent('> '), a | indent
w.strip(), w.lstrip(), w.rstrip(), 'xxaxx'.strip('x'), 'abcab'.lstrip('ba'), 'abcab'.rstrip('ba'), w.split(), csv.split(','), csv.split(',', 1), csv.split(',')[-1], w.split(none, 1), w.split(maxsplit=0), e.split(), e.split(','), s.split(''), csv.split(sep=',', maxsplit=2)
s.startswith('He'), s.startswith(('x', 'H')), s.endswith('ld'), s.endswith(e), s.startswith(1), s.upper(), s.lower(), "they're x-ray".title(), 'ǆ éa'.title(), 'ÉCOLE ß'.capitalize(), s.replace('l', ''), s.replace('l', 'LL', 1), e.replace('', 'x'), 'ab'.replace('', '.'), 'ab'.replace('', '.', 2), s.find('l'), s.find('ö'), s.find('zz'), jp.find('🎉'), jp.rfind('🎉'), s.rfind('l'), s.rfind('zz'), s.rfind(e), e.rfind('a'), ', '.join(strs), ''.join(l), 'a\\nb\\r\\nc\\n'.splitlines(), 'a\\nb'.splitlines(true), 'A'.lower().upper().title()
range(3) | list, range(1, 4) | list, range(5, 0, -2) | list, range(0) | list, range(3)[1], range(3)[::-1] | list, range(0, 3, 0), range(100001) | list, range(3) | last, dict(a=1, b=2), dict({'a': 1}, b=2), namespace(a=1).a, namespace(a=1).b is defined, namespace({'a': 1}).a
[1, 2, [3, {'x': (4,)}]], {'x': [1, {'y': 2}]}.x[1].y, [a, b,], (a, b,), {'x': 1,}, [1, 2][0], {'a': 1}['a'], (1, 2)[1], 'abc'[1], 'a' 'b' "c", '\\x41\\u00e9\\U0001F389\\101', '\\q\\d', 'it\\'s', "\\"", '{{ x }}', '{% x %}', '}}', {'a': {'b': {}}}
'%s is %d' % (s, a), '%s' % s, '%s' % l, '%r|%s|%s' % (s, nil, yes), '%5s|%-5s|%.2s|%6.2s|' % (jp, jp, s, s), '%05d|%+d|% d|%-4d|%i|%3d' % (a, a, a, a, b, f), '%.2f|%8.3f|%e|%g|%g|%f' % (f, b, huge, tiny, huge, yes), '100%%' % (), '%(k)s-%(n)s' % d, '%s %s' % a, '%s' % (a, b), '%d' % s, '%q' % a, '%' % a, '%(x)s' % d, '%s' % undef, '%s' | format(a), '%s=%s' | format(s, f), '%(x)s' | format(x=jp), 'a%%b' | format, '%s' | format(1, 2), '%s' | format(1, x=2), '%x' % nil, '%.0f' % half, '%d' % yes, '%s' % {}, '%(k)s %s' % d
strftime_now('%Y-%m-%d %H:%M'), strftime_now('%d %b %Y'), raise_exception('no: ' ~ a), s | nofilter, s is notest, s.nomethod(), l.append(1), s | upper(1), s | trim(x=1), s.upper(1), d.get(), 1 / 0, 1 // 0, 1 % 0, f % 0, 'x' % 1
""".strip().split("\n")

TEMPLATES = [
    # white space
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}  \n  b\n  {% endif %}  \nc\n\n", "a {%- if yes -%} b {%- endif -%} c", "  {%+ if yes %}b{% endif +%}\nc",
    "x  {# note #}\ny", "  {# note #}  \ny", "x {#- note -#} y", "{# a {{ b }} {% c %} #}z", "{{ a }}\n{{ b }}\n", "{{ a -}}\n {{- b }}", "x\n\n{%- if yes %}\n\n y{% endif %}", "\n{{ a }}\n\n",
    "a\r\nb\rc\n{% if yes %}\r\nd{% endif %}", "{% raw %}{{ x }} {% y %} {# z #}{% endraw %}", "a {%- raw -%} {{ b }} {%- endraw -%} c", "{% raw %}\n x{% endraw %}\ny", "   {% raw %}a{% endraw %}", "\u3000{%- if yes %}\u00a0{% endif -%}\u2003x",
    "{% set x = 1 %}\n{% set y = 2 %}\n{{ x }}{{ y }}", "{{'a'}}{{ 'b' }}\t{%if yes%}c{%endif%}", "a\n\t {% if yes %}b{% endif %} \n c", "{{ {'a': {'b': 1}}.a.b }}", "{{ '}}' }}{{ \"%}\" }}", "{", "{ {", "{{ '{' }}{", "a{", "{{a}}{b}", "{%- set x = '\n' -%}{{ x|length }}",
    # loops
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in nums %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.nextitem is defined }};{% endfor %}", "{% for x in nums %}{{ loop.cycle('a', 'b') }}{% endfor %}{{ loop is defined }}",
    "{% for x in nums if x != 3 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}", "{% for x in el %}x{% else %}none{% endfor %}", "{% for x in nums %}{% break %}{% else %}else{% endfor %}", "{% for x in nums %}{{ x }}{% break %}{% endfor %}",
    "{% for x in nums %}{% if x == 3 %}{% continue %}{% endif %}{{ x }}{% else %}else{% endfor %}", "{% for x in nums if x > 100 %}x{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }};{% endfor %}", "{% for c in jp %}{{ c }}.{% endfor %}",
    "{% for k, (x, y) in [(1, (2, 3))] %}{{ k }}{{ x }}{{ y }}{% endfor %}", "{% for (x, y) in [[1, 2]] %}{{ x }}{{ y }}{% endfor %}", "{% for x, y in [(1, 2, 3)] %}{% endfor %}", "{% for x in nil %}{% endfor %}", "{% for x in undef %}{{ x }}{% else %}none{% endfor %}", "{% for x in a %}{% endfor %}",
    "{% for x in nums %}{% for y in strs %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}", "{% for x in [1, 2] if yes else [3] %}{{ x }}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{% set m = nums | map('string') %}{{ m | first }}{{ m | join(',') }}|{{ m | list }}", "{% for x in msgs | selectattr('tool') %}{{ x.role }}{% endfor %}",
    # scopes
    "{% set x = 1 %}{% for i in nums %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "{% set ns = namespace(n=0) %}{% for i in nums %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "{% set x, y = 1, 'b' %}{{ x }}{{ y }}", "{% set x, y = [1] %}", "{% set d.x = 1 %}", "{% set nope.x = 1 %}",
    "{% set x %}<{{ a }}{% set q = 1 %}>{% endset %}{{ x }}{{ q is defined }}", "{% set x | upper | trim %} a {{ 'b' }} {% endset %}{{ x }}", "{% set x = 1, 2 %}{{ x }}", "{% set messages = l[1:] %}{{ messages }}", "{% generation %}{{ a }}{% set k = 1 %}{% endgeneration %}{{ k is defined }}", "{% set s = s ~ '!' %}{{ s }}",
    # macros
    "{% macro m(x, y=2, z=y) %}[{{ x }}{{ y }}{{ z }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(y=1, x=2) }}{{ m() }}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}", "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m(x) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(x) %}{% endmacro %}{{ m(q=2) }}",
    "{% macro m(x, y=2) %}[{{ x }}{{ y }}]{% endmacro %}{{ m(*[1]) }}{{ m(*'ab') }}{{ m(y=1, *[3]) }}{{ m(**{'y': 5, 'x': 4}) }}{{ [m][0](*undef) }}", "{% macro m(x) %}{% endmacro %}{{ m(*[1, 2]) }}",
    "{% macro m(x) -%}\n  a{{ x }}\n{%- endmacro %}{{ m(1) | upper }}{{ m('b') ~ 'c' }}{{ m(2) is string }}", "{% macro m() %}{% set g = 1 %}{% endmacro %}{{ m() }}{{ g is defined }}", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    # conditions
    "{% if a == 3 and b < 0 %}1{% elif yes %}2{% else %}3{% endif %}", "{% if e %}1{% elif el %}2{% elif ed %}3{% elif z %}4{% elif nil %}5{% elif undef %}6{% else %}7{% endif %}", "{% if msgs | selectattr('role', 'equalto', 'x') %}iterators are true{% endif %}", "{% if d.items() and l | list %}x{% endif %}",
    # what is no template
    "{{", "{% if %}{% endif %}", "{% if yes %}", "{% endif %}", "{% for x in %}{% endfor %}", "{{ a b }}", "{{ a | }}", "{{ (a }}", "{{ a) }}", "{{ 'a }}", "{# a", "{% unknown %}", "{% set 1 = 2 %}", "{{ a. }}", "{{ a[ }}", "{% macro %}{% endmacro %}", "{{ }}", "{{ ] }}", "{% break %}", "{{ ? }}", "{% do l %}", "{{ a if }}",
]


def snippets():
    """Each expression that a line holds, and the templates. An expression may hold commas inside brackets and texts."""
    for line in EXPRESSIONS:
        for expression in split_outside(line):
            yield "{{ " + expression + " }}"
    yield from TEMPLATES


def split_outside(line):
    depth, quote, start, escaped = 0, None, 0, False
    for i, c in enumerate(line):
        if quote:
            quote = None if c == quote and not escaped else quote
            escaped = c == "\\" and not escaped
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            yield line[start:i].strip()
            start = i + 1
    yield line[start:].strip()


def write(name, content):
    (HERE / name).write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n")


def main():
    cases = []
    for path in sorted(HERE.glob("templates/*.jinja")):
        for (name, messages), (option, options) in itertools.product(CONVERSATIONS.items(), enumerate(OPTIONS)):
            result = rendered(path.read_text(), {"messages": messages, **TOKENS, **options})
            cases.append({"template": path.name, "conversation": name, "option": option, **result})
    write("golden.json", {"conversations": CONVERSATIONS, "options": OPTIONS, "tokens": TOKENS, "cases": cases})
    write("snippets.json", {"variables": VARIABLES, "cases": [{"template": each, **rendered(each, VARIABLES)} for each in snippets()]})


main()
