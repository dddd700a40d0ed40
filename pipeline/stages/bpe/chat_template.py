"""How other programs write a conversation: templates in Jinja, for `transformers`, vLLM, llama.cpp and TRL.

They keep to what all of these read: tests that they share, no macros, and no line breaks, which some trim.
"""

_ROLES = (
    "{% set role = message['role'] | upper %}"
    "{% set role = {'DEVELOPER': 'SYSTEM', 'FUNCTION': 'TOOL'}.get(role, role) %}"  # names in OpenAI's API
    "{% if role not in ['SYSTEM', 'USER', 'ASSISTANT', 'TOOL'] %}{{ raise_exception('unknown role '"
    " ~ message['role'] ~ ': this model knows system, user, assistant and tool') }}{% endif %}"
)
# A text, nothing, or a list of parts as in OpenAI's API. Any other value would be written as its repr.
_SAID = (
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% elif message['content'] %}{% for part in message['content'] %}"
    "{% if part is string %}{{ part }}{% elif part['text'] is string %}{{ part['text'] }}"
    "{% else %}{{ raise_exception('this model reads text only: leave out other parts of the content') }}"
    "{% endif %}{% endfor %}{% endif %}[END]"
)
# Rows with tools are not learnt, so an answer with them would be of no use.
_TOOLS = "{{ raise_exception('this model has not learnt to call tools: leave out `%s`') }}{%% endif %%}"
# Without the tag `generation`, which most programs cannot read.
CHAT_TEMPLATE = (
    f"{{{{ bos_token }}}}{{% if tools %}}{_TOOLS % 'tools'}{{% for message in messages %}}"
    f"{{% if message['tool_calls'] %}}{_TOOLS % 'tool_calls'}{_ROLES}[{{{{ role }}}}]{_SAID}{{% endfor %}}"
    "{% if add_generation_prompt %}[ASSISTANT]{% endif %}"
)
# The same text for programs that train: the tag says what is learnt.
TRAINING_TEMPLATE = CHAT_TEMPLATE.replace(
    _SAID,
    f"{{% if role == 'ASSISTANT' %}}{{% generation %}}{_SAID}{{% endgeneration %}}"
    f"{{% else %}}{_SAID}{{% endif %}}",
)
