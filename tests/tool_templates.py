"""Chat templates that write tool calls as families of models do that no public template here belongs to."""

from __future__ import annotations

BEGIN = "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}{{ m.content or '' }}"
END = "</s>{% endif %}{% endfor %}"
OWN = {
    "mistral, a list": (
        "mistral",
        BEGIN
        + "[TOOL_CALLS] [{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('id') }}{% endif %}"
        '{{ (c.function | tojson)[:-1] }}, "id": "{{ c.id }}"}{% if not loop.last %}, {% endif %}{% endfor %}]' + END,
    ),
    "mistral, names": (
        "mistral",
        BEGIN
        + "{% for c in m.tool_calls %}[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"
        + "{% endfor %}"
        + END,
    ),
    "kimi": (
        "kimi",
        BEGIN
        + "<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>functions.{{ c.function.name }}:"
        "{{ loop.index0 }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}"
        "<|tool_calls_section_end|>" + END,
    ),
    "command": (
        "cohere",
        BEGIN + "<|START_ACTION|>[{% for c in m.tool_calls %}\n"
        '    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ c.function.name }}", '
        '"parameters": {{ c.function.arguments | tojson }}}{% if not loop.last %},{% endif %}{% endfor %}\n]'
        "<|END_ACTION|>" + END,
    ),
    "granite": (
        "json_list",
        BEGIN + "<|tool_call|>[{% for c in m.tool_calls %}{{ c.function | tojson }}{% if not loop.last %}, {% endif %}"
        "{% endfor %}]" + END,
    ),
    "minimax": (
        "invoke",
        BEGIN + '\n<minimax:tool_call>\n{% for c in m.tool_calls %}<invoke name="{{ c.function.name }}">\n'
        '{% for k, v in c.function.arguments | items %}<parameter name="{{ k }}">'
        "{% if v is string %}{{ v }}{% else %}{{ v | tojson }}{% endif %}</parameter>\n{% endfor %}</invoke>\n"
        "{% endfor %}"
        "</minimax:tool_call>" + END,
    ),
    "deepseek 3.2": (
        "invoke",
        BEGIN + '<｜DSML｜function_calls>\n{% for c in m.tool_calls %}<｜DSML｜invoke name="{{ c.function.name }}">\n'
        '{% for k, v in c.function.arguments | items %}<｜DSML｜parameter name="{{ k }}" '
        "string=\"{{ 'true' if v is string else 'false' }}\">"
        "{% if v is string %}{{ v }}{% else %}{{ v | tojson }}{% endif %}"
        "</｜DSML｜parameter>\n{% endfor %}</｜DSML｜invoke>\n{% endfor %}</｜DSML｜function_calls>" + END,
    ),
    "deepseek 3.1": (
        "deepseek",
        BEGIN
        + "<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}<｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>"
        "{{ c.function.arguments | tojson }}<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>" + END,
    ),
    "llama 4, in Python": (
        "pythonic",
        BEGIN + "[{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments | items %}"
        "{{ k }}=\"{{ '%s' | format(v) }}\"{% if not loop.last %}, {% endif %}{% endfor %})"
        "{% if not loop.last %}, {% endif %}{% endfor %}]" + END,
    ),
}
"""By name: the family, and the template."""
