"""The protocols of the prober, by the value of `kind` in the file of probes."""

from typing import Final

from probe.protocols import (
    anthropic_messages,
    bedrock,
    gemini,
    openai_chat,
    openai_completions,
    openai_responses,
)
from probe.protocols.protocol import Protocol

PROTOCOLS: Final = {
    "openai-chat": Protocol(openai_chat.build, openai_chat.read),
    "openai-completions": Protocol(openai_completions.build, openai_completions.read),
    "openai-responses": Protocol(openai_responses.build, openai_responses.read),
    "anthropic-messages": Protocol(anthropic_messages.build, anthropic_messages.read),
    "bedrock": Protocol(bedrock.build, bedrock.read, bedrock.decoder),
    "gemini": Protocol(gemini.build, gemini.read),
}
