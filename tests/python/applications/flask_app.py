"""A shop in Flask: what an application of WSGI does, and statements of a data source."""

import os
import time

from bulkhead_service import DataError, context
from flask import Flask, Response, request

app = Flask(__name__)
#: At the import, where an index would be read.
catalog = context().data("catalog").sync if os.environ.get("CATALOG") else None
users_at_start = len(catalog.many("users")) if catalog else None


@app.route("/")
def home():
    return {"url": request.url, "client": request.remote_addr, "root": request.script_root, "agent": request.headers.get("X-Two")}


@app.route("/upload", methods=["POST"])
def upload():
    length = 0
    while part := request.stream.read(10_000):
        length += len(part)
    return {"bytes": length}


@app.route("/form", methods=["POST"])
def form():
    return {"fields": dict(request.form), "file": len(request.files["file"].read()) if request.files else None}


@app.route("/rows")
def rows():
    return Response((f"row {number}\n" for number in range(1000)), mimetype="text/csv")


@app.route("/slow")
def slow():
    time.sleep(float(request.args["seconds"]))
    return "slow\n"


@app.route("/pid")
def pid():
    return f"{os.getpid()}\n"


@app.route("/error")
def error():
    raise RuntimeError("the secret word is xyzzy")


@app.route("/user/<int:number>")
def user(number):
    try:
        found = catalog.one("user_by_id", number)
    except DataError as fault:
        return str(fault), 503
    return {"name": found.name, "balance": found["balance"], "id": found[0]} if found else ("nobody", 404)


@app.route("/users/at-start")
def at_start():
    return str(users_at_start)
