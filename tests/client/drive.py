"""Drives a whole run against a live host with a client generated from docs/openapi.json.

    python tests/client/drive.py GENERATED

GENERATED is the directory of the package `subtend_client`. SUBTEND names the binary. Exits with 1 if a check fails.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from subtend_client import AuthenticatedClient, models  # noqa: E402
from subtend_client.api.agents import list_agents  # noqa: E402
from subtend_client.api.approvals import answer_approval, list_approvals  # noqa: E402
from subtend_client.api.branches import list_alternatives, regenerate, switch_alternative  # noqa: E402
from subtend_client.api.inputs import get_answer, send_input  # noqa: E402
from subtend_client.api.queue import list_queue, remove_input  # noqa: E402
from subtend_client.api.runs import cancel, get_run  # noqa: E402
from subtend_client.api.sessions import (  # noqa: E402
    close_session,
    delete_session,
    get_session,
    get_transcript,
    list_records,
    list_sessions,
    open_session,
)
from subtend_client.api.tasks import get_task, list_tasks, spawn_task  # noqa: E402
from subtend_client.api.trees import get_tree  # noqa: E402
from subtend_client.api.usage import get_usage  # noqa: E402

BINARY = os.path.abspath(os.environ.get("SUBTEND", "target/debug/subtend"))
SCRIPT = {
    "name": "client",
    "rules": [
        {
            "agent": "general",
            "steps": [
                [
                    {"when": {"prompt_contains": "hang"}, "hang": True, "text": "waits"},
                    {
                        "when": {"prompt_contains": "command"},
                        "calls": [{"tool": "shell", "args": {"command": "printf approved"}}],
                    },
                    {
                        "when": {"prompt_contains": "tree"},
                        "text": "shared",
                        "fan_out": {"n": 2, "agent": "explore", "prompt": "Part {n}."},
                    },
                    {"text": "You said: {last}"},
                ],
                [{"text": "done: {last}", "repeat": True}],
            ],
        },
        {"agent": "explore", "steps": [{"text": "read"}]},
    ],
}


def equal(found, expected, what):
    if found != expected:
        sys.exit(f"{what}: {found!r}, not {expected!r}")


def opened(client, text, key=None):
    body = models.NewSession(title=text, input_=models.NewInput(text=text))
    made = open_session.sync(client=client, body=body, **({"idempotency_key": key} if key else {}))
    if not isinstance(made, models.Opened):
        sys.exit(f"{text}: {made!r}")
    return str(made.session.id), made.input_.run


def ended(client, session, run):
    return get_run.sync(session, run, client=client, wait=True, timeout=60_000)


def conversation(client):
    session, run = opened(client, "Good morning", key="morning-1")
    equal(opened(client, "Good morning", key="morning-1"), (session, run), "a resent opening names the same session and run")
    equal((ended(client, session, run).outcome, ended(client, session, run).text), ("completed", "You said: Good morning"), "a run")
    sent = send_input.sync(session, client=client, body=models.NewInput(text="and now?"))
    answer = get_answer.sync(session, str(sent.input_), client=client, wait=True, timeout=60_000)
    equal((answer.answered, answer.text), (True, "done: and now?"), "an answer")
    kinds = [entry.additional_properties["type"] for entry in get_transcript.sync(session, client=client).entries]
    equal(kinds, ["input", "answer", "ended"] * 2, "the entries of a transcript")
    records = list_records.sync(session, client=client)
    equal([stored.seq for stored in records], list(range(1, len(records) + 1)), "records")
    equal([str(found.id) for found in list_sessions.sync(client=client, q="morning").items], [session], "a search")
    equal(get_session.sync(session, client=client).last_seq, len(records), "the last record")
    equal(get_usage.sync(session, client=client).recorded > 0, True, "usage")
    regenerate.sync(session, client=client, body=models.Regenerate())
    equal(switch_alternative.sync(session, client=client, body=models.SwitchRequest(to=0)).to, 0, "a switch by number")
    equal(len(list_alternatives.sync(session, client=client)[0].choices), 2, "alternatives")
    equal(close_session.sync_detailed(session, client=client).status_code, 204, "a close")
    return session


def approval(client):
    session, run = opened(client, "Run a command")
    for _ in range(600):
        waiting = list_approvals.sync(client=client)
        if waiting:
            break
        ended_ = get_run.sync(session, run, client=client, wait=True, timeout=100)
        equal(ended_.in_flight, True, f"the run waits: {ended_}")
    equal((len(waiting), waiting[0].tool, str(waiting[0].session)), (1, "shell", session), "a call that waits")
    shown = models.ApprovalAnswer(verdict="allow", digest="0" * 64)
    changed = answer_approval.sync(session, waiting[0].call, client=client, body=shown)
    equal(changed.code, "approval_changed", "an approval of something else")
    shown = models.ApprovalAnswer(verdict="allow", digest=waiting[0].digest)
    answered = answer_approval.sync_detailed(session, waiting[0].call, client=client, body=shown)
    equal(answered.status_code < 300, True, f"an approval: {answered}")
    equal(ended(client, session, run).outcome, "completed", "the approved run")


def tree(client):
    session, run = opened(client, "Grow a tree")
    equal(ended(client, session, run).outcome, "completed", "a run with children")
    equal(len(get_tree.sync(session, client=client).tree.children), 2, "children")
    spawned = spawn_task.sync(client=client, body=models.Spawn(type_="explore", prompt="read"))
    done = get_task.sync(spawned.id, client=client, wait=True, timeout=60_000)
    equal((done.status, done.result), ("completed", "read"), "a task")
    equal(done.created_at <= done.completed_at <= done.updated_at, True, "the times of a task")
    equal("error" in done.to_dict(), False, "a field without a value")
    equal([row.id for row in list_tasks.sync(client=client, body=models.TaskQuery(limit=1))], [spawned.id], "tasks")
    below = spawn_task.sync(client=client, body=models.Spawn(type_="explore", prompt="read", parent_session_id=session))
    equal(str(below.parent_session_id), session, "the parent of a task")


def control(client):
    session, run = opened(client, "Please hang")
    queued = send_input.sync(session, client=client, body=models.NewInput(text="later"))
    equal(len(list_queue.sync(session, client=client)), 1, "the queue")
    remove_input.sync(session, str(queued.input_), client=client)
    equal(len(list_queue.sync(session, client=client)), 0, "the empty queue")
    equal(cancel.sync(session, client=client, run=run).result, "done", "a cancel")
    equal(ended(client, session, run).outcome, "cancelled", "the cancelled run")
    equal(cancel.sync(session, client=client, run=run).result, "already_ended", "a cancel that is sent again")


def refusals(client, reader, session):
    unknown = get_session.sync("00000000-0000-7000-8000-000000000000", client=client)
    equal((unknown.status, unknown.code), (404, "session_not_found"), "an unknown session")
    small = open_session.sync_detailed(client=reader, body=models.NewSession())
    equal(int(small.status_code), 403, "a token that may read")
    equal(delete_session.sync(session, client=client).sessions >= 1, True, "a deletion")
    equal(get_session.sync(session, client=client).code, "session_deleted", "a deleted session")


def main():
    with tempfile.TemporaryDirectory(prefix="subtend-client-") as folder:
        workspace = Path(folder, "workspace")
        workspace.mkdir()
        Path(folder, "script.json").write_text(json.dumps(SCRIPT))
        store = f"redb:{folder}/store"
        env = {**os.environ, "XDG_CONFIG_HOME": f"{folder}/config", "SUBTEND_DATA": f"{folder}/data"}
        command = [BINARY, "serve", "--json", "--listen", "127.0.0.1:0", "--store", store, "--ask", "shell.run"]
        command += ["--model", f"scripted:{folder}/script.json"]
        host = subprocess.Popen(command, cwd=workspace, env=env, stdout=subprocess.PIPE, text=True)
        try:
            address = json.loads(host.stdout.readline())["address"]
            token = lambda scope: subprocess.run(  # noqa: E731
                [BINARY, "token", "--store", store, "create", scope, "--scope", scope],
                cwd=workspace, env=env, check=True, capture_output=True, text=True,
            ).stdout.strip()
            client, reader = (AuthenticatedClient(f"http://{address}", token(scope)) for scope in ("admin", "read"))
            equal("general" in [agent.name for agent in list_agents.sync(client=client)], True, "agents")
            session = conversation(client)
            approval(client)
            tree(client)
            control(client)
            refusals(client, reader, session)
        finally:
            host.terminate()
            code = host.wait(timeout=30)
        equal(code, 0, "the end of the host")
    print("a generated client drove a whole run")


main()
