"""The shop as a program of its own."""

from bulkhead_service import wsgi
from flask_app import app

if __name__ == "__main__":
    wsgi(app, root_path="/script", threads=2)
