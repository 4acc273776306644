"""Servers of other people behind `bulkhead guard`: their configuration files, and how each is started."""

import os
import shutil
import unittest

import guarded

MODULES = "/usr/lib/apache2/modules"
APACHE = """
ServerRoot {folder}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {folder}/pid
DefaultRuntimeDir {folder}
LoadModule mpm_{mpm}_module {modules}/mod_mpm_{mpm}.so
LoadModule authz_core_module {modules}/mod_authz_core.so
User nobody
Group nogroup
DocumentRoot {folder}
ErrorLog {folder}/errors
LogFormat "%a:%{{remote}}p" peer
CustomLog {folder}/peers peer
KeepAliveTimeout 60
{more}
<Directory />
  Require all granted
</Directory>
"""
NGINX = """
daemon off;
user nobody nogroup;
worker_processes 2;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 64; }}
http {{
  access_log off;
  keepalive_timeout 60;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{ return 200 "$remote_addr:$remote_port"; }}
  }}
}}
"""
LIGHTTPD = """
server.modules = ( "mod_accesslog" )
server.document-root = "{folder}"
server.bind = "127.0.0.1"
server.port = {port}
server.max-keep-alive-idle = 60
index-file.names = ( "index.html" )
accesslog.filename = "{folder}/peers"
accesslog.format = "%h"
"""
NODE = """
const http = require("http");
function serve() {
  const server = http.createServer({ keepAliveTimeout: 60000 }, (request, response) => {
    response.end(`${request.socket.remoteAddress}:${request.socket.remotePort}`);
    // Closes its socket, and listens at the same address anew.
    if (request.url === "/again") server.close(() => setTimeout(serve, 200));
  });
  server.on("error", (error) => process.exit(9));
  server.listen(Number(process.argv[2]), "127.0.0.1");
}
serve();
"""
PYTHON = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = "%s:%d" % self.client_address
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
GUNICORN = """
def application(environ, start_response):
    body = (environ["REMOTE_ADDR"] + ":" + str(environ["REMOTE_PORT"])).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def page(_):
    return "a page\n"


def apache(mpm, more="", options=()):
    text = lambda guard: APACHE.format(folder=guard.folder, port=guard.port, mpm=mpm, modules=MODULES, more=more)
    files = {"apache.conf": text, "index.html": page}
    return guarded.Guarded(lambda _: ["sh", "-c", "exec apache2 -f $PWD/apache.conf -DFOREGROUND"], *options, files=files)


def nginx():
    text = lambda guard: NGINX.format(folder=guard.folder, port=guard.port)
    return guarded.Guarded(["sh", "-c", "exec nginx -c $PWD/nginx.conf"], files={"nginx.conf": text})


def lighttpd():
    text = lambda guard: LIGHTTPD.format(folder=guard.folder, port=guard.port)
    files = {"lighttpd.conf": text, "index.html": page}
    return guarded.Guarded(["lighttpd", "-D", "-f", "lighttpd.conf"], files=files)


def node():
    return guarded.Guarded(lambda port: ["node", "server.js", port], files={"server.js": NODE})


def python(*options):
    return guarded.Guarded(lambda port: ["/usr/bin/python3", "server.py", port], *options, files={"server.py": PYTHON})


def gunicorn(*more):
    command = lambda port: ["gunicorn", "-w", "2", *more, "-b", f"127.0.0.1:{port}", "application"]
    return guarded.Guarded(command, files={"application.py": GUNICORN})


def needs(name):
    """Leaves a test out where there is no such program."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    return unittest.skipUnless(found, f"there is no {name}")
