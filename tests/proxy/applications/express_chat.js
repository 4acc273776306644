// A chat in Express: methods, cookies, redirects, files, events, and WebSocket by `ws`.
// usage: node express_chat.js SOCKET FOLDER
"use strict";

const fs = require("node:fs");
const http = require("node:http");
const express = require("express");
const { WebSocketServer } = require("ws");

const [socket, folder] = process.argv.slice(2);
const app = express();
app.set("trust proxy", 1);
app.use("/files", express.static(folder));

app.get("/", (request, response) => {
  response.json({
    secure: request.secure, host: request.get("host"), address: request.ip, forwarded: request.ips,
    cookie: request.get("cookie"), process: process.pid,
  });
});
app.get("/login", (request, response) => {
  response.cookie("session", "a b", { httpOnly: true, secure: true });
  response.cookie("theme", "dark");
  response.redirect(303, `${request.protocol}://${request.get("host")}/`);
});
app.get("/back", (request, response) => response.redirect("../?x=1"));
app.route("/thing")
  .get((request, response) => response.send("thing"))
  .patch(express.json(), (request, response) => response.json({ patched: request.body }))
  .delete((request, response) => response.status(204).end())
  .options((request, response) => response.set("Allow", "GET, PATCH, DELETE").status(204).end());

// Each event follows a request for it.
const listeners = new Set();
app.get("/events", (request, response) => {
  response.set("Content-Type", "text/event-stream").write("data: first\n\n");
  listeners.add(response);
  response.on("close", () => listeners.delete(response));
});
app.post("/say/:what", (request, response) => {
  for (const one of listeners) one.write(`data: ${request.params.what}\n\n`);
  response.json(listeners.size);
});

// Dies in the middle of an answer.
app.get("/die", (request, response) => {
  response.set("Content-Length", "1000").write("half an answer", () => process.exit(3));
});

const server = http.createServer(app);
new WebSocketServer({ server, path: "/socket" }).on("connection", (connection, request) => {
  connection.send(JSON.stringify({ host: request.headers.host, proto: request.headers["x-forwarded-proto"] }));
  connection.on("message", (data, isBinary) => connection.send(data, { binary: isBinary }));
});
fs.rmSync(socket, { force: true });
server.listen({ path: socket, readableAll: true, writableAll: true });
