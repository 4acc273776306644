"""Other people's servers to put behind a site: nginx, Apache and Node, each answering the same paths its own way.

    /page             a page with an ETag, which conditions and ranges are for
    /dav/NAME         PUT keeps a body, GET gives it back (Node: POST of any path that ends in /echo as well)
    /chunks           an answer without a length
    /small            takes bodies of up to 1 KiB, and answers others with 413 before it has read them

`x-connection` in every answer names the connection that it came on.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import client
from harness import end, free_port

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
PAGE = "".join(f"<p>line {number} of the page\n" for number in range(2000))


class Program:
    """A server of somebody else's, on a port of 127.0.0.1; use it with `with`."""

    name = None

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="bulkhead-behind-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.port = free_port()
        self.at = f"127.0.0.1:{self.port}"
        self.root = self.folder / "root"
        self.root.joinpath("dav").mkdir(parents=True)
        self.root.joinpath("page.html").write_text(PAGE)
        self.root.joinpath("chunks.html").write_text(PAGE)
        self.folder.joinpath("tmp").mkdir()
        for folder in (self.root / "dav", self.folder / "tmp"):
            folder.chmod(0o777)
        self.process = None

    @classmethod
    def program(cls):
        return shutil.which(cls.name, path=PATH)

    def __enter__(self):
        with open(self.folder / "said", "wb") as said:
            # Apache ends its whole group of processes.
            self.process = subprocess.Popen(
                self.words(), stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=self.folder, start_new_session=True
            )
        if not client.until(lambda: client.status(self.port, "/app/page", timeout=1) == 200, 20):
            text = (self.folder / "said").read_text(errors="replace")
            self.__exit__()
            raise AssertionError(f"{self.name} does not come up: {text}")
        return self

    def __exit__(self, *_):
        end(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


class Nginx(Program):
    name = "nginx"

    CONFIG = """\
daemon off;
pid {folder}/pid;
error_log {folder}/said warn;
worker_processes 1;
{user}
events {{ worker_connections 2000; }}
http {{
    access_log off;
    default_type text/html;
    client_body_temp_path {folder}/tmp/1; proxy_temp_path {folder}/tmp/2; fastcgi_temp_path {folder}/tmp/3;
    uwsgi_temp_path {folder}/tmp/4; scgi_temp_path {folder}/tmp/5;
    client_max_body_size 0;
    add_header X-Connection $connection always;
    server {{
        listen 127.0.0.1:{port};
        root {folder}/root;
        location = /app/page {{ alias {folder}/root/page.html; }}
        location /app/dav/ {{ alias {folder}/root/dav/; dav_methods PUT DELETE; }}
        # What is changed on the way has no length any more.
        location = /app/chunks {{ alias {folder}/root/chunks.html; sub_filter 'line 0' 'line 0'; }}
        location = /app/small {{ client_max_body_size 1k; proxy_pass http://127.0.0.1:{port}/app/page; }}
    }}
}}
"""

    def words(self):
        user = "user nobody nogroup;" if os.geteuid() == 0 else ""
        config = self.folder / "nginx.conf"
        config.write_text(self.CONFIG.format(folder=self.folder, port=self.port, user=user))
        return [self.program(), "-p", str(self.folder), "-c", str(config)]

    def reload(self):
        self.process.send_signal(signal.SIGHUP)


class Apache(Program):
    name = "apache2"

    CONFIG = """\
ServerRoot "{folder}"
ServerName localhost
PidFile {folder}/pid
ErrorLog {folder}/said
Listen 127.0.0.1:{port}
DefaultRuntimeDir {folder}/tmp
{modules}
{user}
StartServers 1
ServerLimit 2
ThreadsPerChild 25
MaxRequestWorkers 50
KeepAliveTimeout 5
MaxKeepAliveRequests 0
DocumentRoot "{folder}/root"
DavLockDB {folder}/tmp/lock
Alias "/app/page" "{folder}/root/page.html"
Alias "/app/chunks" "{folder}/root/chunks.html"
Alias "/app/small" "{folder}/root/dav/small"
Alias "/app/dav/" "{folder}/root/dav/"
Header always set X-Connection "expr=%{{REMOTE_PORT}}"
<Directory "{folder}/root">
    Require all granted
    FileETag MTime Size
    ForceType text/html
</Directory>
<Directory "{folder}/root/dav">
    Dav On
</Directory>
<Location "/app/chunks">
    SetOutputFilter SUBSTITUTE
    Substitute "s/nothing like it//"
</Location>
<Location "/app/small">
    LimitRequestBody 1024
</Location>
"""
    MODULES = (
        "mpm_event", "authz_core", "alias", "headers", "dav", "dav_fs", "substitute", "filter", "setenvif",
    )

    def words(self):
        modules = "\n".join(
            f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in self.MODULES
        )
        user = "User nobody\nGroup nogroup" if os.geteuid() == 0 else ""
        config = self.folder / "apache.conf"
        config.write_text(self.CONFIG.format(folder=self.folder, port=self.port, modules=modules, user=user))
        return [self.program(), "-DFOREGROUND", "-f", str(config)]

    def reload(self):
        self.process.send_signal(signal.SIGUSR1)


class Node(Program):
    name = "node"

    SCRIPT = """\
const http = require('http'), fs = require('fs'), crypto = require('crypto'), path = require('path');
const [port, root] = [Number(process.argv[2]), process.argv[3]];
let connections = 0;
const page = fs.readFileSync(path.join(root, 'page.html'));
const tag = '"' + crypto.createHash('sha1').update(page).digest('hex') + '"';

const server = http.createServer((request, response) => {
    response.setHeader('X-Connection', String(request.socket.number));
    const name = request.url.split('?')[0];
    if (name === '/app/page') {
        response.setHeader('ETag', tag);
        if (request.headers['if-none-match'] === tag) { response.writeHead(304); return response.end(); }
        response.writeHead(200, { 'Content-Length': page.length, 'Content-Type': 'text/html' });
        return response.end(request.method === 'HEAD' ? undefined : page);
    }
    if (name === '/app/chunks') {
        response.writeHead(200, { 'Content-Type': 'text/html', 'Trailer': 'X-Trailer' });
        response.write(page.subarray(0, 100));
        setTimeout(() => {
            response.write(page.subarray(100));
            response.addTrailers({ 'X-Trailer': 'at the end' });
            response.end();
        }, 20);
        return;
    }
    if (name === '/app/early') {
        response.writeEarlyHints({ link: '</style.css>; rel=preload' });
        response.writeProcessing();
        return response.end('after hints');
    }
    if (name === '/app/echo') {
        response.writeHead(200, { 'Content-Type': 'application/octet-stream' });
        return request.pipe(response);
    }
    if (name === '/app/small' && Number(request.headers['content-length']) > 1024) {
        response.writeHead(413, { 'Connection': 'close', 'Content-Length': 9 });
        return response.end('too large');
    }
    const file = path.join(root, 'dav', path.basename(name));
    if (request.method === 'PUT') {
        const kept = fs.createWriteStream(file);
        return request.pipe(kept).on('finish', () => { response.writeHead(201); response.end(); });
    }
    if (!fs.existsSync(file)) { response.writeHead(404); return response.end(); }
    fs.createReadStream(file).pipe(response);
});
server.on('connection', (socket) => { socket.number = ++connections; });
server.on('upgrade', (request, socket, head) => {
    const guid = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
    const key = crypto.createHash('sha1').update(request.headers['sec-websocket-key'] + guid).digest('base64');
    socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n' +
        'Sec-WebSocket-Accept: ' + key + '\\r\\n\\r\\n');
    socket.write(head);
    socket.pipe(socket);
});
server.keepAliveTimeout = 3600 * 1000;
server.listen(port, '127.0.0.1');
"""

    def words(self):
        script = self.folder / "server.js"
        script.write_text(self.SCRIPT)
        return [self.program(), str(script), str(self.port), str(self.root)]
