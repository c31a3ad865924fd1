"""`trainlab serve`: an OpenAI-compatible CPU server with base, tuned and adapters in one process; called by the CLI.

chat_server.py listens, api.py answers HTTP, protocol.py knows the API's shapes, work.py queues, inference_engine.py holds the models,
generation.py makes text.
"""

from trainlab.serve.chat_server import serve

__all__ = ["serve"]
