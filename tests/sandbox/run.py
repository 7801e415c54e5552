#!/usr/bin/env python3
"""Runs `examples/deploy/sandbox.toml` with a server that tries to leave its sandbox.

Needs bubblewrap and the program: `run.py --program target/debug/mcp-composite`.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE.parents[1] / "examples" / "deploy" / "sandbox.toml"

PROGRAM = None


class Sandbox(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.data = pathlib.Path(folder.name)

    def call(self, tool, file=FILE, **arguments):
        """Calls a tool through the gateway, and returns whether it failed and its text."""
        environment = os.environ | {
            "SERVER_DIR": str(HERE),
            "DATA_DIR": str(self.data),
            "SECRET": "hunter2",
        }
        command = [PROGRAM, "call", file, f"notes_{tool}", "--input", json.dumps(arguments)]
        call = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        self.assertIn(call.returncode, [0, 1], call.stderr)
        return call.returncode == 1, call.stdout + call.stderr

    def test_own_folder_is_readable_and_writable(self):
        self.assertEqual(self.call("write", path="/data/note")[0], False)
        self.assertEqual((self.data / "note").read_text(), "written")
        failed, text = self.call("read", path="note")
        self.assertEqual(failed, False)
        self.assertIn("written", text)

    def test_other_files_do_not_exist(self):
        (self.data / "outside").symlink_to(FILE)
        for path in [str(FILE), "/etc/passwd", "/root", "/data/outside"]:
            failed, text = self.call("read", path=path)
            self.assertTrue(failed, path)
            self.assertIn("FileNotFoundError", text)

    def test_programs_and_code_are_read_only(self):
        for path in ["/usr/bin/new", "/server/server.py"]:
            failed, text = self.call("write", path=path)
            self.assertTrue(failed, path)
            self.assertIn("Read-only file system", text)

    def test_network_is_unreachable(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            failed, text = self.call("connect", port=listener.getsockname()[1])
        self.assertTrue(failed)
        self.assertIn("ConnectionRefusedError", text)

    def test_other_processes_are_invisible(self):
        failed, text = self.call("processes")
        self.assertFalse(failed)
        self.assertNotIn(str(os.getpid()), text.split())
        self.assertIn("1", text.split())

    def test_environment_has_no_secrets(self):
        failed, text = self.call("environment")
        self.assertFalse(failed)
        self.assertIn("PATH", text)
        for secret in ["SECRET", "hunter2", "HOME"]:
            self.assertNotIn(secret, text)

    def test_the_same_server_without_a_sandbox_leaves(self):
        """The attempts succeed without a sandbox, so the other tests can fail."""
        file = self.data / "plain.toml"
        file.write_text(
            '[[backends]]\nname = "notes"\ncommand = "python3"\nargs = ["${SERVER_DIR}/server.py"]\n'
            'env = { PATH = "${PATH}" }\n'
        )
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            self.assertEqual(self.call("connect", file, port=port)[0], False)
        failed, text = self.call("read", file, path=str(FILE))
        self.assertFalse(failed)
        self.assertIn("bubblewrap", text)
        self.assertIn(str(os.getpid()), self.call("processes", file)[1].split())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    arguments, others = parser.parse_known_args()
    PROGRAM = pathlib.Path(arguments.program).resolve()
    unittest.main(argv=[sys.argv[0], *others])
