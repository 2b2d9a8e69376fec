#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the missing Debian packages that the build, the demo and the tests need, and those named as
# arguments. Installs as root or through sudo; otherwise prints the command to run and fails.
set -eu

build="gcc g++ libc6-dev cmake clang-14 libclang-14-dev"
python="python3-venv python3-cryptography"
links="iproute2 iptables nftables iputils-ping iperf3 util-linux wireguard-tools wireguard-go openssh-client
       openssh-server sudo"
# systemd-analyze, and its filters without systemd
unit="systemd python3-seccomp"
ros="python3-roslaunch python3-rosnode python3-rostopic python3-rospy python3-rosbag
     python3-std-msgs python3-sensor-msgs python3-geometry-msgs python3-nav-msgs python3-tf2-msgs
     python3-actionlib python3-actionlib-msgs libroscpp-dev libstd-msgs-dev"
# Tests give daemons other clocks.
clocks="faketime"
picture="python3-matplotlib python-matplotlib-data"

if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is no Debian; install what matches: $build $python $links $unit $ros $clocks $picture" >&2
    exit 1
fi

missing=""
for package in $build $python $links $unit $ros $clocks $picture "$@"; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done

if [ -n "$missing" ]; then
    update="apt-get update"
    install="apt-get install -y --no-install-recommends$missing"
    if [ "$(id -u)" = 0 ]; then
        sudo=""
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        sudo="sudo"
    else
        echo "setup: packages are missing, and this is neither root nor able to use sudo. Run as root:" >&2
        echo "  $update && $install" >&2
        exit 1
    fi
    echo "setup: installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    $sudo $update
    # shellcheck disable=SC2086  # the command is meant to be split into words
    $sudo $install
fi

if ! command -v cargo >/dev/null; then
    echo "setup: no cargo; install Rust (https://rustup.rs), 1.91 or newer" >&2
    exit 1
fi
