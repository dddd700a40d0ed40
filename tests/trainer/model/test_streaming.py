"""Text beyond the context is read as StreamingLLM says, whatever pieces it comes in."""

from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from tests.trainer.models import small
from trainer.model.llama import Block, Llama
from trainer.model.rope import rotate
from trainer.model.streaming import DROPPED, Stream

CONTEXT, VOCABULARY = 24, 300
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 12}


def make(**shape: Any) -> Llama:
    return small(VOCABULARY, CONTEXT, **{"n_layers": 3, **shape})


def some_tokens(length: int, rows: int = 1) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def reference(model: Llama, tokens: list[int], room: int, first: int) -> list[torch.Tensor]:
    """The final hidden state after each token: one token at a time, keys cached before they are rotated
    and all rotated anew at each token, by their places in the cache.
    """
    decoder = model.model
    found: list[torch.Tensor] = []
    keys: list[list[torch.Tensor]] = [[] for _ in decoder.layers]
    values: list[list[torch.Tensor]] = [[] for _ in decoder.layers]
    for token in tokens:
        if len(keys[0]) == room:
            for cached in (*keys, *values):
                del cached[first : first + max(1, (room - first) // DROPPED)]
        x = decoder.embed_tokens(torch.tensor([[token]]))
        for block, its_keys, its_values in zip(decoder.layers, keys, values, strict=True):
            assert isinstance(block, Block)
            attention, normed = block.self_attn, block.input_layernorm(x)
            query = attention.q_norm(attention.q_proj(normed).view(1, 1, 4, 8))
            its_keys.append(attention.k_norm(attention.k_proj(normed).view(1, 1, 2, 8)))
            its_values.append(attention.v_proj(normed).view(1, 1, 2, 8))
            total = len(its_keys)
            query = rotate(query, decoder.cos[total - 1 : total], decoder.sin[total - 1 : total])
            key = rotate(torch.cat(its_keys, dim=1), decoder.cos[:total], decoder.sin[:total])
            scores = query @ key.repeat_interleave(2, dim=1).mT / 8**0.5
            if attention.sinks:
                scores = torch.cat([scores, attention.sinks()[:, None, None][None]], dim=-1)
            value = torch.cat(its_values, dim=1).transpose(1, 2).repeat_interleave(2, dim=1)
            mixed = scores.softmax(-1)[..., :total] @ value
            x = x + attention.o_proj(mixed.transpose(1, 2).reshape(1, 1, 32))
            x = x + block.mlp(block.post_attention_layernorm(x))
        found.append(decoder.norm(x)[:, -1])
    return found


@pytest.mark.parametrize(
    "shape", [{}, {"qk_norm": False}, {"attention_sinks": True}, {"rope_scaling": YARN}], ids=str
)
@pytest.mark.parametrize("first", [0, 4])
def test_what_a_token_sees_beyond_the_context_are_first_and_newest_tokens_at_their_places_in_the_cache(
    shape: dict[str, Any], first: int
) -> None:
    model, tokens = make(**shape), some_tokens(90)
    expected = reference(model, tokens[0].tolist(), CONTEXT, first)
    stream = Stream(model, CONTEXT, [first])
    for at, end in ((0, 1), (1, 30), (30, 31), (31, 90)):
        state = stream.read(tokens[:, at:end])
        torch.testing.assert_close(state, expected[end - 1], rtol=1e-4, atol=1e-4)


@settings(max_examples=15)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=3), st.integers(2, CONTEXT), st.integers(0, 30))
def test_how_a_text_is_cut_into_pieces_changes_nothing(pieces: list[int], room: int, first: int) -> None:
    model, tokens = make(n_layers=1), some_tokens(sum(pieces), rows=2)
    whole, cut = Stream(model, room, [first, first]), Stream(model, room, [first, first])
    expected = whole.read(tokens)
    for piece in tokens.split(pieces, dim=1):
        state = cut.read(piece)
    torch.testing.assert_close(state, expected, rtol=1e-4, atol=1e-4)
    assert whole.cache.lengths == cut.cache.lengths and max(cut.cache.lengths) <= room


@settings(max_examples=examples(12), deadline=None, phases=[Phase.generate])
@given(
    length=st.integers(150, 400),
    before=st.integers(1, 40),
    room=st.integers(9, CONTEXT),
    first=st.integers(0, 8),
)
def test_of_a_long_text_only_what_the_next_tokens_depend_on_is_computed(
    length: int, before: int, room: int, first: int
) -> None:
    model, tokens = make(n_layers=2), some_tokens(length + before + 30)
    computed: list[int] = []
    expected = reference(model, tokens[0].tolist(), room, min(first, room // 2))
    stream = Stream(model, room, [first])
    stream.read(tokens[:, :before])
    # What stays in the cache is right, too, for the tokens that follow.
    for at, end in ((before, before + length), (before + length, length + before + 30)):
        hook = model.model.norm.register_forward_pre_hook(lambda _, given: computed.append(given[0].shape[1]))
        state = stream.read(tokens[:, at:end], [end - at])
        hook.remove()
        torch.testing.assert_close(state, expected[end - 1], rtol=1e-4, atol=1e-4)
    assert sum(computed) <= 8 + 3 * room + room // 8 + 30


def test_a_long_text_takes_no_more_memory_than_the_context() -> None:
    model = make()
    stream = Stream(model, CONTEXT)
    stream.read(some_tokens(20))
    keys = stream.cache.layers[0].keys
    assert keys is not None
    first = keys[:, :, :4].clone()
    stream.read(some_tokens(500))
    assert stream.cache.layers[0].keys is keys
    assert keys.shape[2] == CONTEXT
    assert torch.equal(keys[:, :, :4], first)


def test_after_an_interruption_in_the_middle_of_a_token_the_text_goes_on_without_it() -> None:
    model, tokens = make(), some_tokens(9)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    stream = Stream(model, CONTEXT)
    stream.read(tokens[:, :7])
    hook = model.model.layers[1].mlp.register_forward_pre_hook(interrupt)  # type: ignore[union-attr]
    with pytest.raises(KeyboardInterrupt):
        stream.read(tokens[:, 7:8])
    hook.remove()
    expected = Stream(model, CONTEXT).read(torch.cat([tokens[:, :7], tokens[:, 8:]], dim=1))
    torch.testing.assert_close(stream.read(tokens[:, 8:]), expected, rtol=1e-5, atol=1e-5)
