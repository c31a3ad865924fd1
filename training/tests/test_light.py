"""What the small pods of a release do (verify-run, promote) is done without torch, which alone is more than their memory."""

import os
import subprocess
import sys

from checkout import SOURCES, VALUES

VALUES = sorted((VALUES).glob("*.yaml"))
SMALL = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from trainlab import cli, recipes
from trainlab.run import promote, verify_run
from trainlab.config.loading import load_values
from trainlab.errors import UserError
class Served(BaseHTTPRequestHandler):
    def answer(self, content):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())
    def do_GET(self):
        self.answer({"data": [{"id": "base"}, {"id": "tuned"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"choices": [{"message": {"content": "Yes."}}]})
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", 0), Served)
threading.Thread(target=server.serve_forever, daemon=True).start()
for file in sys.argv[1:]:
    recipe = recipes.get_recipe(load_values([Path(file)]).phase)
    try:
        recipe.probe(Path("no-such-run"), f"http://127.0.0.1:{server.server_port}", "tuned", 30)
        print("asked")
    except UserError as error:  # of images it reads the run's files first
        print(type(error).__name__)
    assert "torch" not in sys.modules, file
"""


def test_asking_a_served_model_of_any_recipe_imports_no_torch() -> None:
    command, env = [sys.executable, "-c", SMALL, *map(str, VALUES)], os.environ | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert len(said) == len(VALUES) and said.count("asked") == len(VALUES) - 1


def test_reading_a_chat_template_before_the_ranks_start_imports_no_models() -> None:
    """The launcher of a pod stays in memory beside its ranks; transformers' model code is 230 MB."""
    code = "import sys; from trainlab.models import chat; assert 'transformers.modeling_utils' not in sys.modules"
    env = os.environ | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
