"""An API in FastAPI: JSON, uploads as they come, downloads, events that are made on request, and WebSocket."""

import asyncio
import hashlib
import os

from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse, StreamingResponse

app = FastAPI()
uploads, events, listeners = {}, {}, set()


@app.get("/")
async def home(request: Request):
    client = request.client.host if request.client else None
    return {"url": str(request.url), "client": client, "headers": dict(request.headers)}


@app.get("/items/")
async def items():
    """`/items` is redirected here, by FastAPI, with scheme and host."""
    return [{"id": number, "name": f"item {number}"} for number in range(30_000)]


@app.post("/uploads/{name}")
async def upload(name: str, request: Request):
    digest = hashlib.md5(usedforsecurity=False)
    async for piece in request.stream():
        digest.update(piece)
        uploads[name] = uploads.get(name, 0) + len(piece)
    return {"md5": digest.hexdigest(), "bytes": uploads[name]}


@app.get("/uploads/{name}")
async def uploaded(name: str):
    return uploads.get(name, 0)


@app.api_route("/download", methods=["GET", "HEAD"])
async def download():
    return FileResponse(os.environ["API_FILE"])


@app.get("/pieces/{name}")
@app.get("/events/{name}")
async def stream(name: str, request: Request):
    """Something each time that somebody posts to it, as events or as plain pieces of one text."""
    queue = events.setdefault(name, asyncio.Queue())
    kind, shape = ("text/event-stream", "data: {}\n\n") if "/events/" in str(request.url) else ("text/plain", "{}\n")

    async def made():
        listeners.add(name)
        try:
            yield shape.format("first")
            while (item := await queue.get()) != "end":
                yield shape.format(item)
        finally:
            listeners.discard(name)

    return StreamingResponse(made(), media_type=kind)


@app.post("/events/{name}/{item}")
async def happen(name: str, item: str):
    await events[name].put(item)


@app.get("/listeners")
async def who_listens():
    return sorted(listeners)


@app.websocket("/socket")
async def socket(connection: WebSocket):
    await connection.accept()
    try:
        await connection.send_json({"url": str(connection.url)})
        while True:
            await connection.send_text("fastapi got " + await connection.receive_text())
    except WebSocketDisconnect:
        pass
