# SPDX-License-Identifier: Apache-2.0
"""The daemon in a launch file of ROS 2, and what starts after it."""

import os
import shutil
import socket
import tempfile

import launch.logging
from launch import Event, Substitution
from launch.actions import EmitEvent, ExecuteProcess
from launch.event_handler import EventHandler
from launch.event_handlers import OnProcessExit, OnShutdown
from launch.events import Shutdown

__all__ = ["OnReady", "Ready", "Tautline"]

# Longest notification that is read. Those of the daemon are shorter.
MAX_NOTIFICATION = 4096
# Exit code of a daemon whose file or key is wrong: another start would not help.
EXIT_WRONG_FILE = 78


class Ready(Event):
    """The daemon has its sockets and runs. A daemon that is started again is ready again."""

    name = "tautline.Ready"

    def __init__(self, action):
        self.action = action


class OnReady(EventHandler):
    """Runs the actions `on_ready` once, when the daemon of `target_action` is ready."""

    def __init__(self, *, target_action, on_ready, **kwargs):
        def is_target(event):
            return isinstance(event, Ready) and event.action is target_action

        super().__init__(matcher=is_target, entities=on_ready, handle_once=True, **kwargs)


class Tautline(ExecuteProcess):
    """Runs the daemon with a robot's file until the launch ends.

    file: the robot's file.
    name, namespace: the daemon's name in the ROS graph; `node_name` in the file precedes them.
    log: level of the log, as in `tautline run --log`.
    ready_timeout: seconds after which a launch without a ready daemon ends; None waits forever.
    on_ready: actions that start when the daemon is ready.
    program: the program, if it is not in PATH.
    Other arguments are those of ExecuteProcess.
    """

    def __init__(
        self,
        *,
        file,
        name="",
        namespace="",
        log="info",
        ready_timeout=30.0,
        on_ready=None,
        program="tautline",
        **kwargs,
    ):
        remaps = [("__node", name), ("__ns", namespace)]
        given = [word for key, value in remaps if value for word in ("-r", f"{key}:={value}")]
        ros = ["--ros-args", *given] if given else []
        notified = {"NOTIFY_SOCKET": _Socket(self), **kwargs.pop("additional_env", {})}
        kwargs.setdefault("respawn_delay", 1.0)
        kwargs.setdefault("name", name or "tautline")
        super().__init__(
            cmd=[program, "run", "--log", log, file, *ros], additional_env=notified, **kwargs
        )
        self._ready_timeout = ready_timeout
        self._on_ready = on_ready or []
        self._notifications = None
        self._timer = None
        self._folder = None

    @property
    def notify_path(self):
        """The socket to which the daemon reports, in a folder that only this user can enter."""
        return os.path.join(self._folder, "notify")

    def execute(self, context):
        self._listen(context)
        for handler in (
            OnReady(target_action=self, on_ready=self._on_ready),
            OnProcessExit(target_action=self, on_exit=self._ended),
            OnShutdown(on_shutdown=lambda event, context: self._close(context)),
        ):
            context.register_event_handler(handler)
        return super().execute(context)

    def _listen(self, context):
        self._folder = tempfile.mkdtemp(prefix="tautline-launch-")
        self._notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notifications.setblocking(False)
        self._notifications.bind(self.notify_path)
        loop = context.asyncio_loop
        loop.add_reader(self._notifications, self._notified, context)
        if self._ready_timeout is not None:
            self._timer = loop.call_later(self._ready_timeout, self._late, context)

    def _notified(self, context):
        try:
            lines = self._notifications.recv(MAX_NOTIFICATION).split(b"\n")
        except OSError:
            return
        if b"READY=1" in lines:
            self._stop_timer()
            context.emit_event_sync(Ready(self))

    def _late(self, context):
        self._timer = None
        context.emit_event_sync(_failed(f"tautline was not ready within {self._ready_timeout:g} s"))

    def _ended(self, event, context):
        if event.returncode != EXIT_WRONG_FILE:
            return None
        self._stop_timer()
        return [EmitEvent(event=_failed("the file or the key of tautline is wrong"))]

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self, context):
        self._stop_timer()
        if self._notifications is not None:
            context.asyncio_loop.remove_reader(self._notifications)
            self._notifications.close()
            self._notifications = None
            shutil.rmtree(self._folder, ignore_errors=True)


def _failed(reason):
    """Logs the reason, which launch itself does not, and ends the launch."""
    launch.logging.get_logger("tautline").error(reason)
    return Shutdown(reason=reason)


class _Socket(Substitution):
    """The path of a daemon's notifications, which is known when the daemon starts."""

    def __init__(self, action):
        super().__init__()
        self._action = action

    def describe(self):
        return "tautline notifications"

    def perform(self, context):
        return self._action.notify_path
