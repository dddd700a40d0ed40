"""Causal attention: one function over five backends, and which of them can be used where."""

from trainer.model.attention.choice import choose_backend, masks_documents
from trainer.model.attention.compute import attention
from trainer.model.attention.documents import Backend, Mask, document_mask, document_numbers
