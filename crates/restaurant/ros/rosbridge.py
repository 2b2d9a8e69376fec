# SPDX-License-Identifier: Apache-2.0
"""ROS for web pages: the rosbridge protocol 2.0 over a WebSocket, as much of it as roslibjs needs for
topics. rosbridge.py ros1|ros2 PORT|fd:N ROSLIB.js

Operations: subscribe (with throttle_rate), unsubscribe, advertise, unadvertise and publish. The
WebSocket is at /ros; the rest of the port serves the page and roslibjs. Listens only on 127.0.0.1,
since a page may publish anything; with fd:N, on the inherited socket with file descriptor N.
"""

import asyncio
import base64
import importlib
import json
import math
import os
import socket
import sys
import threading
import time

import middleware
from aiohttp import web

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page")
MAX_MESSAGE = 1 << 20
# Largest number of messages that wait for a slow page; above it, the oldest are dropped.
MAX_WAITING = 64
MAX_TOPICS = 64
HEARTBEAT_S = 10.0


class Bridge:
    """The ROS side: one subscription or publisher for each topic, shared by all pages."""

    def __init__(self, ros, loop):
        self.ros, self.loop = ros, loop
        self.pages, self.publishers, self.subscribed = set(), {}, {}

    def subscribe(self, topic, type_name):
        if topic in self.subscribed:
            return
        check_room(self.subscribed)
        self.subscribed[topic] = type_name
        # A map is latched: what is not latched is heard the same way in ROS 1.
        latched = topic.endswith("/map")
        receive = lambda message: self.loop.call_soon_threadsafe(self.spread, topic, message)
        self.ros.subscribe(topic, class_of(type_name), receive, depth=1, latched=latched)

    def spread(self, topic, message):
        wanting = [page for page in self.pages if page.wants(topic)]
        if wanting:
            text = json.dumps({"op": "publish", "topic": topic, "msg": plain(message)})
            for page in wanting:
                page.offer(text)

    def advertise(self, topic, type_name):
        if topic not in self.publishers:
            check_room(self.publishers)
            self.publishers[topic] = self.ros.publisher(topic, class_of(type_name)), class_of(type_name)

    def publish(self, topic, fields):
        if topic not in self.publishers:
            raise ValueError("%s is not advertised" % topic)
        publisher, message_class = self.publishers[topic]
        publisher.publish(fill(message_class(), fields))


class Page:
    """One connected page."""

    def __init__(self, bridge, connection):
        self.bridge, self.connection = bridge, connection
        self.topics, self.waiting = {}, asyncio.Queue(MAX_WAITING)

    def wants(self, topic):
        if topic not in self.topics:
            return False
        interval, last = self.topics[topic]
        now = time.monotonic()
        if now - last < interval:
            return False
        self.topics[topic] = (interval, now)
        return True

    def offer(self, text):
        if self.waiting.full():
            self.waiting.get_nowait()
        self.waiting.put_nowait(text)

    async def serve(self):
        sender = asyncio.ensure_future(self.send())
        try:
            async for said in self.connection:
                try:
                    self.handle(json.loads(said.data))
                except (ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
                    said = {"op": "status", "level": "error", "msg": str(error)}
                    self.offer(json.dumps(said))
        finally:
            sender.cancel()

    async def send(self):
        while True:
            await self.connection.send_str(await self.waiting.get())

    def handle(self, said):
        operation, topic = said["op"], said["topic"]
        if operation == "subscribe":
            self.bridge.subscribe(topic, said["type"])
            self.topics[topic] = (float(said.get("throttle_rate", 0)) / 1e3, -math.inf)
        elif operation == "unsubscribe":
            self.topics.pop(topic, None)
        elif operation == "advertise":
            self.bridge.advertise(topic, said["type"])
        elif operation == "publish":
            self.bridge.publish(topic, said["msg"])
        elif operation != "unadvertise":
            raise ValueError("no operation %r here" % operation)


def check_room(topics):
    if len(topics) >= MAX_TOPICS:
        raise ValueError("%d topics are in use already" % MAX_TOPICS)


def class_of(type_name):
    """Returns the class of package/Name or package/msg/Name."""
    package, _, name = type_name.replace("/msg/", "/").partition("/")
    if not (package.isidentifier() and name.isidentifier()):
        raise ValueError("%r is no message type" % type_name)
    return getattr(importlib.import_module(package + ".msg"), name)


def fields_of(message):
    if hasattr(message, "get_fields_and_field_types"):
        return list(message.get_fields_and_field_types())
    return message.__slots__


def plain(value):
    """Returns a message as JSON has it: bytes in base64, no NaN or infinity."""
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)) or type(value).__name__ == "array":
        return [plain(it) for it in value]
    if hasattr(value, "secs"):
        return {"secs": value.secs, "nsecs": value.nsecs}
    return {name: plain(getattr(value, name)) for name in fields_of(value)}


def fill(message, fields):
    """Sets the fields of a message from JSON."""
    if not isinstance(fields, dict):
        raise ValueError("%r is no message" % fields)
    for name, value in fields.items():
        if name not in fields_of(message):
            raise ValueError("%s has no field %r" % (type(message).__name__, name))
        present = getattr(message, name)
        if isinstance(value, dict):
            fill(present, value)
        elif isinstance(present, float):
            setattr(message, name, float(value))
        else:
            setattr(message, name, value)
    return message


def site(runner, port):
    if port.startswith("fd:"):
        return web.SockSite(runner, socket.socket(fileno=int(port[3:])))
    return web.TCPSite(runner, "127.0.0.1", int(port))


async def serve(bridge, port, library):
    async def meet(request):
        # Any web site that is open in the browser may try to connect.
        origin = request.headers.get("Origin")
        if origin is not None and origin != "http://" + request.host:
            raise web.HTTPForbidden(text="pages of %s may not use this server" % origin)
        connection = web.WebSocketResponse(max_msg_size=MAX_MESSAGE, heartbeat=HEARTBEAT_S)
        await connection.prepare(request)
        page = Page(bridge, connection)
        bridge.pages.add(page)
        try:
            await page.serve()
        finally:
            bridge.pages.discard(page)
        return connection

    async def index(_):
        return web.FileResponse(os.path.join(PAGE, "index.html"))

    async def roslib(_):
        return web.FileResponse(library)

    application = web.Application()
    application.add_routes([web.get("/", index), web.get("/ros", meet), web.get("/roslib.js", roslib),
                            web.static("/", PAGE)])
    runner = web.AppRunner(application)
    await runner.setup()
    await site(runner, port).start()
    print("ready", flush=True)
    await asyncio.Future()


def main():
    kind, port, library = sys.argv[1:4]
    ros = middleware.start(kind, "rosbridge")
    loop = asyncio.new_event_loop()
    bridge = Bridge(ros, loop)
    server = serve(bridge, port, library)
    threading.Thread(target=loop.run_until_complete, args=(server,), daemon=True).start()
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
