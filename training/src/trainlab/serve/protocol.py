"""The shapes of the OpenAI API that we implement: requests, answers, chunks, errors; used by api.py.

Source: OpenAI's API reference, chat completions and completions. A field that is not implemented is refused by its name, as is
one that nobody knows: ignored, it would give an answer to another question.
"""

import json
import time
import uuid
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainlab.serve.generation import Options

# What changes the answer and is not implemented, with the values that ask for nothing: OpenAI's fields, then vLLM's.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tools", "functions", "stop_token_ids"), ([],)),
    **dict.fromkeys(("logit_bias", "chat_template_kwargs"), ({},)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("logprobs", "use_beam_search", "ignore_eos", "include_stop_str_in_output"), (False,)),
    **dict.fromkeys(("skip_special_tokens", "add_generation_prompt"), (True,)),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "min_p", "min_tokens"), (0,)),
    **dict.fromkeys(("best_of", "repetition_penalty", "length_penalty"), (1,)),
    **{"parallel_tool_calls": (False, True), "response_format": ({"type": "text"},), "suffix": ("",)},
    **{"modalities": (["text"],), "top_k": (0, -1)},
}
# What says something about the client, not about the answer.
IGNORED = (
    *("user", "metadata", "store", "safety_identifier", "prompt_cache_key", "service_tier", "request_id", "priority"),
)


Stop = Annotated[str, Field(max_length=1000)]
"""Looked for after every token, by each of its beginnings."""
MIN_TEMPERATURE = 0.01
"""What a lower one but 0 becomes, as at vLLM (vllm-project/vllm, module vllm.sampling_params): divided by less, scores overflow."""


class ApiError(Exception):
    """An answer with an HTTP error status and OpenAI's error body."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kinds = {429: "rate_limit_error", 404: "not_found_error"}
        kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


# Of a message, what an answer comes with and no template reads: of vLLM, of clients.
SENT_BACK = ("id", "name", "reasoning", "reasoning_content", "annotations", "cache_control", "created_at", "status")


class Inner(BaseModel):
    """A part of a request. What is null, empty or false there asks for nothing and is left out, as is what `SENT_BACK` names."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_what_asks_for_nothing(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: v for k, v in value.items() if k in cls.model_fields or (v and k not in SENT_BACK)}


class StreamOptions(Inner):
    """Extras of a stream."""

    include_usage: bool = False


class Part(Inner):
    """A piece of a message's content; only text is understood."""

    type: Literal["text"]
    text: str


class Message(Inner):
    """One message of a chat. Clients send back an answer with all that it came with, also one whose content is null."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None

    @model_validator(mode="after")
    def _says_something(self) -> "Message":
        if self.content is None and self.role != "assistant":
            raise ValueError("content must be a text")
        return self

    def plain(self) -> dict[str, str]:
        """Return the message as chat templates expect it."""
        parts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content or ()]
        return {"role": "system" if self.role == "developer" else self.role, "content": "".join(parts)}


class Request(BaseModel):
    """What both endpoints have in common. Without a temperature answers are greedy, as in the evaluation."""

    neutral: ClassVar[dict[str, tuple[Any, ...]]] = {}
    model: str
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None  # what torch takes
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, body: Any) -> Any:
        """Leave out what asks for nothing; raise ApiError for a field that is not implemented, by its name."""
        if not isinstance(body, dict):
            return body
        for name, value in body.items():
            if name in cls.model_fields or name in IGNORED or value is None:
                continue
            if not any(_same(value, harmless) for harmless in (*NEUTRAL.get(name, ()), *cls.neutral.get(name, ()))):
                message = f"{name}: this server does not support it; leave it out"
                raise ApiError(400, message, param=name, code="unsupported_parameter")
        return body

    def options(self, default: int, most: int) -> Options:
        """Return how to generate, up to `default` tokens where the client names none, and never more than `most`: clients have limits
        of their own that they always send, and an answer that is cut off says so (finish_reason length)."""
        wanted = self.max_completion_tokens or self.max_tokens or default
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        top_p = 1.0 if self.top_p is None else self.top_p
        temperature = max(self.temperature, MIN_TEMPERATURE) if self.temperature else 0.0
        return Options(min(wanted, most), temperature, top_p, stop, self.seed)


class ChatRequest(Request):
    """Body of POST /v1/chat/completions."""

    neutral = {"top_logprobs": (0,)}
    messages: Annotated[list[Message], Field(min_length=1)]

    def texts(self) -> list[str]:
        """Return what the client wrote."""
        return [message.plain()["content"] for message in self.messages]


class TextRequest(Request):
    """Body of POST /v1/completions."""

    prompt: str | Annotated[list[str], Field(min_length=1, max_length=1)]
    echo: Literal[False] | None = None

    def texts(self) -> list[str]:
        """Return the one prompt, as a list."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt


class Reply:
    """Builds the answer or the chunks of one request."""

    def __init__(self, model: str, prompt_tokens: int, chat: bool) -> None:
        self._chat, self._prompt_tokens = chat, prompt_tokens
        prefix = "chatcmpl-" if chat else "cmpl-"
        self._head = {"id": prefix + uuid.uuid4().hex, "created": int(time.time()), "model": model}

    def body(self, text: str, finish: str, tokens: int) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        part = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        choice = {"index": 0, **part, "finish_reason": finish, "logprobs": None}
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": [choice], "usage": self._usage(tokens)}

    def first(self) -> dict[str, Any]:
        """Return the chunk that opens a chat stream."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, None)

    def piece(self, text: str) -> dict[str, Any]:
        """Return a chunk with text."""
        return self._chunk({"delta": {"content": text}} if self._chat else {"text": text}, None)

    def last(self, finish: str) -> dict[str, Any]:
        """Return the chunk that says why the stream ends."""
        return self._chunk({"delta": {}} if self._chat else {"text": ""}, finish)

    def usage(self, tokens: int) -> dict[str, Any]:
        """Return the chunk with token counts, which clients ask for by stream_options.include_usage."""
        return {**self._head, "object": self._chunk_kind, "choices": [], "usage": self._usage(tokens)}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _chunk(self, part: dict[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, **part, "finish_reason": finish, "logprobs": None}
        return {**self._head, "object": self._chunk_kind, "choices": [choice]}

    def _usage(self, tokens: int) -> dict[str, int]:
        total = self._prompt_tokens + tokens
        return {"prompt_tokens": self._prompt_tokens, "completion_tokens": tokens, "total_tokens": total}


def _same(value: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; Python takes false for 0."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def comment(text: str) -> str:
    """Return a line of a stream that clients of the protocol skip."""
    return f": {text}\n\n"


def event(value: dict[str, Any] | str) -> str:
    """Return one server-sent event."""
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n"
