#!/usr/bin/env python3
"""Writes tests/data/template_cases.json: templates in the style of those that models come with (each family's habits,
our own text), and small ones for single rules, with what jinja2 makes of them in the environment of transformers.

usage: template_cases.py > tests/data/template_cases.json"""
import datetime as real_datetime
import json
import os
import sys

os.environ["TZ"] = "UTC"
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
from transformers.utils import chat_template_utils as ctu  # noqa: E402

NOW = 1796047509


class FixedNow(real_datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


ctu.datetime = FixedNow

TEMPLATES = {}

# Headers, a date, tools as indented JSON in the first user turn, calls as JSON with "parameters".
TEMPLATES["headers"] = r"""{{- bos_token }}
{%- if own_tools is defined %}
    {%- set tools = own_tools %}
{%- endif %}
{%- if not tools_first is defined %}
    {%- set tools_first = true %}
{%- endif %}
{%- if not day is defined %}
    {%- if strftime_now is defined %}
        {%- set day = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set day = "1 Jan 2020" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set sys_text = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set sys_text = "" %}
{%- endif %}
{{- "<|head|>system<|tail|>\n\n" }}
{%- if tools is not none %}{{- "Place: workshop\n" }}{%- endif %}
{{- "It is " + day + "\n\n" }}
{%- if tools is not none and not tools_first %}
    {{- "Functions:\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- sys_text }}
{{- "<|end|>" }}
{%- if tools_first and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set opener = messages[0]['content'] | trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("tools go into a user turn, and there is none") }}
    {%- endif %}
    {{- '<|head|>user<|tail|>\n\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- opener + "<|end|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|tail|>\n\n' + message['content'] | trim + '<|end|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("only a single call fits here") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|tail|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|turn|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|head|>machine<|tail|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|turn|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|tail|>\n\n' }}
{%- endif %}
"""

# Bracketed instructions, strict alternation counted with a namespace, tools before the last user turn, short ids.
TEMPLATES["brackets"] = r"""{%- if messages[0]["role"] == "system" %}
    {%- set sys_text = messages[0]["content"] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set asks = turns | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in turns %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("user, then assistant, then user") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == asks[-1]) %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and sys_text is defined %}
            {{- "[I] " + sys_text + "\n\n" + message["content"] + "[/I]" }}
        {%- else %}
            {{- "[I] " + message["content"] + "[/I]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("want nine characters, got " ~ tool_call.id) }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[RESULTS] {"content": ' + content|string + ", " }}
        {{- '"id": "' + message.tool_call_id + '"}[/RESULTS]' }}
    {%- else %}
        {{- raise_exception("no such role: " + message.role) }}
    {%- endif %}
{%- endfor %}
"""

# A model role, parts with pictures, the system text in front of the first turn.
TEMPLATES["turns"] = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set preface = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set preface = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set preface = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("two turns of one role") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<turn>' + role + '
' + (preface if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<picture>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("content is neither text nor parts") }}
    {%- endif -%}
    {{ '</turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model
'}}
{%- endif -%}
"""

# One long line, flags in a namespace, system texts collected, calls in fences, thinking cut off.
TEMPLATES["one_line"] = r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(started=false, in_tool=false, first_out=true, rules='', fresh=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.fresh %}{% set ns.rules = ns.rules + message['content'] %}{% set ns.fresh = false %}{%- else %}{% set ns.rules = ns.rules + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.rules }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.in_tool = false -%}{{'<U>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}{%- set ns.in_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.started %}{%- if message['content'] is none %}{{'<A><calls><call>' + tool['type'] + '<sep>' + tool['function']['name'] + '\n' + '```json' + '\n' + (tool['function']['arguments'] if tool['function']['arguments'] is string else tool['function']['arguments'] | tojson) + '\n' + '```' + '</call>'}}{%- else %}{{'<A>' + message['content'] + '<calls><call>' + tool['type'] + '<sep>' + tool['function']['name']}}{%- endif %}{%- set ns.started = true -%}{%- else %}{{'\n' + '<call>' + tool['type'] + '<sep>' + tool['function']['name'] + '</call>'}}{%- endif %}{%- endfor %}{{'</calls><end>'}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{%- if ns.in_tool %}{{'</outs>' + message['content'] + '<end>'}}{%- set ns.in_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<A>' + content + '<end>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.in_tool = true -%}{%- if ns.first_out %}{{'<outs><out>' + message['content'] + '</out>'}}{%- set ns.first_out = false %}{%- else %}{{'\n<out>' + message['content'] + '</out>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.in_tool %}{{'</outs>'}}{% endif %}{% if add_generation_prompt and not ns.in_tool %}{{'<A>'}}{% endif %}"""

# Bracketed role marks, a macro that joins parts, calls as key and value tags, the last user turn found first.
TEMPLATES["key_value"] = r"""[gK]<sop>
{%- if tools -%}
<|system|>
# Tools

<tools>
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
</tools>

{%- endif -%}
{%- macro plain(content) -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}
            {%- if item is mapping and item.type == 'text' -%}
                {{- item.text }}
            {%- elif item is string -%}
                {{- item }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{- content }}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_ask=-1) %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {% set ns.last_ask = loop.index0 -%}
    {%- endif %}
{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ plain(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not plain(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set thought = '' %}
{%- set content = plain(m.content) %}
{%- if m.reasoning_content is string %}
    {%- set thought = m.reasoning_content %}
{%- else %}
    {%- if '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
{%- endif %}
{%- if loop.index0 > ns.last_ask and thought -%}
{{ '\n<think>' + thought.strip() +  '</think>'}}
{%- else -%}
{{ '\n<think></think>' }}
{%- endif -%}
{%- if content.strip() -%}
{{ '\n' + content.strip() }}
{%- endif -%}
{% if m.tool_calls %}
{% for tc in m.tool_calls %}
{%- if tc.function %}
    {%- set tc = tc.function %}
{%- endif %}
{{ '\n<call>' + tc.name }}
{% set pairs = tc.arguments %}
{% for k, v in pairs.items() %}
<key>{{ k }}</key>
<value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</value>
{% endfor %}
</call>{% endfor %}
{% endif %}
{%- elif m.role == 'tool' -%}
{%- if m.content is string -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
    {{- '<|seen|>' }}
{%- endif %}
{{- '\n<result>\n' }}
{{- m.content }}
{{- '\n</result>' }}
{%- else -%}
<|seen|>{% for tr in m.content %}

<result>
{{ tr.output if tr.output is defined else tr }}
</result>{% endfor -%}
{% endif -%}
{%- elif m.role == 'system' -%}
<|system|>
{{ plain(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    <|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- endif -%}
"""

# Channels, JSON schemas as types by macros that call each other, a loop over the rest of the messages.
TEMPLATES["channels"] = r"""
{#-
  Optional: identity, reasoning_effort.
 #}

{%- macro ts_type(spec, needed, nullable=false) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}
            {%- if spec['items']['type'] == "string" -%}{{- "string[]" }}
            {%- elif spec['items']['type'] == "number" -%}{{- "number[]" }}
            {%- else -%}
                {%- set inner = ts_type(spec['items'], needed) -%}
                {%- if inner == "object | object" or inner|length > 50 -%}{{- "any[]" }}{%- else -%}{{- inner + "[]" }}{%- endif -%}
            {%- endif -%}
            {%- if spec.nullable -%}{{- " | null" }}{%- endif -%}
        {%- else -%}
            {{- "any[]" }}
        {%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {%- if spec.type | length > 1 -%}{{- spec.type | join(" | ") }}{%- else -%}{{- spec.type[0] }}{%- endif -%}
    {%- elif spec.oneOf -%}
        {%- for variant in spec.oneOf -%}
            {{- ts_type(variant, needed) -}}
            {%- if variant.description %}{{- "// " + variant.description }}{%- endif -%}
            {%- if not loop.last %}{{- " | " }}{% endif -%}
        {%- endfor -%}
    {%- elif spec.type == "string" -%}
        {%- if spec.enum -%}{{- '"' + spec.enum|join('" | "') + '"' -}}{%- else -%}{{- "string" }}{%- if spec.nullable %}{{- " | null" }}{%- endif -%}{%- endif -%}
    {%- elif spec.type in ["number", "integer"] -%}{{- "number" }}
    {%- elif spec.type == "boolean" -%}{{- "boolean" }}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}
            {{- "{\n" }}
            {%- for field, fspec in spec.properties.items() -%}
                {{- field -}}
                {%- if field not in (spec.required or []) -%}{{- "?" }}{%- endif -%}
                {{- ": " }}
                {{ ts_type(fspec, spec.required or []) }}
                {%- if not loop.last -%}{{-", " }}{%- endif -%}
            {%- endfor -%}
            {{- "}" }}
        {%- else -%}
            {{- "object" }}
        {%- endif -%}
    {%- else -%}{{- "any" }}
    {%- endif -%}
{%- endmacro -%}

{%- macro ts_tools(space, tools) -%}
    {{- "## " + space + "\n\n" }}
    {{- "namespace " + space + " {\n\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + tool.description + "\n" }}
        {{- "type "+ tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: {\n" }}
            {%- for pname, pspec in tool.parameters.properties.items() %}
                {%- if pspec.description %}{{- "// " + pspec.description + "\n" }}{%- endif %}
                {{- pname }}
                {%- if pname not in (tool.parameters.required or []) -%}{{- "?" }}{%- endif -%}
                {{- ": " }}
                {{- ts_type(pspec, tool.parameters.required or []) }}
                {%- if pspec.default is defined -%}
                    {%- if pspec.enum %}{{- ", // default: " + pspec.default }}
                    {%- elif pspec.oneOf %}{{- "// default: " + pspec.default }}
                    {%- else %}{{- ", // default: " + pspec.default|tojson }}{%- endif -%}
                {%- endif -%}
                {%- if not loop.last %}{{- ",\n" }}{%- else %}{{- ",\n" }}{%- endif -%}
            {%- endfor %}
            {{- "}) => any;\n\n" }}
        {%- else -%}
            {{- "() => any;\n\n" }}
        {%- endif -%}
    {%- endfor %}
    {{- "} // namespace " + space }}
{%- endmacro -%}

{%- macro preamble() -%}
    {%- if identity is not defined %}{%- set identity = "A lathe." %}{%- endif %}
    {{- identity + "\n" }}
    {{- "Date: " + strftime_now("%Y-%m-%d") + "\n\n" }}
    {%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{%- endif %}
    {{- "Effort: " + reasoning_effort + "\n\n" }}
    {{- "# Channels: analysis, final." }}
{%- endmacro -%}

{#- main -#}
{{- "<|start|>system<|message|>" }}
{{- preamble() }}
{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set orders = messages[0].content %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set orders = "" %}
    {%- set turns = messages %}
{%- endif %}
{%- if orders or tools %}
    {{- "<|start|>developer<|message|>" }}
    {%- if orders %}{{- "# Instructions\n\n" }}{{- orders }}{{- "\n\n" }}{%- endif %}
    {%- if tools -%}{{- "# Tools\n\n" }}{{- ts_tools("functions", tools) }}{%- endif -%}
    {{- "<|end|>" }}
{%- endif %}
{%- set prev_call = namespace(name=none) %}
{%- for message in turns -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message and message.content is string and ("<|channel|>analysis" in message.content) %}
            {{- raise_exception("channel marks inside a message") }}
        {%- endif %}
        {%- if "tool_calls" in message %}
            {%- set later = namespace(found=false) %}
            {%- for ahead in turns[loop.index:] %}
                {%- if ahead.role == 'assistant' and "tool_calls" not in ahead %}
                    {%- set later.found = true %}
                {%- endif %}
            {%- endfor %}
            {%- set tool_call = message.tool_calls[0] %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {%- if message.thinking and not later.found %}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
            {%- endif %}
            {{- "<|start|>assistant to=" }}
            {{- "functions." + tool_call.name + "<|channel|>commentary " }}
            {{- (tool_call.content_type if tool_call.content_type is defined else "json") + "<|message|>" }}
            {{- tool_call.arguments|tojson }}
            {{- "<|call|>" }}
            {%- set prev_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set prev_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if prev_call.name is none %}{{- raise_exception("a result without a call") }}{%- endif %}
        {{- "<|start|>functions." + prev_call.name }}
        {{- " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}
"""

# XML parameters, contents through a macro with counters, the last real question found from the end, kept thinking.
TEMPLATES["xml"] = r"""{%- set pics = namespace(value=0) %}
{%- macro words_of(content, counted, in_system=false) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for item in content %}
            {%- if 'image' in item or 'image_url' in item or item.type == 'image' %}
                {%- if in_system %}{{- raise_exception('a picture in the rules') }}{%- endif %}
                {%- if counted %}{%- set pics.value = pics.value + 1 %}{%- endif %}
                {{- '<pic>' }}
            {%- elif 'text' in item %}
                {{- item.text }}
            {%- else %}
                {{- raise_exception('a part of unknown kind') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('content of unknown kind') }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}
    {{- raise_exception('nothing to say') }}
{%- endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|s|>system\n' }}
    {{- "# Tools\n\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools>" }}
    {%- if messages[0].role == 'system' %}
        {%- set content = words_of(messages[0].content, false, true)|trim %}
        {%- if content %}{{- '\n\n' + content }}{%- endif %}
    {%- endif %}
    {{- '<|e|>\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {%- set content = words_of(messages[0].content, false, true)|trim %}
        {{- '<|s|>system\n' + content + '<|e|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(searching=true, last_ask=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" %}
        {%- set content = words_of(message.content, false)|trim %}
        {%- if not(content.startswith('<result>') and content.endswith('</result>')) %}
            {%- set ns.searching = false %}
            {%- set ns.last_ask = index %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if ns.searching %}
    {{- raise_exception('nobody asked anything') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = words_of(message.content, true)|trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}{{- raise_exception('rules come first') }}{%- endif %}
    {%- elif message.role == "user" %}
        {{- '<|s|>' + message.role + '\n' + content + '<|e|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- set thought = thought|trim %}
        {%- if (preserve_thinking is defined and preserve_thinking is true) or (loop.index0 > ns.last_ask) %}
            {{- '<|s|>' + message.role + '\n<think>\n' + thought + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|s|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
                {%- if loop.first %}
                    {%- if content|trim %}{{- '\n\n<call>\n<function=' + tool_call.name + '>\n' }}{%- else %}{{- '<call>\n<function=' + tool_call.name + '>\n' }}{%- endif %}
                {%- else %}
                    {{- '\n<call>\n<function=' + tool_call.name + '>\n' }}
                {%- endif %}
                {%- if tool_call.arguments is defined %}
                    {%- for key, val in tool_call.arguments|items %}
                        {{- '<parameter=' + key + '>\n' }}
                        {%- set val = val | tojson | safe if val is mapping or (val is sequence and val is not string) else val | string %}
                        {{- val }}
                        {{- '\n</parameter>\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\n</call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|e|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|s|>user' }}{%- endif %}
        {{- '\n<result>\n' + content + '\n</result>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|e|>\n' }}{%- elif loop.last %}{{- '<|e|>\n' }}{%- endif %}
    {%- else %}
        {{- raise_exception('a role of unknown kind') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|s|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- else %}{{- '<think>\n' }}{%- endif %}
{%- endif %}
"""

# Documents and a preamble, filters over everything, generation blocks, format strings.
TEMPLATES["documents"] = r"""{{ bos_token }}{%- set opening = 'Answer with care.' -%}
{%- macro doc(d, i) -%}
Document: {{ i }}
{% for key, value in d.items() %}
{{ key | title }}: {{ value }}
{% endfor %}
{%- endmacro -%}
{%- if documents -%}<docs>
{% for d in documents %}{{ doc(d, loop.index0) }}{% if not loop.last %}

{% endif %}{% endfor %}</docs>
{% endif -%}
{% set roles = messages | map(attribute='role') | unique | list -%}
{{ 'roles: %s (%d), first %-10s|' % (roles | join('/'), roles | length, messages[0].role) }}
{{ "{} of {}: {:>6.2f}%".format(1, messages | length, 100 / (messages | length)) }}
{% set sep = joiner(' | ') %}{% for m in messages %}{{ sep() }}{{ m.role[0] | upper }}{{ loop.cycle('+', '-') }}{% endfor %}

{% set c = cycler('odd', 'even') %}{% for m in messages if m.content is string %}{{ c.next() }}{% if loop.changed(m.role) %}!{% endif %} {% endfor %}

{% for role, group in messages | groupby('role') %}{{ role }}: {{ group | map(attribute='content') | select('string') | map('length') | sum }}; {% endfor %}

{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content or 'nothing' }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content if m.content is string else m.content | tojson }}{% endif %}
{% endfor %}
{%- filter indent(2) %}

{% for t in tools or [] %}
- {{ t.function.name }}({% for p in t.function.parameters.properties | default({}) | dictsort %}{{ p[0] }}: {{ p[1].type }}{{ ', ' if not loop.last }}{% endfor %})
{% endfor %}
{% endfilter %}
{% for k, v in (tools[0].function.parameters.properties if tools else {'none': {}}) | dictsort(reverse=true) %}{{ k }}={{ v | items | list }};{% endfor %}"""

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather, \"now\" & later", "parameters": {
    "type": "object", "properties": {
        "place": {"type": "string", "description": "City name"}, "days": {"type": "integer", "default": 1},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "tags": {"type": "array", "items": {"type": "string"}}, "mixed": {"type": ["string", "null"]},
        "deep": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        "either": {"oneOf": [{"type": "string", "description": "text"}, {"type": "number"}], "default": "a"}},
    "required": ["place"]}}}
NOW_TOOL = {"type": "function", "function": {"name": "now", "description": "Clock", "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, ident="abcdefghi"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "one": [{"role": "user", "content": " Hello \n"}],
    "system": [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": "Grüße, 世界 👍 <|end|>"}],
    "turns": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"},
              {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"}, {"role": "user", "content": "c"},
              {"role": "assistant", "content": "d", "reasoning_content": "why", "thinking": "why"}, {"role": "user", "content": "e"}],
    "tool": [{"role": "user", "content": "Weather?"},
             {"role": "assistant", "content": "", "thinking": "look", "tool_calls": [call("get_weather", {"place": "Tromsø", "days": 2, "deep": {"x": 1.0}, "tags": [], "ok": True, "no": None})]},
             {"role": "tool", "tool_call_id": "abcdefghi", "content": "{\"temp\": -3.5}"}],
    "tools": [{"role": "system", "content": "S"}, {"role": "user", "content": "q"},
              {"role": "assistant", "content": "let me", "tool_calls": [call("now", {}), call("get_weather", {"place": "x\ny"}, "123456789")]},
              {"role": "tool", "tool_call_id": "abcdefghi", "content": "12:00"}, {"role": "tool", "tool_call_id": "123456789", "content": "sun"},
              {"role": "assistant", "content": "It is sunny."}, {"role": "user", "content": "thanks"}],
    "null": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call("now", {})]}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "image"}, {"type": "text", "text": " two"}]}],
    "repeat": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "late_system": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "system", "content": "s"}, {"role": "user", "content": "c"}],
    "odd_role": [{"role": "critic", "content": "a"}],
    "empty": [],
    "bad_id": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call("now", {}, "call_1")]}],
}

SMALL = [
    # floats, in every habit of printing
    "{% for x in floats %}{{ x }} {{ x | tojson }} {{ [x] }} {{ x | round(2) }} {{ x | round(-1) }}|{% endfor %}",
    "{{ '%.3f %e %g %G %8.2f|%-8.1f|%+.0f' % (3.14159, 12345.678, 1e-5, 1e20, 2.5, 2.25, 0.5) }} {{ '{:.3} {:g} {:,} {:.2%} {:e} {:08.3f} {}'.format(3.14159, 0.0001, 1234567.891, 0.5, 5.0, -2.5, 1e100) }}",
    "{{ 7 / 2 }} {{ 6 / 2 }} {{ 7 // 2.0 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7.5 % -2 }} {{ 2 ** -1 }} {{ 0.1 + 0.2 }} {{ 1e16 + 1 }} {{ 10 ** 18 }}",
    # white space
    "  {%- if true %}  a  {%- endif -%}  b {#- c -#} d\n\n{%+ if true %}e{% endif +%}\n f\n   {% set x = 1 %}   \n{{ x }}\n  {# c #}\n g  {{- ' h ' -}}  \n",
    "{% for i in range(3) %}\n  {{ i }}\n{% endfor %}\nend\r\n{% raw %}  {{ x }}\n{% endraw %}\n{%- raw -%}  y  {%- endraw %}\r\n",
    # scopes
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}{% with x = 5 %}{% set x = 6 %}{{ x }}{% endwith %}{{ x }}",
    "{% macro a(x, y='d', z=y ~ '!') %}{{ x }}{{ y }}{{ z }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ a(1) }}{{ a(1, 2) }}{{ a(1, 2, 3, 4, k=5) }}{{ a(*[1, 2], **{'z': 3}) }}{{ a.name }}{{ a.arguments }}",
    "{% macro m(items) %}<{% for i in items %}{{ caller(i, loop.index) }}{% endfor %}>{% endmacro %}{% call(i, n) m('abc') %}{{ n }}{{ i | upper }}{% if n == 2 %}!{% endif %}{% endcall %}",
    "{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a * 2 %}{% set ns.b = i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{{ ns }}",
    # loops
    "{% for a, b in [(1, 2), (3, 4)] %}{{ loop.index }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.length }}{{ a + b }};{% endfor %}",
    "{% for x in range(10) if x % 3 == 0 %}{{ loop.index0 }}{{ x }}{{ ',' if not loop.last }}{% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}{% for x in [1, 2] %}{% continue %}{% else %}all skipped{% endfor %}",
    "{% for x in [3, 1, 2] %}{% if x == 1 %}{% continue %}{% endif %}{% for y in 'ab' %}{% if y == 'b' %}{% break %}{% endif %}{{ x }}{{ y }}{% endfor %}{% endfor %}",
    "{% for n in tree recursive %}{{ '  ' * loop.depth0 }}{{ n.v }}\n{{ loop(n.c) if n.c }}{% endfor %}",
    # strings
    "{{ s[::-1] }}{{ s[1:-1] }}{{ s[-3:] }}{{ s[::2] }}{{ s[5:1:-2] }}{{ s[99:] }}{{ s[:99] }}{{ u[1:4] }}{{ u[::-1] }}{{ u[-2] }}",
    "{{ ' a  b c '.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a b c '.rsplit(None, 1) }}{{ ' a  b  c '.split(None, 1) }}{{ 'a\\nb\\r\\nc'.splitlines() }}{{ 'a-b-c'.partition('-') }}{{ 'a-b-c'.rpartition('-') }}{{ 'abc'.partition('x') }}",
    "{{ 'xxabxx'.strip('x') }}{{ 'xyab'.lstrip('yx') }}{{ 'abc'.find('c') }}{{ 'abcabc'.rfind('b') }}{{ 'abc'.index('b') }}{{ 'aaa'.count('a') }}{{ 'aaa'.count('aa') }}{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('c', 1) }}{{ 'abc'.replace('b', 'x').replace('', '-', 2) }}",
    "{{ u.upper() }}{{ 'ΑΣ ΣΑΣ'.lower() }}{{ 'ß ŉ ﬁ ǆ'.upper() }}{{ 'ß ǆ x'.title() }}{{ 'hELLO'.capitalize() }}{{ \"they're bill's\".title() }}{{ \"they're bill's (x) [y] a-b\" | title }}{{ 'aB'.swapcase() }}{{ 'Straße'.casefold() }}",
    "{{ ['it\\'s', 'a\"b', '\\'\"', '\\n\\t\\\\', '\\x00\\x7f', 'é\\u200b', u, none, true, 1.0, {'a': (1,)}, ()] }}{{ '%r' % s }}",
    "{{ 'a\\qb\\x41\\u00e9\\101\\\\n' }}{{ 'é\\é' | length }}{{ 'a' 'b' \"c\" }}{{ '\\\n' | length }}",
    # tests and truth
    "{% for x in things %}{{ x is string }}{{ x is sequence }}{{ x is iterable }}{{ x is mapping }}{{ x is number }}{{ x is integer }}{{ x is float }}{{ x is boolean }}{{ x is none }}{{ x is true }}{{ x is false }}{{ not x }};{% endfor %}",
    "{{ 1 == 1.0 }}{{ true == 1 }}{{ 'a' == ['a'] }}{{ [1, 2] < [1, 3] }}{{ (1,) == [1] }}{{ 1 < 2 < 3 }}{{ 3 > 2 == 2 }}{{ 'a' in 'abc' }}{{ 'k' in {'k': 1} }}{{ 1 not in [2] }}{{ none == false }}{{ x is defined and x.y }}",
    "{{ missing }}{{ missing | default('d') }}{{ '' | default('d', true) }}{{ none | default('d') }}{{ things[99] is undefined }}{{ {}.a is defined }}{{ missing | length }}{{ missing ~ 'x' }}{{ [missing] }}{{ missing == missing2 }}{{ missing | list }}",
    # filters
    "{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A', 'c'] | sort(case_sensitive=true, reverse=true) }}{{ things2 | sort(attribute='n,m') | map(attribute='m') | list }}{{ things2 | sum(attribute='n') }}{{ things2 | min(attribute='n') }}{{ things2 | map(attribute='x', default='-') | join(',') }}",
    "{{ [1, 2, 3, 4, 5] | batch(2, 0) | list }}{{ [1, 2, 3, 4, 5] | slice(3) | list }}{{ [1, 1, 'a', 'A', 2] | unique | list }}{{ 'abc' | list | reverse | join }}{{ [1, 2] | first }}{{ 'abc' | last }}{{ {'b': 1, 'a': 2} | dictsort }}{{ {'b': 1, 'a': 2} | dictsort(false, 'value') }}{{ {'a': 1} | items | list }}",
    "{{ 'a\\n\\nb\\n' | indent }}|{{ 'a\\nb' | indent(2, first=true) }}|{{ 'a\\n\\nb' | indent('> ', blank=true) }}|{{ 'a b c d e' | truncate(5, leeway=0) }}|{{ 'x' | center(5) }}|{{ '<a>' | e }}|{{ '<a>' | e | e }}|{{ 'a b' | urlencode }}|{{ 'a b  c' | wordcount }}",
    "{{ '12' | int + 1 }}{{ 'x' | int(7) }}{{ '0x1F' | int(0, 16) }}{{ '1.9' | int }}{{ 1.9 | int }}{{ '1e2' | float }}{{ 'abc' | float(1.5) }}{{ -3 | abs }}{{ 2.5 | round }}{{ 3.5 | round }}{{ 1.25 | round(1) }}{{ 2.345 | round(2, 'floor') }}{{ 25 | round(-1) }}{{ true + 1 }}",
    "{{ d | tojson }}{{ d | tojson(indent=2) }}{{ d | tojson(sort_keys=true, separators=(',', ':')) }}{{ u | tojson(ensure_ascii=true) }}{{ [[], {}, [[]], ''] | tojson(indent=1) }}{{ {1: 2, none: 3, 1.5: 4} | tojson }}",
    "{{ strftime_now('%A %a %B %b %d %e %H %I %M %S %p %y %Y %j %U %w %F %T %% %-d %Z|%z') }}",
    "{{ range(5) }}{{ range(2, 10, 3) | list }}{{ range(10)[2:8:2] | list }}{{ range(3) | map('string') | join }}{{ dict(a=1, **{'b': 2}) }}{{ d.items() | list | length }}{{ d.get('zz', 'no') }}{{ d.keys() | list }}{{ d.values() | list | length }}",
    "{% if x: %}1{% elif s: %}2{% else: %}3{% endif %}{% for i in [1, 2]: %}{{ i }}{% endfor %}{% set y: %}q{% endset %}{{ y }}{% macro m(a): %}{{ a }}{{ caller() }}{% endmacro %}{% call m(1): %}c{% endcall %}{% filter upper: %}f{% endfilter %}",
    "{{ 'plain' % missing }}{{ things2 | groupby('n') | map('first') | list }}{{ [{}] | groupby('a') | list }}{{ [{}, {}] | sort(attribute='a') }}",
    # errors
    "{{ [{}, {}] | groupby('a') | list }}", "{{ [{'a': none}, {'a': none}] | groupby('a') | list }}", "{% if x: y %}{% endif %}", "{% if x %}{% endif: %}", "{% set x = 1: %}",
    "{{ missing.x }}", "{{ 1 + 'a' }}", "{{ [1] + 'a' }}", "{% for x in 5 %}{% endfor %}", "{{ [].append(1) }}", "{{ raise_exception('text: ' ~ 1.0) }}",
    "{{ 'a'.nope() }}", "{{ {}.x.y }}", "{% set a, b = [1] %}", "{{ 1 // 0 }}", "{{ 'x' | nope }}", "{{ x is nope }}", "{% endfor %}", "{{ 'a }}", "{% if x %}", "{{ {1: 2, [1]: 3} }}",
]
SMALL_CONTEXT = {
    "floats": [0.1, 1e-7, 123456789.125, 1e16, 1e15, 5e-324, 1.7976931348623157e308, -0.0, 2.5, 1e22, 9007199254740993.0, 0.30000000000000004, 4.35, 1e21,
               2.2250738585072014e-308, 9.5367431640625e-07, 5.684341886080802e-14, 100.0, 1.005, 12345678901234567.0],
    "s": "Hello World", "u": "Grüße 👍 世界", "d": {"b": [1, 2.0, None, True], "a": {"ü": "x\n\"y\""}, "C": "</s>"},
    "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3}]}, {"v": 4}]}, {"v": 5}],
    "things": ["", "a", 0, 1, 1.5, 0.0, None, True, False, [], [1], {}, {"a": 1}], "things2": [{"n": 2, "m": "b"}, {"n": 1, "m": "z"}, {"n": 2, "m": "A"}],
}


def render(source, context):
    try:
        return {"text": ctu._compile_jinja_template(source).render(**context)}
    except Exception as e:  # noqa: BLE001: any failure is an error for us
        raised = type(e).__name__ == "TemplateError"
        return {"error": {"kind": "raised" if raised else "other", "message": str(e)[:300]}}


def main():
    cases = []
    for name, source in TEMPLATES.items():
        for conv, messages in CONVERSATIONS.items():
            for tools in (None, [WEATHER, NOW_TOOL]):
                if tools and conv not in ("one", "system", "tools", "tool", "empty"):
                    continue
                context = {"messages": messages, "tools": tools, "add_generation_prompt": conv != "turns", "bos_token": "<s>", "eos_token": "</s>"}
                if conv == "system":
                    context["enable_thinking"] = False
                    context["documents"] = [{"title": "T", "text": "x\ny"}, {"title": "U", "n": 1}]
                cases.append({"name": f"{name}/{conv}{'/tools' if tools else ''}", "template": name, "context": context, "expect": render(source, context)})
    for i, source in enumerate(SMALL):
        cases.append({"name": f"small/{i}", "source": source, "context": "small", "expect": render(source, SMALL_CONTEXT)})
    for c in cases:  # each context once
        if isinstance(c["context"], dict):
            name = next((k for k, v in CONTEXTS.items() if v == c["context"]), f"c{len(CONTEXTS)}")
            CONTEXTS.setdefault(name, c["context"])
            c["context"] = name
    json.dump({"about": "Made by tools/oracle/template_cases.py; the format is that of the shared template cases.", "now": NOW,
               "contexts": CONTEXTS, "templates": TEMPLATES, "cases": cases}, sys.stdout, ensure_ascii=False, indent=1)
    print()


CONTEXTS = {"small": SMALL_CONTEXT}
main()
