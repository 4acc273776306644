"""An API in FastAPI: lifespan, uploads as they come, streams, WebSocket, and statements of a data source."""

import asyncio
import contextlib
import os
import sys

from bulkhead_service import DataError, context
from fastapi import BackgroundTasks, FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse, StreamingResponse

state = {"closed": 0, "gone": 0}


@contextlib.asynccontextmanager
async def lifespan(app):
    if os.environ.get("BREAK"):
        raise RuntimeError("there is no index")
    state["catalog"] = context().data("catalog") if os.environ.get("CATALOG") else None
    state["users"] = len(await state["catalog"].many("users")) if state["catalog"] else None
    yield {"word": "of the lifespan"}
    print("the application ends", file=sys.stderr)


app = FastAPI(lifespan=lifespan, root_path="/api")


@app.get("/")
async def home(request: Request):
    return {"url": str(request.url), "client": request.client.host, "word": request.state.word}


@app.post("/upload")
async def upload(request: Request):
    length = 0
    async for part in request.stream():
        length += len(part)
    return {"bytes": length}


@app.get("/rows")
async def rows():
    async def made():
        for number in range(1000):
            yield f"row {number}\n"
    return StreamingResponse(made(), media_type="text/csv")


@app.get("/events")
async def events():
    async def made():
        try:
            while True:
                yield "data: tick\n\n"
                await asyncio.sleep(0.05)
        finally:
            state["gone"] += 1
    return StreamingResponse(made(), media_type="text/event-stream")


@app.get("/slow")
async def slow(seconds: float):
    await asyncio.sleep(seconds)
    return "slow"


@app.get("/thread")
def thread():
    """In a thread of the application's own."""
    return "thread"


@app.get("/error")
async def error():
    raise RuntimeError("the secret word is xyzzy")


def fail():
    raise RuntimeError("after the answer")


@app.get("/background")
async def background(tasks: BackgroundTasks):
    tasks.add_task(fail)
    return "done"


@app.get("/state")
async def told():
    return {"closed": state["closed"], "gone": state["gone"], "users": state["users"]}


@app.get("/user/{number}")
async def user(number: int):
    try:
        found = await state["catalog"].one("user_by_id", number)
    except DataError as fault:
        return JSONResponse(str(fault), 503)
    return found.as_dict() if found else JSONResponse("nobody", 404)


@app.websocket("/socket")
async def socket(peer: WebSocket):
    await peer.accept()
    try:
        while True:
            message = await peer.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            if message.get("text") == "end":
                return await peer.close(4001, "as you say")
            if message.get("text") == "break":
                raise RuntimeError("the socket breaks")
            if message.get("text") is not None:
                await peer.send_text(message["text"])
            else:
                await peer.send_bytes(message["bytes"])
    except WebSocketDisconnect:
        state["closed"] += 1


@app.websocket("/refused")
async def refused(peer: WebSocket):
    await peer.close()
