"""The Llama-style decoder. Parameter names and rotary layout are those of Hugging Face, so that export and
import copy tensors unchanged.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from trainer.config import InitConfig, ModelConfig
from trainer.config.tensors import SINKS, WITH_VOCABULARY
from trainer.model.activation_checkpointing import ActivationCheckpointing, activation_checkpointed
from trainer.model.attention import Backend, Mask, attention, document_mask
from trainer.model.cache import KeyValueCache, LayerCache
from trainer.model.dropout import Dropout, keys_at
from trainer.model.precision import Precision
from trainer.model.rms_norm import RMSNorm
from trainer.model.rope import rotary_tables, rotate

VOCAB_MULTIPLE = 64
DropoutKeys = tuple[torch.Tensor | None, torch.Tensor | None]


def padded_vocab_size(vocab_size: int) -> int:
    """Rows of embedding and head: a multiple of 64, for faster matrix kernels. Added rows stay zero."""
    return -(-vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


class Sinks(nn.Module):
    """The logits of attention sinks, one for each head. A module, so that tensor parallelism can hand out
    those of its heads.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads))

    def forward(self) -> torch.Tensor:
        return self.weight


class Attention(nn.Module):
    def __init__(self, config: ModelConfig, backend: Backend) -> None:
        super().__init__()
        self.head_dim, self.backend = config.head_dim, backend
        self.q_proj = nn.Linear(config.d_model, config.n_heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.d_model, config.n_kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.d_model, config.n_kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.n_heads * config.head_dim, config.d_model, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else nn.Identity()
        self.sinks = Sinks(config.n_heads) if config.attention_sinks else None

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        mask: Mask | None = None,
        cache: LayerCache | None = None,
    ) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = (batch, length, -1, self.head_dim)
        query, key, value = self.project(x)
        query = rotate(self.q_norm(query.view(heads)), cos, sin)
        key = rotate(self.k_norm(key.view(heads)), cos, sin)
        value = value.view(heads).transpose(1, 2)
        if cache is not None:
            key, value = cache.extend(key, value)
        mixed = attention(
            query, key, value, self.backend, mask=mask, sinks=self.sinks() if self.sinks else None
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))

    def project(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.up_proj = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.down_proj = nn.Linear(config.d_ff, config.d_model, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.project(x)
        # Rebound, so that without gradients each is freed once it is used.
        gate = nn.functional.silu(gate)
        gate = gate * up
        del up
        return self.down_proj(gate)

    def project(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        return self.gate_proj(x), self.up_proj(x)


class Block(nn.Module):
    def __init__(self, config: ModelConfig, backend: Backend, layer: int, dropout: float) -> None:
        super().__init__()
        self.layer = layer
        self.input_layernorm = RMSNorm(config.d_model, config.norm_eps)
        self.self_attn = Attention(config, backend)
        self.post_attention_layernorm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = MLP(config)
        self.attention_dropout = Dropout(dropout)
        self.mlp_dropout = Dropout(dropout)

    def dropout_keys(self, keys: torch.Tensor | None) -> DropoutKeys:
        """The keys of the dropouts after attention and MLP."""
        return keys_at(2 * self.layer + 1, keys), keys_at(2 * self.layer + 2, keys)

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        mask: Mask | None = None,
        cache: LayerCache | None = None,
        dropout_keys: DropoutKeys = (None, None),
    ) -> torch.Tensor:
        attended = self.self_attn(self.input_layernorm(x), cos, sin, mask, cache)
        x = x + self.attention_dropout(attended, dropout_keys[0])
        return x + self.mlp_dropout(self.mlp(self.post_attention_layernorm(x)), dropout_keys[1])


class CheckpointedBlock(Block):
    """A block that computes some of its activations again in the backward pass."""

    def __init__(self, kind: ActivationCheckpointing, *wanted: Any) -> None:
        """`wanted` are the arguments of Block."""
        super().__init__(*wanted)
        self.kind = kind

    def forward(self, *inputs: Any) -> torch.Tensor:
        return activation_checkpointed(super().forward, self.kind, *inputs)


class Decoder(nn.Module):
    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        max_length: int,
        backend: Backend,
        activation_checkpointing: ActivationCheckpointing = "none",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        rows = padded_vocab_size(vocab_size)
        # On the meta device PyTorch computes in Python, for which it imports its compiler. So neither numbers
        # that nobody reads are drawn there, nor tables that `materialize` computes.
        self.embed_tokens = nn.Embedding(rows, config.d_model, _weight=torch.empty(rows, config.d_model))
        self.embed_dropout = Dropout(dropout)
        block: Callable[..., Block] = Block
        if activation_checkpointing != "none":
            block = partial(CheckpointedBlock, activation_checkpointing)
        self.layers = nn.ModuleList(
            block(config, backend, layer, dropout) for layer in range(config.n_layers)
        )
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        self.backend = backend
        self.most_documents: int | None = None  # of a window, where the data tells
        if self.embed_tokens.weight.is_meta:
            cos, sin = torch.empty(2, max_length, config.head_dim)
        else:
            cos, sin = rotary_tables(config, max_length)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(
        self,
        tokens: torch.Tensor,
        documents: torch.Tensor | None = None,
        cache: KeyValueCache | None = None,
        dropout_keys: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x, length = self.embed(tokens, dropout_keys), tokens.shape[1]
        if cache is None:
            return self.norm(self.through(self.layers, x, length, documents, dropout_keys))
        places, visible = cache.next(length, x.device)
        cos, sin = self.cos[places], self.sin[places]
        for number, layer in enumerate(cast(Iterable[Block], self.layers)):
            # Uncompiled: a cache reads more with each call, and compiled blocks need one shape.
            x = layer.forward(x, cos, sin, visible, cache.layer(number))
        cache.advance(length)
        return self.norm(x)

    def embed(self, tokens: torch.Tensor, dropout_keys: torch.Tensor | None) -> torch.Tensor:
        return self.embed_dropout(self.embed_tokens(tokens), keys_at(0, dropout_keys))

    def through(
        self,
        layers: Iterable[nn.Module],
        x: torch.Tensor,
        length: int,
        documents: torch.Tensor | None,
        dropout_keys: torch.Tensor | None,
    ) -> torch.Tensor:
        """The hidden states `x` after `layers`. `length` counts all tokens, of which `x` holds a part under
        tensor parallelism.
        """
        cos, sin = self.cos[:length], self.sin[:length]
        mask = document_mask(documents, length, self.backend, self.most_documents)
        for layer in cast(Iterable[Block], layers):
            x = layer(x, cos, sin, mask, None, layer.dropout_keys(dropout_keys))
        return x


class Llama(nn.Module):
    """A decoder and its head. `forward` gives the final hidden states [batch, length, d_model]; the loss
    applies the head itself.

    `shapes` has the full shape of each parameter by name, also of those that other processes hold. `context`
    is what an export names: `max_length`, or more if earlier training knew longer texts. `precision` is that
    of training. Built under `torch.device("meta")`, the model takes no memory until `materialize`.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        max_length: int,
        backend: Backend,
        activation_checkpointing: ActivationCheckpointing = "none",
        *,
        dropout: float = 0.0,
        precision: Precision = "fp32",
    ) -> None:
        super().__init__()
        self.config, self.vocab_size, self.max_length = config, vocab_size, max_length
        self.precision = precision
        self.context, self.loss_is_compiled = max_length, False
        self.model = Decoder(config, vocab_size, max_length, backend, activation_checkpointing, dropout)
        self.lm_head = nn.Linear(config.d_model, padded_vocab_size(vocab_size), bias=False)
        self._tie()
        self.shapes = {name: tuple(parameter.shape) for name, parameter in self.named_parameters()}

    def _tie(self) -> None:
        if self.config.tie_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def materialize(self, device: torch.device) -> None:
        """Allocates a model built on the meta device; its weights must then be initialized or loaded."""
        # As `to_empty`, whose `empty_like` computes in Python on the meta device.
        self._apply(lambda tensor: tensor.new_empty(tensor.shape, device=device))
        self._tie()
        cos, sin = rotary_tables(self.config, self.max_length)
        self.model.cos, self.model.sin = cos.to(device), sin.to(device)

    def forward(
        self,
        tokens: torch.Tensor,
        documents: torch.Tensor | None = None,
        cache: KeyValueCache | None = None,
        dropout_keys: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`tokens` [batch, length] int64; `documents` [batch, length] numbers the documents to keep apart;
        `cache` holds earlier positions. Without `dropout_keys` [batch, 2] of `sample_keys` none is dropped.
        """
        return self.model(tokens, documents, cache, dropout_keys)

    @property
    def device(self) -> torch.device:
        return self.model.cos.device

    @property
    def has_head(self) -> bool:
        """Whether this process holds the end of the model, as only one of a pipeline does."""
        return True

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., d_model] to [..., vocab_size], without the padding."""
        return self.lm_head(hidden)[..., : self.vocab_size]

    @torch.no_grad()
    def initialize(self, config: InitConfig, seed: int) -> None:
        """Draws each parameter from its own generator, seeded by (seed, name), for the same weights on any
        device and number of processes.
        """
        for name, parameter in self.named_parameters():
            if name.endswith(SINKS):
                parameter.zero_()  # as much as a key with the score 0: each head may leave or strengthen it
            elif parameter.ndim == 1:
                parameter.fill_(1.0)
            elif config.zero_output and name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()
            else:
                drawn = torch.empty(parameter.shape).normal_(0.0, config.std, generator=generator(seed, name))
                parameter.copy_(drawn)
            if name in WITH_VOCABULARY:
                parameter[self.vocab_size :] = 0.0


def generator(seed: int, name: str) -> torch.Generator:
    """What draws the random numbers called `name`, such as the first values of a parameter."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
