#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what tests with ROS 2 need into target/ros2: rclpy and the common interfaces of
# Kilted, and rosbags as a second opinion on messages. Python 3.11, as the wheels want.
set -eu
cd "$(dirname "$0")/../.."

wanted="ros-rclpy==9.1.2 ros-rmw-fastrtps-cpp==9.3.3 ros-common-interfaces==5.5.1 rosbags==0.11.9"
folder=target/ros2/kilted
[ "$(cat "$folder/installed" 2>/dev/null || true)" = "$wanted" ] && exit 0

if ! /usr/bin/python3 -c 'import sys, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))'; then
    echo "ros2: /usr/bin/python3 has to be Python 3.11 with venv (Debian 12: apt-get install python3-venv)" >&2
    exit 1
fi
echo "ros2: installing into $folder (280 MB)"
/usr/bin/python3 -m venv --clear "$folder"
# shellcheck disable=SC2086  # the list is meant to be split into words
"$folder/bin/pip" install --quiet --disable-pip-version-check $wanted
echo "$wanted" > "$folder/installed"
