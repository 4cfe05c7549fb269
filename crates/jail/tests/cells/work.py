"""Ordinary work that must go unhindered; prints `done`."""
import asyncio, concurrent.futures, multiprocessing, os, socket, sqlite3, subprocess, sys, tempfile, threading


def square(number):
    return number * number


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(3) as pool:
        assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    lock, queue = multiprocessing.Lock(), multiprocessing.Queue()
    with lock:
        child = multiprocessing.Process(target=queue.put, args=("said",))
        child.start()
        assert queue.get() == "said"
        child.join()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(square, range(100))) == 328350
    assert subprocess.run("echo $0; cat", shell=True, input=b"x", capture_output=True).stdout.endswith(b"x")

    async def program():
        process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert out == b"hi\n"
        server = await asyncio.start_server(lambda reader, writer: writer.write(b"served") or writer.close(), "localhost", 0)
        host, port = server.sockets[0].getsockname()[:2]
        reader, writer = await asyncio.open_connection(host, port)
        assert await reader.read() == b"served"
        await asyncio.sleep(0)

    asyncio.run(program())
    with tempfile.TemporaryDirectory() as folder:
        base = sqlite3.connect(folder + "/base.db")
        base.execute("pragma journal_mode=wal")
        base.execute("create table t (x)")
        base.executemany("insert into t values (?)", [(one,) for one in range(100)])
        base.commit()
        assert base.execute("select sum(x) from t").fetchone() == (4950,)
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(folder + "/socket")
    left, right = socket.socketpair()
    left.send(b"1")
    assert right.recv(1) == b"1"
    assert socket.getaddrinfo("localhost", 80)
    assert os.sched_getaffinity(0) and os.cpu_count()
    done = threading.Event()
    threading.Thread(target=done.set).start()
    done.wait()
    import mmap, signal, time
    signal.signal(signal.SIGALRM, lambda *_: done.clear())
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    while done.is_set():
        time.sleep(0.001)
    mmap.mmap(-1, 1 << 20)[0] = 1
    from multiprocessing import shared_memory
    memory = shared_memory.SharedMemory(create=True, size=100)
    memory.buf[0] = 7
    memory.unlink()
    memory.close()
    print("done")
