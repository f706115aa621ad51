"""A small agent for the command line that keeps a session between its runs.

Like coding agents' command lines: ``--session-id`` begins a session, ``--resume`` continues one,
the answer is JSON on stdout, whole or one event per line, or plain text. Sessions are files.

    python session_agent.py --sessions DIR (--session-id ID | --resume ID) [--format json] PROMPT

Prompts: ``remember WORD``, ``recall``, ``fail``, ``hang``, ``refuse``, anything else is echoed.
"""

import argparse
import json
import os
import sys
import time
import uuid


def parse(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", required=True)
    parser.add_argument("--session-id")
    parser.add_argument("--resume")
    parser.add_argument("--own-session", action="store_true", help="take an id of its own")
    parser.add_argument("--format", choices=("json", "lines", "text"), default="json")
    parser.add_argument("prompt")
    return parser.parse_args(arguments)


def load(options):
    if options.resume:
        path = os.path.join(options.sessions, options.resume + ".json")
        if not os.path.exists(path):
            sys.exit("no session {}".format(options.resume))
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    own = options.own_session or not options.session_id
    session_id = str(uuid.uuid4()) if own else options.session_id
    return {"id": session_id, "words": [], "prompts": [], "traces": []}


def save(options, session):
    path = os.path.join(options.sessions, session["id"] + ".json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(session, file)
    os.replace(path + ".new", path)


def answer(session, prompt):
    if prompt.startswith("remember "):
        session["words"].append(prompt.split(" ", 1)[1])
        return "I keep {} words".format(len(session["words"]))
    if prompt == "recall":
        return ", ".join(session["words"])
    if prompt == "fail":
        print("so far")
        sys.exit("the model is out of reach")
    if prompt == "hang":
        print("thinking", flush=True)
        time.sleep(120)
    return "you said " + prompt


def report(options, session, reply):
    usage = {"input_tokens": 10 * len(session["prompts"]), "output_tokens": 3}
    result = {"type": "result", "session_id": session["id"], "result": reply, "usage": usage}
    if options.prompt == "refuse":
        result.update(is_error=True, result="I will not")
    if options.format == "text":
        print(reply)
    elif options.format == "json":
        print(json.dumps(result, indent=2))
    else:
        print("warming up")
        print(json.dumps({"type": "system", "session_id": session["id"], "model": "small"}))
        print(json.dumps({"type": "assistant", "message": {"content": "hm"}, "usage": usage}))
        print(json.dumps(result))


def main():
    options = parse(sys.argv[1:])
    session = load(options)
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    session["prompts"].append(prompt)
    session["traces"].append(os.environ.get("TRACEPARENT", ""))
    reply = answer(session, prompt)
    save(options, session)
    report(options, session, reply)


if __name__ == "__main__":
    main()
