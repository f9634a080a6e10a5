"""What glibc is told, seen from outside: page faults of large blocks, and the stores that threads take memory from."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is Linux' alone")

FAULTS = """
import resource, sys
from bertsmith.model.memory import keep_freed_memory
assert keep_freed_memory(of_any_size={of_any_size})
for _ in range(3):
    bytearray({size})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    bytearray({size})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

STORES = """
import ctypes, threading
from bertsmith.model.memory import share_freed_memory
{call}
barrier = threading.Barrier(4)
def work():
    kept = [bytearray(1000) for _ in range(1000)]
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("size", "of_any_size"), [(20 * 2**20, False), (60 * 2**20, True)])
def test_freed_blocks_are_kept_and_taken_again(size: int, of_any_size: bool):
    assert int(said(FAULTS.format(size=size, of_any_size=of_any_size))) < 1000  # of 25,000 and 75,000 pages


def test_without_being_asked_larger_blocks_go_back():
    assert int(said(FAULTS.format(size=60 * 2**20, of_any_size=False))) > 50


def test_threads_share_one_store():
    assert said(STORES.format(call="")).count("<heap nr=") > 1
    assert said(STORES.format(call="assert share_freed_memory()")).count("<heap nr=") == 1
