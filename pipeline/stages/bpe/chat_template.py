"""How other programs write a conversation: templates in Jinja, for `transformers`, vLLM, llama.cpp and TRL.

They keep to what all of these read: tests that they share, no macros, and no line breaks, which some trim.
"""

_ROLES = (
    "{% set role = message['role'] | upper %}"
    "{% set role = {'DEVELOPER': 'SYSTEM', 'FUNCTION': 'TOOL'}.get(role, role) %}"  # names in OpenAI's API
    "{% if role not in ['SYSTEM', 'USER', 'ASSISTANT', 'TOOL'] %}{{ raise_exception('unknown role '"
    " ~ message['role'] ~ ': this model knows system, user, assistant and tool') }}{% endif %}"
)
_TEXT_ONLY = (
    "{{ raise_exception('this model reads text only: leave out other parts of the content') }}{% endif %}"
)
# A text, nothing, or parts as in OpenAI's API. Any other value would be written as its repr. vLLM looks for a
# loop over `message['content']`: without one it joins the parts by line breaks.
_SAID = (
    "{% set content = message['content'] %}"
    "{% if content is string %}{{ content }}"
    "{% elif content is mapping %}{% if content['text'] is string %}{{ content['text'] }}"
    f"{{% else %}}{_TEXT_ONLY}"
    "{% elif content %}{% for part in message['content'] %}"
    "{% if part is string %}{{ part }}{% elif part['text'] is string %}{{ part['text'] }}"
    f"{{% else %}}{_TEXT_ONLY}{{% endfor %}}{{% endif %}}[END]"
)
# Rows with tools are not learned, so an answer with them would be of no use. vLLM passes `tools` also where a
# request has `tool_choice: none`, without a word of that, so tools that nobody demands are not looked at.
_TOOLS = "{{ raise_exception('this model has not learnt to call tools: leave out `%s`') }}{%% endif %%}"
_DEMANDED = "tools and tool_choice is defined and tool_choice and tool_choice not in ['none', 'auto']"
# Without the tag `generation`, which most programs cannot read.
CHAT_TEMPLATE = (
    f"{{{{ bos_token }}}}{{% if {_DEMANDED} %}}{_TOOLS % 'tools'}{{% for message in messages %}}"
    f"{{% if message['tool_calls'] %}}{_TOOLS % 'tool_calls'}{_ROLES}[{{{{ role }}}}]{_SAID}{{% endfor %}}"
    "{% if add_generation_prompt %}[ASSISTANT]{% endif %}"
)
# The same text for programs that train: the tag says what is learned.
TRAINING_TEMPLATE = CHAT_TEMPLATE.replace(
    _SAID,
    f"{{% if role == 'ASSISTANT' %}}{{% generation %}}{_SAID}{{% endgeneration %}}"
    f"{{% else %}}{_SAID}{{% endif %}}",
)
