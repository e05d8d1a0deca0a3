"""mem0: a memory whose model has a wrapped client.

mem0 creates its clients itself, so they are replaced. The words of a text stand in for an embedding
model here. With mem0's own one for OpenAI, replace its client in the same way:
`memory.embedding_model.client = gate.wrap(memory.embedding_model.client)`.
"""

import os
from zlib import crc32

os.environ["MEM0_TELEMETRY"] = "False"

from mem0 import Memory
from mem0.embeddings.base import EmbeddingBase
from qdrant_client import QdrantClient

import tidegate

SIZE = 64


class WordEmbedding(EmbeddingBase):
    """Embeds a text as the number of its words in each of `SIZE` groups."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:  # noqa: ARG002 - mem0 passes it
        """Returns the vector of `text`."""
        groups = [crc32(word.encode()) % SIZE for word in text.split()]
        return [float(groups.count(group)) for group in range(SIZE)]


gate = tidegate.Gate()
store = {"provider": "qdrant", "config": {"client": QdrantClient(":memory:"), "embedding_model_dims": SIZE}}
model = {"provider": "openai", "config": {"model": "gpt-4o-mini"}}
memory = Memory.from_config({"vector_store": store, "llm": model, "history_db_path": ":memory:"})
memory.llm.client = gate.wrap(memory.llm.client)
memory.embedding_model = WordEmbedding()

print(memory.add("I am a pilot in the harbour of Bristol.", user_id="anna"))
print(memory.search("Where does she work?", filters={"user_id": "anna"}))
