# SPDX-License-Identifier: BSD-3-Clause
"""How the runners under tests/ run a program: with a time limit, and so that no process remains."""
import os, signal, subprocess, time


def run(command, environment, timeout, cwd=None):
    """Runs a program. Returns its exit code (None if it had to be stopped), its output, and the seconds. The output of an
    mpirun that had to be stopped ends with its deadlock report."""
    start = time.monotonic()
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", env={**os.environ, **environment}, cwd=cwd, start_new_session=True,
                             stdin=subprocess.DEVNULL)
    try:
        output, _ = child.communicate(timeout=timeout)
        return child.returncode, output, time.monotonic() - start
    except subprocess.TimeoutExpired:
        if os.path.basename(command[0]) in ("mpirun", "mpiexec"):
            os.kill(child.pid, signal.SIGUSR1)
            time.sleep(2)
        # SIGTERM comes first: the launcher itself must end every process that it started, which is tested here.
        os.killpg(child.pid, signal.SIGTERM)
        try:
            output, _ = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
        return None, output, time.monotonic() - start
