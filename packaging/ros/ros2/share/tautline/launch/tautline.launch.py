# SPDX-License-Identifier: Apache-2.0
"""Starts the daemon: ros2 launch tautline tautline.launch.py file:=/etc/tautline/robot.yaml."""

import pathlib
import sys

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction
from launch.substitutions import LaunchConfiguration

# A file that another launch file includes has no other means to find its package's module.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from tautline_launch import Tautline  # noqa: E402

ARGUMENTS = [
    ("file", "/etc/tautline/robot.yaml", "the robot's file"),
    ("name", "", "ROS name of the daemon; 'node_name' in the file precedes it"),
    ("namespace", "", "namespace of that name"),
    ("log", "info", "level of the log: off, error, warn, info, debug or trace"),
    ("ready_timeout", "30", "seconds in which the daemon has to be ready; otherwise the launch ends"),
    ("respawn", "true", "start the daemon again one second after it ends: true or false"),
    ("program", "tautline", "the program, if it is not in PATH"),
]
SWITCHES = {"true": True, "false": False}


def start(context):
    given = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    if given["respawn"] not in SWITCHES:
        raise ValueError(f"respawn: found '{given['respawn']}'; allowed: true, false")
    try:
        given["ready_timeout"] = float(given["ready_timeout"])
    except ValueError:
        text = f"ready_timeout: found '{given['ready_timeout']}'; allowed: seconds"
        raise ValueError(text) from None
    given["respawn"] = SWITCHES[given["respawn"]]
    return [Tautline(**given, output="screen", on_ready=[LogInfo(msg="tautline is ready")])]


def generate_launch_description():
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=description)
        for name, default, description in ARGUMENTS
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
