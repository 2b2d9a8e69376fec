# SPDX-License-Identifier: Apache-2.0
"""The action /ROBOT/navigate_to_pose (nav2_msgs/action/NavigateToPose) of a navigator."""

import math

import transforms
from actionlib_msgs.msg import GoalStatus
from nav2_msgs.action import NavigateToPose
from rclpy.action import ActionServer, CancelResponse
from rclpy.task import Future

FEEDBACK_S = 0.5


def serve(ros, navigator):
    """Starts the action's server."""
    server = Server(ros, navigator)
    ros.every(FEEDBACK_S, server.feedback)


class Server:
    def __init__(self, ros, navigator):
        self.navigator = navigator
        self.handle, self.goal = None, None
        name = "/%s/navigate_to_pose" % navigator.robot.name
        self.server = ActionServer(ros.node, NavigateToPose, name, self.execute,
                                   cancel_callback=lambda _: CancelResponse.ACCEPT)

    async def execute(self, handle):
        outcome = Future()
        wanted = handle.request.pose
        self.handle = handle
        self.goal = self.navigator.go_to(wanted.pose, wanted.header.stamp, outcome.set_result)
        status = await outcome
        if status == GoalStatus.SUCCEEDED:
            handle.succeed()
        elif handle.is_cancel_requested:
            handle.canceled()
        else:
            handle.abort()
        return NavigateToPose.Result()

    def feedback(self):
        """Tells the client how far it still is; ends the goal if the client asks for it."""
        handle, goal = self.handle, self.goal
        if goal is None or goal.status != GoalStatus.ACTIVE:
            return
        if handle.is_cancel_requested:
            self.navigator.cancel(goal)
            return
        pose = self.navigator.perception.pose()
        message = NavigateToPose.Feedback()
        if pose is not None:
            message.distance_remaining = math.dist(pose[:2], goal.pose[:2])
            transforms.set_pose(message.current_pose.pose, *pose)
        message.current_pose.header.frame_id = "map"
        handle.publish_feedback(message)
