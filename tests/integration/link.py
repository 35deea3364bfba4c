"""A TCP connection that a test can cut, between a program under test and the API server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Link:
    """A TCP proxy from `port` to the port `target`. It accepts no connection between `cut` and `restore`."""

    def __init__(self, target: int) -> None:
        """Start to listen."""
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._whole = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close every open connection and, until `restore`, each new one."""
        self._whole = False
        for end in tuple(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        """Accept connections again."""
        self._whole = True

    def close(self) -> None:
        """Cut all connections and stop listening."""
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._whole:
                near.close()
                continue
            proxied = socket.create_connection(("127.0.0.1", self._target))
            for source, sink in ((near, proxied), (proxied, near)):
                self._open.add(source)
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()
