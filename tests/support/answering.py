"""An HTTP server of a test's own."""

import contextlib
import http.server
import socketserver
import threading


class Server(http.server.ThreadingHTTPServer):
    answers: dict[str, tuple[int, str]]
    asked: list[tuple[str, str | None]]
    otherwise: tuple[int, str]
    address: str

    def reply(self, method, path, body, authorization):
        """The status and the text of an answer; status 0 stands for an answer that is the text alone, in Latin-1."""
        self.asked.append((path, authorization))
        return self.answers.get(path, self.otherwise)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        authorization = self.headers.get("Authorization")
        status, text = self.server.reply(self.command, self.path, body, authorization)
        if status:
            self.send_response(status)
            self.end_headers()
        self.wfile.write(text.encode() if status else text.encode("latin-1"))

    do_POST = do_PUT = do_GET

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def answering(otherwise=(404, "nothing here"), kind=Server):
    """Yield a server that answers `server.answers[path]`, a (status, body), at `server.address`, and keeps what it was
    `asked`: paths with what they had for authorization."""
    with kind(("127.0.0.1", 0), Handler) as server:
        server.answers, server.asked, server.otherwise = {}, [], otherwise
        server.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@contextlib.contextmanager
def answering_bytes(content=b"\0\0\x18\x04\0@\xfe\r\n"):
    """Yield the address of a server that answers `content`, by default no HTTP, as Ray's own port."""

    class Bytes(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(2**16)
            self.request.sendall(content)

    with socketserver.TCPServer(("127.0.0.1", 0), Bytes) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
