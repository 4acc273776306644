"""Apache and nginx, as the tests of the preload library run them: mixins that make command lines.

Runs in: the tests.
"""

import signal


class ApacheCommand:
    """Apache; a subclass names the way it runs its processes."""

    program, workers, reload, mpm, extra = "apache2", True, signal.SIGUSR1, "prefork", ""

    def command(self):
        modules = "/usr/lib/apache2/modules"
        cgi = "cgi" if self.mpm == "prefork" else "cgid"
        path = self.put("apache.conf", f"""
            ServerName x
            ServerRoot {self.folder}
            PidFile {self.folder}/pid
            Listen 127.0.0.1:{self.port}
            LoadModule mpm_{self.mpm}_module {modules}/mod_mpm_{self.mpm}.so
            LoadModule authz_core_module {modules}/mod_authz_core.so
            LoadModule mime_module {modules}/mod_mime.so
            LoadModule dir_module {modules}/mod_dir.so
            LoadModule {cgi}_module {modules}/mod_{cgi}.so
            User www-data
            Group www-data
            TypesConfig /etc/mime.types
            ErrorLog {self.folder}/error.log
            CustomLog {self.folder}/access.log "%h %r %>s"
            DocumentRoot {self.folder}/root
            <Directory {self.folder}/root>
              Options +ExecCGI
              AddHandler cgi-script .cgi
            </Directory>
            KeepAlive On
            KeepAliveTimeout 20
            MaxKeepAliveRequests 0
            {self.extra.replace("{folder}", self.folder)}
            """)
        return ["apache2", "-DFOREGROUND", "-f", path]


class NginxCommand:
    """Edge-triggered epoll."""

    program, workers, reload, extra, listen = "nginx", True, signal.SIGHUP, "sendfile on; tcp_nopush on;", ""
    processes = 2

    def command(self):
        path = self.put("nginx.conf", f"""
            daemon off; user www-data; worker_processes {self.processes}; pid {self.folder}/pid;
            error_log {self.folder}/error.log;
            events {{ worker_connections 512; }}
            http {{
              access_log {self.folder}/access.log;
              {self.extra} keepalive_timeout 20; keepalive_requests 100000;
              gzip on; gzip_min_length 0; gzip_types text/plain;
              client_max_body_size 1m;
              server {{
                listen 127.0.0.1:{self.port} {self.listen};
                root {self.folder}/root;
                location = /post.cgi {{
                  default_type text/plain;
                  if ($request_method = POST) {{ return 200 "got $content_length from $remote_addr\\n"; }}
                }}
              }}
            }}
            """)
        return ["nginx", "-e", self.folder + "/error.log", "-c", path]
